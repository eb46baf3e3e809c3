"""How long one decision of both levels takes: a trial reports, its GPUs are decided on, and then the network.

A live tracker holds studies whose trials run on the hosts of one fabric. What is timed follows one report: it is taken in, the
GPU policy is asked, its decision is taken in, with the attempts that start and end by it, and the network policy makes a plan
of what runs then, which is taken in. Not timed: the journal, for which both decisions wait, and what switches, agents and
engines do.

An interval lies between two decisions, so that policies that decide in rounds decide anew. After *one report* nothing else is
new; after *all reports* every trial that runs has reported once since the decision before. Times are CPU seconds of the
process.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from random import Random
from statistics import median
from typing import Any

from rich.table import Table

from beamer.decision.core import DecisionCore, Proposal, seeded
from beamer.gpu.decider import PolicyDecider
from beamer.gpu.events import GpusRequested, NodesSeen, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Node, Request
from beamer.gpu.policies import gpu_policy
from beamer.network.decide import check_plan, decide
from beamer.network.events import PlanChanged, Planned
from beamer.network.fabric import Fabric
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import QUEUES, Plan
from beamer.network.policies import network_policy
from beamer.studies.events import Event, StageRegistered, StudyRegistered, TargetSet, TrialRegistered
from beamer.studies.model import Profile, Rung, trial_key
from beamer.studies.tracker import Tracker
from eval.bench.gpu import INTERVAL_S, exponent, measured_speeds, next_report
from eval.committed import Committed
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, single
from eval.machine import Machine
from topologies.leaf_spine import build

LEAVES, SPINES, HOSTS_PER_LEAF, GPUS = 16, 8, 32, 8  # 512 hosts, 4 096 GPUs
ASKED = (2, 2, 4, 10)  # GPUs of trials in turn: 1 000 of them ask for a tenth more than there are, those of 10 need two hosts
SMALLER, LARGER = 2, 2  # A trial runs on so many times fewer or more GPUs than it asks for.
TRIALS_PER_STUDY = 25
KEPT = 5  # The next rung keeps so many of them.
SIZES = (125, 250, 500, 1_000)  # trials
GPU_POLICIES = ("tiresias", "hermes", "optimus", "convergence")
NETWORK_POLICY = "beamer"
BATCH_SIZE = 1_024  # samples: what more GPUs divide takes most of an iteration
EPOCH, STEPS = 100, 10_000  # iterations between two reports, and to the end of the rung
REPORTS = 10  # Each trial reports so often before anything is timed.
REPEATS = 7
KINDS = {"one": "one report", "all": "all reports"}


@dataclass(frozen=True)
class DecisionParts:
    """What follows a report, CPU seconds: taking it in, the GPU policy, taking its decision in, and the network's plan.

    total_s: all of it. changed: trials whose GPUs are others then, or which have some or none. running: trials that have GPUs;
    loading: of these, those that use the network.
    """

    report_s: float
    gpu_s: float
    taken_in_s: float
    network_s: float
    total_s: float
    changed: float
    running: float
    loading: float

    @classmethod
    def of(cls, measured: Sequence["DecisionParts"]) -> "DecisionParts":
        """Return the median of each figure."""
        return cls(*(median(getattr(one, field.name) for one in measured) for field in fields(cls)))


class LiveSearches:
    """A tracker of both levels with so many trials, on a cluster that has room for them, and who decides on them.

    policy: of the GPU level. hosts: of the fabric, each with `GPUS`.
    """

    def __init__(self, policy: str, trials: int, fabric: Fabric, rng: Random) -> None:
        self.gpus, self.network = GpuLedger(), NetworkLedger(fabric)
        self.tracker = Tracker(self.gpus, self.network)
        self.now = 1e9
        self._rng = rng
        self._decider = PolicyDecider(self.tracker, self.gpus, gpu_policy(policy))
        ordering = network_policy(NETWORK_POLICY)
        self._core: DecisionCore[Any, Any, Plan] = DecisionCore(ordering, decide(ordering, QUEUES), check_plan, None, seeded(0))
        self._take(NodesSeen(self.now, tuple(Node(host.name, GPUS) for host in fabric.hosts)))
        for event in self._searches(trials):
            self._take(event)
        self.decide()
        for _ in range(REPORTS):
            self.pass_interval(reports=True)
        self.decide()

    @property
    def running(self) -> list[str]:
        """The trials that have GPUs."""
        return list(self.gpus.granted)

    def pass_interval(self, reports: bool) -> None:
        """Let an interval pass. reports: whether every trial that runs reports once in it."""
        self.now += INTERVAL_S
        for key in self.running if reports else ():
            self.report(key)

    def report(self, key: str) -> None:
        """Have a trial that runs report its progress and its speed."""
        job = self.gpus.job(key)
        assert job, "it runs"
        assert job.grant, "it runs"
        for event in (
            TrialReported(self.now, key, next_report(job, self.now, self._rng)),
            TrialReported(self.now, key, None, measured_speeds(job, job.grant)[-1:]),
        ):
            self._take(event)

    def decide(self, key: str | None = None) -> DecisionParts:
        """Have a trial report, decide on both levels, and return what that took. key: None: nothing is reported."""
        before = dict(self.gpus.granted)
        times = [time.process_time()]
        if key is not None:
            self.report(key)
        times.append(time.process_time())
        proposal = self._sound(
            self._decider.propose(lambda: (self.gpus.cluster, self.gpus.submitted(self.tracker)), self.gpus.granted, self.now)
        )
        times.append(time.process_time())
        self._decider.adopt(proposal, self.now, self._take)
        times.append(time.process_time())
        self._plan()
        times.append(time.process_time())
        granted, planned = self.gpus.granted, self.network.decision
        changed = sum(before.get(key) != granted.get(key) for key in before.keys() | granted.keys())
        report_s, gpu_s, taken_in_s, network_s = (after - began for began, after in pairwise(times))
        total_s, loading = times[-1] - times[0], len(planned.jobs) if planned else 0
        return DecisionParts(report_s, gpu_s, taken_in_s, network_s, total_s, changed, len(granted), loading)

    def _plan(self) -> None:
        """Decide on the network; what is recorded of it is what has changed, as a controller does."""
        last = self.network.decision
        generation = last.generation + 1 if last else 1
        in_force = Plan(last.queues, last.jobs) if last else Plan()
        proposal = self._sound(self._core.propose(lambda: self.network.snapshot(self.tracker), in_force, self.now, generation))
        state, plan = proposal.plain_state, proposal.content
        planned = Planned(self.now, NETWORK_POLICY, generation, state, plan.queues, dict(plan.jobs))
        if last:
            self._take(PlanChanged.of(last, planned, PlanChanged.state_difference(last, NETWORK_POLICY, state)))
        else:
            self._take(planned)
        self._core.adopt(proposal)

    def _take(self, event: Event) -> bool:
        if not self.tracker.check(event):
            return False
        self.tracker.apply(event)
        return True

    @staticmethod
    def _sound(proposal: Proposal[Any, Any]) -> Proposal[Any, Any]:
        if proposal.failed:
            raise RuntimeError(proposal.error)
        return proposal

    def _searches(self, trials: int) -> Iterator[Event]:
        rungs = (Rung("r0", TRIALS_PER_STUDY, STEPS), Rung("r1", KEPT, 3 * STEPS))
        for number in range(trials):
            study, name = f"s{number // TRIALS_PER_STUDY}", f"t{number % TRIALS_PER_STUDY}"
            if number % TRIALS_PER_STUDY == 0:
                yield StudyRegistered(self.now, study, rungs=rungs)
                yield StageRegistered(self.now, study, "r0")
            key = trial_key(study, name)
            yield TrialRegistered(self.now, study, name, 3 * STEPS)
            yield TargetSet(self.now, key, STEPS, "r0")
            asked = ASKED[number % len(ASKED)]
            traffic = Profile(self._rng.randrange(10**7, 10**9), "ring", self._rng.uniform(0.05, 0.5))
            yield GpusRequested(
                self.now,
                key,
                Request(
                    3 * STEPS, asked, asked // SMALLER, asked * LARGER, epoch=EPOCH, batch_size=BATCH_SIZE, traffic=traffic
                ),
            )


def decisions_of_both(policy: str, trials: int, fabric: Fabric, repeats: int = REPEATS) -> dict[str, DecisionParts]:
    """Return the medians of what decisions under a GPU policy take, by kind. Raises `RuntimeError` if a policy fails."""
    rng = Random(f"{policy} {trials}")
    live = LiveSearches(policy, trials, fabric, rng)
    found: dict[str, list[DecisionParts]] = {kind: [] for kind in KINDS}
    for _ in range(repeats):
        for kind, parts in found.items():
            live.pass_interval(reports=kind == "all")
            live.now += 1.0  # the reports of an interval lie before the one that is timed
            parts.append(live.decide(rng.choice(live.running)))
    return {kind: DecisionParts.of(parts) for kind, parts in found.items()}


@dataclass(frozen=True)
class LevelsStudy:
    """What decisions of both levels take, by GPU policy, trials and kind. hosts: of the fabric. machine: they ran on."""

    machine: Machine
    hosts: int
    repeats: int
    taken: Mapping[str, Mapping[int, Mapping[str, DecisionParts]]]

    @classmethod
    def measure(
        cls,
        sizes: Sequence[int] = SIZES,
        policies: Sequence[str] = GPU_POLICIES,
        repeats: int = REPEATS,
        fabric: Fabric | None = None,
    ) -> "LevelsStudy":
        """Measure on this machine. fabric: None: that of 512 hosts."""
        fabric = fabric or build(LEAVES, SPINES, HOSTS_PER_LEAF, "10gbit", "40gbit")
        machine = Machine.here("numpy", "numba")
        taken = {}
        for policy in policies:
            decisions_of_both(policy, sizes[0], fabric, 1)  # This imports and compiles what the policy needs.
            taken[policy] = {trials: decisions_of_both(policy, trials, fabric, repeats) for trials in sizes}
        return cls(machine, len(fabric.hosts), repeats, taken)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "LevelsStudy":
        """Return the study that a file's content is of."""
        taken = {
            policy: {
                int(trials): {kind: DecisionParts(**parts) for kind, parts in kinds.items()} for trials, kinds in sizes.items()
            }
            for policy, sizes in document["taken"].items()
        }
        return cls(Machine.from_json(document["machine"]), document["hosts"], document["repeats"], taken)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        taken = {
            policy: {str(trials): {kind: asdict(parts) for kind, parts in kinds.items()} for trials, kinds in sizes.items()}
            for policy, sizes in self.taken.items()
        }
        return {"machine": asdict(self.machine), "hosts": self.hosts, "repeats": self.repeats, "taken": taken}

    @property
    def seeds_in_words(self) -> str:
        """What its random numbers follow from."""
        return "by policy and number of trials"

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {"levels": [self._growth(kind) for kind in KINDS] + [self._parts()]}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return what decisions take by policy, a series per number of trials, a panel per kind."""
        sizes = list(next(iter(self.taken.values())))
        panels = []
        for kind, title in KINDS.items():
            series = {}
            for trials in sizes:
                taken_ms = {policy: 1e3 * taken[trials][kind].total_s for policy, taken in self.taken.items()}
                series[f"{trials} trials"] = {policy: IntervalEstimate(one, one, one) for policy, one in taken_ms.items()}
            panels.append(Panel("CPU time (ms)", series, f"after {title}", line=None))
        return {"levels": single(list(self.taken), *panels)}

    def _growth(self, kind: str) -> Table:
        """Return a row per policy: what a decision takes by the number of trials, and how that grows from least to most."""
        sizes = list(next(iter(self.taken.values())))
        title = f"a decision of both levels after {KINDS[kind]}, {self.hosts} hosts, CPU time (ms), median of {self.repeats}"
        table = Table(title=title, title_justify="left")
        columns = (*(f"{trials} trials" for trials in sizes), f"{sizes[-1]} / {sizes[0]}", "grows as n^")
        for column in ("GPU policy", *columns):
            table.add_column(column, justify="left" if column == "GPU policy" else "right")
        for policy, taken in self.taken.items():
            seconds = {trials: taken[trials][kind].total_s for trials in (sizes[0], sizes[-1])}
            power = exponent(seconds)
            cells = [f"{1e3 * taken[trials][kind].total_s:.1f}" for trials in sizes]
            grown = f"{seconds[sizes[-1]] / max(seconds[sizes[0]], 1e-9):.1f}"
            table.add_row(policy, *cells, grown, "" if power is None else f"{power:.1f}")
        return table

    def _parts(self) -> Table:
        """Return a row per policy and kind: the parts of a decision about the most trials, and what it is about."""
        largest = list(next(iter(self.taken.values())))[-1]
        title = f"of which, with {largest} trials (ms), and what is decided on; measured on {self.machine}"
        table = Table(title=title, title_justify="left")
        parts = ("report taken in", "GPU policy", "its decision taken in", f"plan of {NETWORK_POLICY}")
        for column in ("GPU policy", "after", *parts, "trials with GPUs", "that use the network", "whose GPUs change"):
            table.add_column(column)
        for policy, taken in self.taken.items():
            for kind, title in KINDS.items():
                one = taken[largest][kind]
                times = (f"{1e3 * seconds:.1f}" for seconds in (one.report_s, one.gpu_s, one.taken_in_s, one.network_s))
                table.add_row(policy, title, *times, *(f"{count:g}" for count in (one.running, one.loading, one.changed)))
        return table


COMMITTED = Committed("bench", "experiments/decisions.md", LevelsStudy.from_json)
