"""Runs GPU policies on simulated clusters: jobs arrive, a tuner judges them, nodes fail, the GPU scheduler does the rest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from statistics import fmean
from typing import Any

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import InputError
from beamer.gpu.decider import by_policy
from beamer.gpu.driver import SearchDriver
from beamer.gpu.model import Node, Report
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.tuners import NoTuner, Tuner
from beamer.studies.events import Event, StageRegistered, StudyRegistered, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.model import Rung, TrialStatus, trial_key


@dataclass(frozen=True)
class Arrival:
    """A trial that asks for GPUs at a time."""

    at_s: float
    """When it asks, seconds."""
    study: str
    """The study's name."""
    name: str
    """The trial's name."""
    job: SimulatedJob
    """What it runs."""
    stage: str | None = None
    """The stage that waits for its end, registered with its first trial; None: none does, or the tuner says which."""
    rungs: tuple[Rung, ...] = ()
    """The rungs that its study declares."""

    @property
    def key(self) -> str:
        """The trial's key."""
        return trial_key(self.study, self.name)


@dataclass(frozen=True)
class Failure:
    """A node is lost at a time, and comes back at another."""

    at_s: float
    node: str
    back_s: float = math.inf


@dataclass(frozen=True)
class JobRun:
    """What became of a trial. started_s, ended_s: None if it never did. gpu_s: GPU-seconds held; lost_s: on changes."""

    key: str
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    status: TrialStatus
    gpu_s: float
    lost_s: float
    reports: tuple[Report, ...] = field(repr=False, default=())

    @property
    def jct_s(self) -> float:
        """From submission to end, infinite without one."""
        return math.inf if self.ended_s is None else self.ended_s - self.submitted_s

    def reached_s(self, loss: float) -> float:
        """Return when it first reported at most `loss`, infinity if it never did."""
        return next((report.at_s for report in self.reports if report.loss <= loss), math.inf)


@dataclass(frozen=True)
class GpuRun:
    """A policy's run."""

    policy: str
    jobs: tuple[JobRun, ...]
    end_s: float

    @property
    def mean_jct_s(self) -> float:
        """Mean job completion time; not a number without jobs."""
        return fmean(job.jct_s for job in self.jobs) if self.jobs else math.nan

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end."""
        return max(job.submitted_s + job.jct_s for job in self.jobs) - min(job.submitted_s for job in self.jobs)


class _Simulation:
    def __init__(
        self, policy: GpuPolicy[Any], nodes: Sequence[Node], arrivals: Sequence[Arrival], tuner: Tuner, seed: int
    ) -> None:
        self.policy = policy
        self.engine = SimulatedCluster(nodes, {arrival.key: arrival.job for arrival in arrivals}, self._target)
        self.driver = SearchDriver(by_policy(self.policy, seed, live=False), self.engine, tuner, on_event=self._note)
        self.submitted: dict[str, float] = {}
        self.ended: dict[str, TrialEnded] = {}

    def _target(self, key: str) -> int:
        job = self.driver.ledger.job(key)
        assert job, "it is granted GPUs"
        return job.request.iterations

    def _note(self, event: Event) -> None:
        if isinstance(event, TrialEnded):
            self.ended[event.trial] = event

    def submit(self, arrival: Arrival) -> None:
        """Have a trial ask for GPUs."""
        submit(self.driver, arrival, self.engine.now)
        self.submitted[arrival.key] = self.engine.now

    def step(self) -> float | None:
        """Let scheduler and tuner act until neither has anything left to do at this instant."""
        now = self.engine.now
        while (wake_s := self.driver.step(now)) is not None and wake_s <= now:
            pass
        return wake_s

    def results(self) -> GpuRun:
        """Return what became of every trial."""
        now, engine = self.engine.now, self.engine
        runs = job_runs(self.driver, self.submitted, engine.started_s, engine.lost_s, now)
        return GpuRun(self.policy.name, runs, now)


def submit(driver: SearchDriver, arrival: Arrival, now: float) -> None:
    """Have a trial ask for GPUs, with its study and its stage if it is their first."""
    request = arrival.job.request
    driver.take(StudyRegistered(now, arrival.study, rungs=arrival.rungs))
    if arrival.stage is not None:
        driver.take(StageRegistered(now, arrival.study, arrival.stage))
        driver.take(TrialRegistered(now, arrival.study, arrival.name, request.iterations))
        driver.take(TargetSet(now, arrival.key, request.iterations, arrival.stage))
    driver.submit(arrival.study, arrival.name, request, now)


def job_runs(
    driver: SearchDriver,
    submitted: Mapping[str, float],
    started_s: Mapping[str, float],
    lost_s: Mapping[str, float],
    now: float,
) -> tuple[JobRun, ...]:
    """Return what became of the trials that were submitted, each at a time."""
    runs = []
    for key, at_s in submitted.items():
        trial, job = driver.tracker.trials[key], driver.ledger.job(key) or driver.ledger.ended[key]
        held_s = job.gpu_seconds_at(now)
        lost = lost_s.get(key, 0.0)
        runs.append(JobRun(key, at_s, started_s.get(key), trial.ended_s, trial.status, held_s, lost, job.reports))
    return tuple(runs)


def simulate_gpus(
    policy: GpuPolicy[Any],
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    tuner: Tuner | None = None,
    failures: Sequence[Failure] = (),
    seed: int = 0,
    until_s: float = math.inf,
) -> GpuRun:
    """Run trials on nodes under a policy until all have ended, the tuner is done, nothing moves any more or `until_s`.

    Nothing moves any more where no job runs and the policy, asked again at the time it wished, starts none.
    Raises `InputError` for two trials of one key, and for the failure of a node that is not there, then or at all.
    """
    _check(nodes, arrivals, failures)
    sim = _Simulation(policy, nodes, arrivals, tuner or NoTuner(), seed)
    engine = sim.engine
    node = {one.name: one for one in nodes}
    queue = sorted(arrivals, key=lambda arrival: arrival.at_s)[::-1]
    changes = [(failure.at_s, failure.node, True) for failure in failures]
    changes += [(failure.back_s, failure.node, False) for failure in failures if failure.back_s < math.inf]
    heapify(changes)
    wake_s: float | None = None
    while not sim.driver.tuner.done:
        now = min(
            engine.next_s(),
            queue[-1].at_s if queue else math.inf,
            changes[0][0] if changes else math.inf,
            math.inf if wake_s is None or len(sim.ended) == len(sim.submitted) else wake_s,
        )
        if now > until_s or now == math.inf:
            break
        asked_only = engine.next_s() == math.inf and not queue and not changes
        engine.advance(now)
        while changes and changes[0][0] <= now:
            _, name, lost = heappop(changes)
            if lost:
                engine.lose(name)
            else:
                engine.join(node[name])
        while queue and queue[-1].at_s <= now:
            sim.submit(queue.pop())
        wake_s = sim.step()
        if asked_only and engine.next_s() == math.inf:
            break
    return sim.results()


def check_arrivals(arrivals: Sequence[Arrival]) -> None:
    """Check that trials can be told apart. Raises `InputError`."""
    keys: set[str] = set()
    for arrival in arrivals:
        if arrival.key in keys:
            raise InputError("arrivals", arrival.key, "a key that no other trial has")
        keys.add(arrival.key)


def _check(nodes: Sequence[Node], arrivals: Sequence[Arrival], failures: Sequence[Failure]) -> None:
    check_arrivals(arrivals)
    names = [node.name for node in nodes]
    back_s = dict.fromkeys(names, -math.inf)
    for failure in sorted(failures, key=lambda failure: failure.at_s):
        if failure.node not in names:
            raise InputError("failure.node", failure.node, f"one of {', '.join(names)}")
        if not failure.at_s > back_s[failure.node]:
            raise InputError(
                "failure.at_s", failure.at_s, f"a time after {back_s[failure.node]:g} s, until when the node is gone"
            )
        if not failure.back_s > failure.at_s:
            raise InputError("failure.back_s", failure.back_s, f"a time after {failure.at_s:g} s")
        back_s[failure.node] = failure.back_s
