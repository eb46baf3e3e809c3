"""Scenarios and traces as instances of the bounds, and the bounds that their results are compared with.

Completion times are reported as plain means, so that all weights are 1 here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from beamer.bounds.instance import Instance
from beamer.bounds.jobs import IteratingJobs
from beamer.bounds.selection import BOUNDS, JOB_BOUNDS, Bounds, bounds, study_bounds
from beamer.bounds.study import chained
from beamer.network.arrays import Floats
from beamer.network.fabric import Fabric
from beamer.network.fluid.flows import Routes
from beamer.network.footprint import phase_loads
from beamer.network.job import JobSpec
from beamer.sim.replay import big_switch
from beamer.sim.traces import Trace
from beamer.workloads.scenario import Scenario, StagePlan

MAX_ORDERED = 40  # Beside a simulation, `lp-ov` takes seconds for so many items; its programme grows with their square.
ALONE = "alone"


class _Effort(NamedTuple):
    """What a bound may cost beside a simulation: seconds. Above so many studies or jobs it is left out."""

    studies: int
    jobs: int
    programmes: int


EFFORT = {"barrier": _Effort(8, 100, 60), "stage-order": _Effort(6, 80, 120)}


def trace_bounds(trace: Trace, rate_bps: float) -> Bounds:
    """Return the bounds on the sum of the coflow completion times of `trace` that take no longer than its replay.

    Coflows are items on a big switch: port p's uplink is link p, its downlink link `ports` + p.
    """
    _, jobs = big_switch(trace, rate_bps)
    count = len(jobs.key)
    load = csr_array((jobs.seconds, jobs.link, jobs.first), shape=(count, 2 * trace.ports))
    return bounds(Instance(np.ones(count), load, jobs.iteration_s, jobs.started_s), _affordable(count))


def scenario_instance(scenario: Scenario, acknowledgements: bool = True) -> tuple[tuple[str, ...], Instance]:
    """Return each stage's study, and the stages as items that are released when their study arrives, for `study_bounds`.

    Which plane a job takes depends on when it starts, so on the schedule: loads are those that a job has on any plane. The
    links are the fabric's; where there are several planes, also the sum of each switch's links to other switches and the sum
    of those from them, as nothing gets past all of these. Where cables fail, of the links only those of hosts count, which no
    other path avoids; of a stage that kills its last jobs only the time of the others does. acknowledgements: as in
    the simulator's assumptions.
    """
    demands = _Demands(scenario.fabric, acknowledgements, bool(scenario.failures))
    names = tuple(study.name for study in scenario.studies for _ in study.stages)
    rows = [_stage(stage, demands, scenario.start_up_s) for study in scenario.studies for stage in study.stages]
    load, head, tail = (np.stack([row[part] for row in rows]) for part in (0, 1, 2))
    used = load.any(axis=0)
    return names, Instance(
        weight=np.ones(len(rows)),
        load=load[:, used],
        critical_s=np.array([row[3] for row in rows]),
        release_s=np.array([study.arrival_s for study in scenario.studies for _ in study.stages]),
        head_s=head[:, used],
        tail_s=tail[:, used],
    )


def scenario_jobs(scenario: Scenario, acknowledgements: bool = True) -> IteratingJobs:
    """Return the jobs of a scenario for the bounds that need them, studies as items, released as they arrive; links as above.

    As if the first study arrived at 0 and jobs needed no start-up.
    """
    demands = _Demands(scenario.fabric, acknowledgements, bool(scenario.failures))
    placed = [
        (item, number, job)
        for item, study in enumerate(scenario.studies)
        for number, stage in enumerate(study.stages)
        for job in stage.jobs
    ]
    of = [demands.of(job) for _, _, job in placed]
    load = np.stack([demand.seconds for demand in of])
    return IteratingJobs(
        weight=np.ones(len(scenario.studies)),
        item=np.array([item for item, _, _ in placed]),
        stage=np.array([number for _, number, _ in placed]),
        iterations=np.array([job.iterations for _, _, job in placed]),
        lead_s=np.array([_lead_s(job) for _, _, job in placed]),
        period_s=np.array([_period_s(job, demand) for (_, _, job), demand in zip(placed, of, strict=True)]),
        load=load[:, load.any(axis=0)],
        release_s=np.array([study.arrival_s for study in scenario.studies])
        - min(study.arrival_s for study in scenario.studies),
    )


def scenario_bounds(scenario: Scenario, acknowledgements: bool = True) -> Bounds:
    """Return the bounds on the sum of the stage completion times of `scenario` that take seconds at most.

    `barrier` and `stage-order` are among them where studies and jobs are few and all jobs run to their end. Where studies wait
    for others, their releases are the schedule's, and only what each takes alone is a bound. `mean_s` bounds the mean over
    stages.
    """
    names, stages = scenario_instance(scenario, acknowledgements)
    if any(study.after is not None for study in scenario.studies):
        inapplicable = dict.fromkeys((*BOUNDS, *JOB_BOUNDS), "studies that wait for others are released by the schedule")
        return Bounds({ALONE: chained(names, stages).floors_s()}, inapplicable, float(stages.weight.sum()))
    found = study_bounds(names, stages, _affordable(len(scenario.studies)))
    reasons = {name: reason for name in JOB_BOUNDS if (reason := _no_bound(name, scenario)) is not None}
    values = dict(found.values)
    if len(reasons) < len(JOB_BOUNDS):
        jobs = scenario_jobs(scenario, acknowledgements)
        values |= {name: JOB_BOUNDS[name](jobs, EFFORT[name].programmes) for name in JOB_BOUNDS if name not in reasons}
    return replace(found, values=values, inapplicable={**found.inapplicable, **reasons})


def _no_bound(name: str, scenario: Scenario) -> str | None:
    """Return why a bound that needs the jobs does not apply to `scenario`, or takes too long; None if it is of use."""
    if any(stage.finish is not None for study in scenario.studies for stage in study.stages):
        return "which jobs a stage kills, and when, is the schedule's choice"
    studies, jobs = len(scenario.studies), sum(len(stage.jobs) for study in scenario.studies for stage in study.stages)
    most = EFFORT[name]
    if studies > most.studies or jobs > most.jobs:
        return f"got {studies} studies of {jobs} jobs, expected at most {most.studies} of {most.jobs}"
    return None


def _affordable(items: int) -> Sequence[str]:
    return [name for name in BOUNDS if name != "lp-ov" or items <= MAX_ORDERED]


@dataclass(frozen=True, eq=False)
class _Demand:
    """What one iteration of a job needs at least, whatever its plane.

    seconds [P]: of each link alone. first_s, after_s [P]: from the release of the coflow to the first use of the link, from
    the last use to the end of the coflow; infinite where unused. gamma_s: of the synchronisation, phase after phase.
    """

    seconds: Floats
    first_s: Floats
    after_s: Floats
    gamma_s: float


class _Demands:
    """The demands of jobs on a fabric, each computed once."""

    def __init__(self, fabric: Fabric, acknowledgements: bool, rerouted: bool) -> None:
        self._fabric = fabric
        inner = np.array([link.src in fabric.switch and link.dst in fabric.switch for link in fabric.links], np.bool_)
        self._avoidable = inner & rerouted
        self._routes = Routes(fabric, acknowledgements)
        self._rate = np.array([float(link.rate_bps) for link in fabric.links])
        self._cuts = [] if rerouted else _cuts(fabric)
        self._known: dict[JobSpec, _Demand] = {}

    def of(self, spec: JobSpec) -> _Demand:
        """Return the demand of a job."""
        kind = replace(spec, name="", iterations=1, compute_s=0.0, overlap=0.0)
        if kind not in self._known:
            planes = [self._on(kind, plane) for plane in range(self._fabric.planes)]
            seconds, first_s, after_s = (
                np.min([getattr(demand, name) for demand in planes], axis=0) for name in ("seconds", "first_s", "after_s")
            )
            self._known[kind] = _Demand(seconds, first_s, after_s, min(demand.gamma_s for demand in planes))
        return self._known[kind]

    def _on(self, spec: JobSpec, plane: int) -> _Demand:
        loads = phase_loads(spec, partial(self._routes.path, plane=plane), lambda size_bytes, _: self._routes.bits(size_bytes))
        bits = np.zeros((len(loads), len(self._rate)))
        for row, load_of in zip(bits, loads, strict=True):
            row[list(load_of)] = list(load_of.values())
        through = [bits[:, cut].sum(axis=1, keepdims=True) / self._rate[cut].sum() for cut in self._cuts]
        load = np.concatenate([np.where(self._avoidable, 0.0, bits / self._rate), *through], axis=1)
        length = load.max(axis=1, initial=0.0)
        before, after = np.cumsum(length) - length, np.cumsum(length[::-1])[::-1] - length
        used = load > 0
        return _Demand(
            seconds=load.sum(axis=0),
            first_s=np.where(used, before[:, None], np.inf).min(axis=0, initial=np.inf),
            after_s=np.where(used, after[:, None], np.inf).min(axis=0, initial=np.inf),
            gamma_s=float(length.sum()),
        )


def _cuts(fabric: Fabric) -> list[list[int]]:
    """Return the links of each switch to other switches, and those from them; none on a fabric of one plane."""
    if fabric.planes == 1:
        return []
    inner = [(i, link) for i, link in enumerate(fabric.links) if link.src in fabric.switch and link.dst in fabric.switch]
    cuts = [[i for i, link in inner if getattr(link, end) == name] for name in fabric.switch for end in ("src", "dst")]
    return [cut for cut in cuts if len(cut) > 1]


def _lead_s(job: JobSpec) -> float:
    return (1 - job.overlap) * job.compute_s


def _period_s(job: JobSpec, demand: _Demand) -> float:
    return max(job.compute_s, _lead_s(job) + demand.gamma_s)


def _stage(stage: StagePlan, demands: _Demands, start_up_s: float) -> tuple[Floats, Floats, Floats, float]:
    """Return load, head and tail [P] of a stage whose jobs start up first, and its critical path, seconds."""
    of = [demands.of(job) for job in stage.jobs]
    load = np.sum([job.iterations * demand.seconds for job, demand in zip(stage.jobs, of, strict=True)], axis=0)
    counted = [demand.seconds > 0 for demand in of]
    heads = [
        np.where(use, start_up_s + _lead_s(job) + demand.first_s, np.inf)
        for use, job, demand in zip(counted, stage.jobs, of, strict=True)
    ]
    tails = [np.where(use, demand.after_s, np.inf) for use, demand in zip(counted, of, strict=True)]
    head, tail = (np.where(load > 0, np.min(times, axis=0), 0.0) for times in (heads, tails))
    critical_s = sorted(
        start_up_s + job.iterations * _period_s(job, demand) for job, demand in zip(stage.jobs, of, strict=True)
    )
    if stage.finish is not None and stage.finish < len(stage.jobs):
        return 0 * load, 0 * head, 0 * tail, critical_s[stage.finish - 1]
    return load, head, tail, critical_s[-1]
