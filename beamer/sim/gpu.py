"""Runs GPU policies on simulated clusters: jobs arrive, a tuner judges them, nodes fail, the GPU scheduler does the rest."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import InputError
from beamer.gpu.decider import by_policy
from beamer.gpu.driver import SearchDriver
from beamer.gpu.model import Node, Report
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.tuners import NoTuner, Tuner
from beamer.studies.events import StageRegistered, StudyRegistered, TargetSet, TrialRegistered
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


def submit(driver: SearchDriver, arrival: Arrival, now: float) -> None:
    """Have a trial ask for GPUs, with its study and its stage if it is their first."""
    request = arrival.job.request
    driver.take(StudyRegistered(now, arrival.study, rungs=arrival.rungs))
    if arrival.stage is not None:
        driver.take(StageRegistered(now, arrival.study, arrival.stage))
        driver.take(TrialRegistered(now, arrival.study, arrival.name, request.iterations))
        driver.take(TargetSet(now, arrival.key, request.iterations, arrival.stage))
    driver.submit(arrival.study, arrival.name, request, now)


def target_of(driver: SearchDriver, key: str) -> int:
    """Return the iteration after which a job that is granted GPUs is to end."""
    job = driver.ledger.job(key)
    assert job, "it is granted GPUs"
    return job.request.iterations


def settle(driver: SearchDriver, now: float) -> float | None:
    """Let scheduler and tuner act until neither has anything left to do at this instant; return when the next step is due."""
    while (wake_s := driver.step(now)) is not None and wake_s <= now:
        pass
    return wake_s


def job_runs(
    driver: SearchDriver, started_s: Mapping[str, float], lost_s: Mapping[str, float], now: float
) -> tuple[JobRun, ...]:
    """Return what became of the trials, in the order in which they were submitted."""
    runs = []
    for key, trial in driver.tracker.trials.items():
        job = driver.ledger.job(key) or driver.ledger.ended[key]
        held_s, lost = job.gpu_seconds_at(now), lost_s.get(key, 0.0)
        runs.append(JobRun(key, job.submitted_s, started_s.get(key), trial.ended_s, trial.status, held_s, lost, job.reports))
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
    jobs = {arrival.key: arrival.job for arrival in arrivals}
    engine = SimulatedCluster(nodes, jobs, lambda key: target_of(driver, key))
    driver = SearchDriver(by_policy(policy, seed, live=False), engine, tuner or NoTuner())
    due = _due(engine, driver, nodes, arrivals, failures)
    wake_s: float | None = None
    while not driver.tuner.done:
        if len(driver.ledger.ended) == len(driver.tracker.trials):
            wake_s = None
        now = min(engine.next_s(), due[0][0] if due else math.inf, math.inf if wake_s is None else wake_s)
        if now > until_s or now == math.inf:
            break
        asked_only = engine.next_s() == math.inf and not due
        engine.advance(now)
        while due and due[0][0] <= now:
            due.popleft()[1]()
        wake_s = settle(driver, engine.now)
        if asked_only and engine.next_s() == math.inf:
            break
    return GpuRun(policy.name, job_runs(driver, engine.started_s, engine.lost_s, engine.now), engine.now)


def _due(
    engine: SimulatedCluster,
    driver: SearchDriver,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    failures: Sequence[Failure],
) -> deque[tuple[float, Callable[[], None]]]:
    """Return what happens from outside and when, in order: at one time, nodes come and go before trials arrive."""
    node = {one.name: one for one in nodes}
    changes = [(failure.at_s, failure.node, True) for failure in failures]
    changes += [(failure.back_s, failure.node, False) for failure in failures if failure.back_s < math.inf]
    due: list[tuple[float, Callable[[], None]]] = [
        (at_s, partial(engine.lose, name) if is_lost else partial(engine.join, node[name]))
        for at_s, name, is_lost in sorted(changes)
    ]
    due += [(arrival.at_s, partial(submit, driver, arrival, arrival.at_s)) for arrival in arrivals]
    return deque(sorted(due, key=lambda one: one[0]))


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
