"""Both levels in one simulation: a GPU policy decides which trials run where, a network policy whose coflows go first.

One tracker feeds both. How long an iteration takes follows from what its trial was given and from how the network serves it;
the GPU policy sees that in the speeds that jobs report.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import numpy as np

from beamer.errors import InputError, nearest
from beamer.gpu.decider import by_policy
from beamer.gpu.driver import SearchDriver
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.tuners import HalvingTuner, Tuner, Tuners
from beamer.joint.parts import NO_PARTS, JointParts
from beamer.joint.wrapping import network_aware
from beamer.network.allocation import Allocator, Classes, check_pair
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import NetworkPolicy
from beamer.sim.gpu import Arrival, JobRun, check_arrivals, job_runs, settle, submit, target_of
from beamer.sim.network_level import Assumptions, NetworkLevel
from beamer.sim.networked_engine import NetworkedEngine
from beamer.sim.results import RunResult, StageResult
from beamer.studies.model import split_key
from beamer.studies.tracker import Tracker
from beamer.workloads.joint import JointScenario


@dataclass(frozen=True)
class JointRun:
    """A run under two policies, in seconds after its start.

    jobs: what became of each trial. stages: those that are over. gpus: of all nodes. link_bytes: carried by each directed link.
    """

    gpu_policy: str
    network_policy: str
    jobs: tuple[JobRun, ...]
    stages: tuple[StageResult, ...]
    end_s: float
    gpus: int
    link_bytes: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean_sct_s(self) -> float:
        """Mean stage completion time; not a number without stages."""
        return float(np.mean([stage.sct_s for stage in self.stages])) if self.stages else float("nan")

    @property
    def p95_sct_s(self) -> float:
        """95th percentile of the stage completion times; not a number without stages."""
        return float(np.percentile([stage.sct_s for stage in self.stages], 95)) if self.stages else float("nan")

    @property
    def timeline(self) -> RunResult:
        """Its stages as the run of one policy, to be drawn."""
        return RunResult(f"{self.gpu_policy} and {self.network_policy}", self.stages, ())

    @property
    def mean_jct_s(self) -> float:
        """Mean job completion time, infinite if a trial has not ended."""
        return float(np.mean([job.jct_s for job in self.jobs]))

    @property
    def search_s(self) -> dict[str, float]:
        """By study, from the first submission of a trial to the end of the last; infinite if one has not ended."""
        studies: dict[str, list[JobRun]] = {}
        for job in self.jobs:
            studies.setdefault(split_key(job.key)[0], []).append(job)
        return {
            study: max(job.submitted_s + job.jct_s for job in jobs) - min(job.submitted_s for job in jobs)
            for study, jobs in studies.items()
        }

    @property
    def mean_search_s(self) -> float:
        """Mean of the searches' times, infinite if one is not over."""
        return float(np.mean(list(self.search_s.values())))

    @property
    def network_bytes(self) -> float:
        """Bytes that links have carried, counted on each link of a path."""
        return sum(self.link_bytes.values())

    @property
    def idle_share(self) -> float:
        """The share of all GPU-seconds, until the end, that no trial held."""
        return 1.0 - sum(job.gpu_s for job in self.jobs) / (self.gpus * self.end_s) if self.end_s else 0.0


class _Simulation:
    def __init__(
        self,
        scenario: JointScenario,
        level: NetworkLevel,
        tracker: Tracker,
        arrivals: Sequence[Arrival],
        policy: GpuPolicy[Any],
        tuner: Tuner,
        make_engine: Callable[..., NetworkedEngine],
    ) -> None:
        self._level = level
        self._trials = len(arrivals)
        self._is_due = self._is_asked = False
        self._woken_s = 0.0
        jobs = {arrival.key: arrival.job for arrival in arrivals}
        self.engine = make_engine(
            level, scenario.nodes, jobs, lambda key: target_of(self.driver, key), scenario.report_s, self._due
        )
        decides = by_policy(policy, scenario.seed, live=False)
        self.driver: SearchDriver = SearchDriver(decides, self.engine, tuner, tracker=tracker)
        for arrival in arrivals:
            level.after(arrival.at_s, partial(self._submit, arrival))

    def run_to_end(self) -> None:
        """Run until every trial has ended, the tuner is done, or nothing moves any more."""
        level = self._level
        while not (self._is_over or level.is_idle):
            for key in level.advance():
                self.engine.finish(key)
            level.act()
            if self._is_due:
                self._step()
            level.decide()

    @property
    def _is_over(self) -> bool:
        return len(self.driver.ledger.ended) == self._trials or self.driver.tuner.done

    def _submit(self, arrival: Arrival) -> None:
        submit(self.driver, arrival, self._level.now_s)
        self._due()

    def _due(self) -> None:
        self._is_due = True

    def _step(self) -> None:
        """Let scheduler and tuner act until neither has anything left to do at this instant."""
        now, asked_only = self._level.now_s, self._is_asked
        self._is_due = self._is_asked = False
        wake_s = settle(self.driver, now)
        # A policy that starts nothing when it is asked at its own wish, while nothing runs or comes, starts nothing any more.
        if wake_s is not None and wake_s != self._woken_s and not (asked_only and self._level.is_idle):
            self._woken_s = wake_s
            self._level.after(wake_s - now, self._wake)

    def _wake(self) -> None:
        self._is_asked = self._level.is_idle
        self._due()


def simulate_scenario(
    scenario: JointScenario,
    gpu: GpuPolicy[Any],
    network: NetworkPolicy[Any],
    assumptions: Assumptions | None = None,
    allocator: Allocator | None = None,
    parts: JointParts = NO_PARTS,
    make_engine: Callable[..., NetworkedEngine] = NetworkedEngine,
) -> JointRun:
    """Run a scenario's searches, judged by successive halving, under a policy of each level. Raises as `simulate_joint`."""
    arrivals = [
        Arrival(search.arrival_s, search.name, name, job, rungs=search.rungs)
        for search in scenario.searches
        for name, job in search.trials.items()
    ]
    tuner = Tuners([HalvingTuner(search.name, search.rungs) for search in scenario.searches])
    return simulate_joint(scenario, arrivals, tuner, gpu, network, assumptions, allocator, parts, make_engine)


def simulate_joint(
    scenario: JointScenario,
    arrivals: Sequence[Arrival],
    tuner: Tuner,
    gpu: GpuPolicy[Any],
    network: NetworkPolicy[Any],
    assumptions: Assumptions | None = None,
    allocator: Allocator | None = None,
    parts: JointParts = NO_PARTS,
    make_engine: Callable[..., NetworkedEngine] = NetworkedEngine,
) -> JointRun:
    """Run trials where a scenario's searches would run, judged by a tuner, under a policy of each level.

    allocator: the scenario's classes if None. parts: of what each level is told of the other. make_engine: given the arguments
    of `NetworkedEngine`.
    Raises `InputError` for nodes that are no hosts, two trials of one key, jobs that may run on a part of what they need or do
    not say what they synchronise, a network policy that the allocator cannot carry out, and assumptions that cannot hold.
    """
    fabric = scenario.fabric
    for i, node in enumerate(scenario.nodes):
        if node.name not in fabric.host:
            raise InputError(f"nodes[{i}].name", node.name, nearest(node.name, fabric.host))
    check_arrivals(arrivals)
    assumed = assumptions or Assumptions()
    chosen = allocator or Classes(queues=scenario.queues)
    check_pair(network, chosen)
    ledger = NetworkLedger(fabric)
    tracker = Tracker(GpuLedger(), ledger)
    level = NetworkLevel(tracker, ledger, network, Random(scenario.seed), assumed, chosen, parts)
    run = _Simulation(scenario, level, tracker, arrivals, network_aware(gpu, fabric, parts), tuner, make_engine)
    run.run_to_end()
    now = level.now_s
    carried = zip(fabric.links, level.carried_bits().tolist(), strict=True)
    return JointRun(
        gpu_policy=gpu.name,
        network_policy=network.name,
        jobs=job_runs(run.driver, run.engine.started_s, run.engine.lost_s, now),
        stages=tuple(
            StageResult(study.name, stage.name, stage.registered_s, stage.ended_s)
            for study in tracker.studies.values()
            for stage in study.stages.values()
            if stage.ended_s is not None
        ),
        end_s=now,
        gpus=sum(node.gpus for node in scenario.nodes),
        link_bytes={f"{link.src}-{link.dst}": bits / 8 for link, bits in carried},
    )
