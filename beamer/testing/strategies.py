"""Hypothesis strategies for the input of policies, allocators and the simulator, edge cases included."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from hypothesis import strategies as st

from beamer.network.collectives import PARAMETER_SERVER
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.network.policies import Order, Tier
from beamer.network.snapshot import CoflowColumns, Snapshot
from beamer.network.views import JobView, LaterRung, StageView, StudyView
from beamer.sim.traces import Coflow, Trace
from beamer.studies.model import Role, Worker, trial_key
from beamer.testing.fabrics import star, two_spines
from beamer.testing.loads import SyntheticJob
from beamer.testing.reference.network import Flow
from beamer.workloads.asynchronous import Asha, AsynchronousPlan, IndependentTrials, LossCurves, MedianStopping
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan

HUGE_BYTES = 10**15
HUGE_BPS = 10**17  # on which the huge take moments, so that policies with timers do not run for ever

FABRICS = (star(3), two_spines(1))
FAST_FABRICS = (star(3, HUGE_BPS), two_spines(1, HUGE_BPS))

_sizes = (0, 1, 1448, 100_000, 100_000, 600_000)
_computing = st.sampled_from((0.0, 0.01, 0.5, 0.5))
_weights = st.sampled_from((0.5, 1.0, 1.0, 3.0))
_capacities = st.sampled_from((1.0, 2e7, 2e7, 1e12))  # bit/s
_uses = st.sampled_from((1.0, 1.0, 1.0 + 0.0218, 0.0218, 0.1))
_bits = st.sampled_from((0.0, 8.0, 3e6, 3e6, 8e15))


@st.composite
def job_specs(draw: st.DrawFn, fabric: Fabric, name: str) -> JobSpec:
    """Draw a job of one to four processes, several on one host at times, that may have nothing to send."""
    hosts = draw(st.lists(st.sampled_from([host.name for host in fabric.hosts]), min_size=1, max_size=4))
    kinds = ["ring", "fsdp", "all-to-all"]
    kinds += ["halving-doubling"] if len(hosts) in (1, 2, 4) else []
    kinds += [PARAMETER_SERVER] if len(hosts) > 1 else []
    collective = draw(st.sampled_from(kinds))
    roles = [Role.SERVER if collective == PARAMETER_SERVER and i == 0 else Role.WORKER for i in range(len(hosts))]
    return JobSpec(
        name=name,
        workers=tuple(Worker(rank, host, role) for rank, (host, role) in enumerate(zip(hosts, roles, strict=True))),
        iterations=draw(st.integers(1, 4)),
        sync_bytes=draw(st.sampled_from((*_sizes, HUGE_BYTES) if fabric.links[0].rate_bps == HUGE_BPS else _sizes)),
        collective=collective,
        compute_s=draw(_computing),
        overlap=draw(st.sampled_from((0.0, 0.0, 0.5, 1.0))),
    )


@dataclass(frozen=True)
class Situation:
    """Studies on a fabric, and the coflows that their running jobs have in flight.

    flying: by running job, None without a coflow in flight, else the share that it has left and the time of its release.
    """

    fabric: Fabric
    studies: tuple[StudyView, ...]
    flying: tuple[tuple[float, float] | None, ...] = ()

    def snapshot(self) -> Snapshot:
        """Return the columns that a policy sees."""
        still = Snapshot.of(self.fabric, self.studies)
        jobs = still.jobs
        left = np.array([1.0 if flight is None else flight[0] for flight in self.flying])
        coflows = CoflowColumns(
            in_flight=np.array([flight is not None for flight in self.flying], np.bool_),
            released_s=np.array(
                [at if flight is None else flight[1] for flight, at in zip(self.flying, jobs.started_s.tolist(), strict=True)]
            ),
            sent_bits=(1 - left) * jobs.size_bits,
            left_bits=left * jobs.size_bits,
            longest_bits=left * jobs.longest_bits,
            seconds=left[jobs.owner] * jobs.seconds,
            later=np.zeros(len(jobs.seconds)),
        )
        return replace(still, coflows=coflows)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Draw up to four studies of up to two stages of up to three jobs, some with later rungs, some with nothing running.

    Some stages are trials that no stage waits for, each by itself.
    """
    fabric = draw(st.sampled_from((*FABRICS, *FABRICS, *FAST_FABRICS)))
    studies: list[StudyView] = []
    flying: list[tuple[float, float] | None] = []
    flights = st.none() | st.tuples(st.sampled_from((0.0, 0.1, 1.0)), st.sampled_from((2.5, 3.0, 9.0)))
    classes = st.none() | st.integers(0, 7)
    for s in range(draw(st.integers(0, 4))):
        stages: list[StageView] = []
        for g in range(draw(st.integers(0, 2))):
            jobs: list[JobView] = []
            for j in range(draw(st.integers(0, 3))):
                spec = draw(job_specs(fabric, f"trial{g}{j}"))
                remaining, plane = draw(st.integers(0, spec.iterations)), draw(st.integers(0, fabric.planes - 1))
                key = trial_key(f"study{s}", spec.name)
                jobs.append(JobView(key, spec, remaining, plane, draw(st.sampled_from((0.0, 1.0, 2.5))), draw(classes)))
                flying.append(draw(flights))
            if draw(st.integers(0, 2)):
                stages.append(StageView(f"rung{g}", tuple(jobs), draw(st.sampled_from((0.0, 2.5)))))
            else:
                stages += [StageView(f"trial:{job.spec.name}", (job,), math.inf, barrier=False) for job in jobs]
        later = tuple(
            LaterRung(f"later{r}", draw(st.integers(1, 4)), draw(st.integers(1, 50))) for r in range(draw(st.integers(0, 2)))
        )
        studies.append(StudyView(f"study{s}", draw(_weights), tuple(stages), later))
    return Situation(fabric, tuple(studies), tuple(flying))


def snapshots() -> st.SearchStrategy[Snapshot]:
    """Draw what policies decide on, see `situations`."""
    return situations().map(Situation.snapshot)


@st.composite
def scenarios(draw: st.DrawFn, fabrics: Sequence[Fabric] = (*FABRICS, *FABRICS, *FAST_FABRICS)) -> Scenario:
    """Draw a scenario of one to three studies of one to three stages on one of these small fabrics."""
    fabric = draw(st.sampled_from(fabrics))
    studies: list[StudyPlan] = []
    for s in range(draw(st.integers(1, 3))):
        stages = tuple(
            StagePlan(f"rung{g}", tuple(draw(job_specs(fabric, f"trial{j}")) for j in range(draw(st.integers(1, 3)))))
            for g in range(draw(st.integers(1, 3)))
        )
        studies.append(StudyPlan(f"study{s}", draw(_weights), draw(st.sampled_from((0.0, 0.0, 0.3))), stages))
    return Scenario(
        "drawn",
        fabric,
        seed=0,
        queues=draw(st.integers(1, 8)),
        studies=tuple(studies),
        start_up_s=draw(st.sampled_from((0.0, 0.0, 0.4))),
    )


@st.composite
def asynchronous_scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a scenario of one or two searches without barriers, one to three slots each, beside at most one other study."""
    beside = draw(scenarios())
    plans = tuple(
        AsynchronousPlan(
            f"search{s}",
            draw(
                st.sampled_from(
                    (
                        Asha(trials=5, eta=2, iterations=1, halvings=2),
                        Asha(trials=9, completed=1, eta=2, iterations=2, halvings=1),
                        MedianStopping(trials=4, iterations=2, reports=2, fewest=1),
                        IndependentTrials(trials=3, iterations=3),
                    )
                )
            ),
            tuple(draw(job_specs(beside.fabric, "slot")) for _ in range(draw(st.integers(1, 3)))),
            LossCurves(f"drawn/{s}"),
            draw(_weights),
            draw(st.sampled_from((0.0, 0.0, 0.3))),
        )
        for s in range(draw(st.integers(1, 2)))
    )
    return replace(beside, studies=beside.studies[: draw(st.integers(0, 1))], asynchronous=plans)


@st.composite
def traces(draw: st.DrawFn) -> tuple[Trace, float]:
    """Draw up to five coflows of up to four flows and a rate for them, with ties, empty ones, and flows back to their own port.

    The rate, in bit/s, is such that the largest take about a second.
    """
    ports = draw(st.integers(1, 4))
    large, rate_bps = draw(st.sampled_from(((3e7, 1e9), (3e7, 1e9), (float(HUGE_BYTES), 1e16))))
    sizes = st.sampled_from((0.0, 1.0, 2e6, large, large))
    flow = st.tuples(st.integers(0, ports - 1), st.integers(0, ports - 1), sizes)
    drawn = draw(st.lists(st.tuples(st.sampled_from((0.0, 0.0, 0.3, 2.0)), st.lists(flow, max_size=4)), max_size=5))
    coflows = tuple(_coflow(f"c{i}", release_s, flows) for i, (release_s, flows) in enumerate(drawn))
    return Trace(ports, coflows), rate_bps


@st.composite
def traces_without_ties(draw: st.DrawFn) -> tuple[Trace, float]:
    """Draw one to six coflows, of which no two have anything in common but ports, and a rate for them in bit/s."""
    rng = Random(draw(st.integers(0, 2**32)))
    ports = rng.randint(2, 4)
    coflows: list[Coflow] = []
    for i in range(rng.randint(1, 6)):
        flows = [(rng.randrange(ports), rng.randrange(ports), 10 ** rng.uniform(5, 7.8)) for _ in range(rng.randint(1, 5))]
        coflows.append(_coflow(f"c{i}", rng.uniform(0, 1), flows))
    return Trace(ports, tuple(coflows)), 1e9


def _coflow(name: str, release_s: float, flows: Sequence[tuple[int, int, float]]) -> Coflow:
    return Coflow(
        name,
        release_s,
        np.array([src for src, _, _ in flows], np.int64),
        np.array([dst for _, dst, _ in flows], np.int64),
        np.array([size for _, _, size in flows], np.float64),
    )


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[SyntheticJob], list[float]]:
    """Draw up to six coflows of up to four flows on one to five links of very different capacities (bit/s)."""
    capacity = draw(st.lists(_capacities, min_size=1, max_size=5))
    usage = st.dictionaries(st.integers(0, len(capacity) - 1), _uses, max_size=4)
    flow = st.builds(Flow, usage, _bits)
    loads = st.lists(flow, max_size=4).map(lambda flows: SyntheticJob((tuple(flows),)))
    return draw(st.lists(loads, max_size=6)), capacity


@st.composite
def orders(draw: st.DrawFn, jobs: int) -> Order:
    """Draw an order of jobs named `0`, `1`, ..."""
    positions = draw(st.permutations(range(jobs)))
    tiers: list[Tier] = []
    while positions:
        width = draw(st.integers(1, len(positions)))
        tiers.append(Tier(tuple(str(i) for i in positions[:width]), draw(st.booleans())))
        positions = positions[width:]
    return tuple(tiers)
