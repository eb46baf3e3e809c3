"""Beamer's own policy: stages, or whole studies where their later stages are declared, in the order that ends them early."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import ClassVar

from beamer.collectives import link_seconds, synchronisation_seconds
from beamer.model import JobView, Rung, Snapshot, StudyView
from beamer.ordering.base import Order, Ordering, Tier
from beamer.ordering.bssi import Item, sequence, weighted_completion

# A reordering rewrites rules at every edge switch, and packets overtake each other meanwhile: small gains are not worth it.
REORDER_GAIN = 0.05
REORDER_SLOWNESS = 0.1


@dataclass(frozen=True)
class Ranked:
    """A unit and its jobs, slowest first, as last ordered."""

    unit: str
    jobs: tuple[str, ...]


@dataclass(frozen=True)
class BeamerState:
    """The order in force, most urgent first."""

    order: tuple[Ranked, ...] = ()


@dataclass(frozen=True)
class _Work:
    """What is left of a job. load: seconds of each link per iteration. iteration_s: critical path of one iteration."""

    job: JobView
    load: dict[int, float]
    iteration_s: float

    @property
    def critical_s(self) -> float:
        return self.job.remaining * self.iteration_s


@dataclass(frozen=True)
class _Unit:
    """What is ordered as one: a stage, or a study with everything it still has to do."""

    name: str
    item: Item
    work: tuple[_Work, ...]


class Beamer(Ordering[BeamerState]):
    """Order the stages' remaining work by bottleneck-select-scale-iterate. [source: the idea; rebuilt: ALGORITHMS 2]

    The unit is the study's remaining work where later rungs are declared, else the stage: chained stages add up to their
    study's makespan. A declared rung's load is predicted from the study's running jobs. Inside a unit the job with the longest
    remaining critical path comes first, because it ends the stage. An order stands until the units change or a new one
    promises more than `REORDER_GAIN` of the objective, and a job's place inside its unit until it is more than
    `REORDER_SLOWNESS` slower than one before it, so that rules do not flap.
    """

    name = "beamer"
    State = BeamerState
    looks_ahead: ClassVar[bool] = True

    def order(self, state: BeamerState, snapshot: Snapshot, now: float, rng: Random) -> tuple[BeamerState, Order, float | None]:
        """Return one divisible tier per unit, most urgent first."""
        units = [unit for study in snapshot.studies for unit in self._units(study, snapshot)]
        old = {ranked.unit: ranked for ranked in state.order}
        ranked = tuple(Ranked(unit.name, _slowest_first(unit.work, old.get(unit.name))) for unit in _urgent_first(units, state))
        return BeamerState(ranked), tuple(Tier(r.jobs, divisible=True) for r in ranked), None

    def _units(self, study: StudyView, snapshot: Snapshot) -> list[_Unit]:
        stages = [(stage, tuple(_work(job, snapshot) for job in stage.jobs)) for stage in study.stages if stage.jobs]
        if not stages:
            return []
        if self.looks_ahead and study.later:
            parts = [_item(study.weight, work) for _, work in stages]
            running = tuple(w for _, work in stages for w in work)
            parts += [_predicted(study.weight, rung, running) for rung in study.later]
            return [_Unit(study.name, _chained(study.weight, parts), running)]
        return [_Unit(f"{study.name}/{stage.name}", _item(study.weight, work), work) for stage, work in stages]


def _work(job: JobView, snapshot: Snapshot) -> _Work:
    spec = job.spec
    gamma = synchronisation_seconds(spec, snapshot.fabric, job.plane)
    iteration_s = max(spec.compute_s, (1 - spec.overlap) * spec.compute_s + gamma)
    return _Work(job, link_seconds(spec, snapshot.fabric, job.plane), iteration_s)


def _item(weight: float, work: Sequence[_Work]) -> Item:
    load: dict[int, float] = {}
    for w in work:
        for link, seconds in w.load.items():
            load[link] = load.get(link, 0.0) + w.job.remaining * seconds
    return Item(weight, load, max(w.critical_s for w in work))


def _predicted(weight: float, rung: Rung, running: Sequence[_Work]) -> Item:
    """Predict a declared rung: its jobs load the links as the running ones do on average, its slowest as their slowest."""
    load: dict[int, float] = {}
    for w in running:
        for link, seconds in w.load.items():
            load[link] = load.get(link, 0.0) + seconds * rung.jobs * rung.iterations / len(running)
    return Item(weight, load, rung.iterations * max(w.iteration_s for w in running))


def _chained(weight: float, stages: Sequence[Item]) -> Item:
    load: dict[int, float] = {}
    for stage in stages:
        for link, seconds in stage.load.items():
            load[link] = load.get(link, 0.0) + seconds
    return Item(weight, load, sum(stage.critical_s for stage in stages))


def _urgent_first(units: Sequence[_Unit], state: BeamerState) -> list[_Unit]:
    items = [unit.item for unit in units]
    new = sequence(items).order
    position = {unit.name: i for i, unit in enumerate(units)}
    if position.keys() == {ranked.unit for ranked in state.order}:
        old = tuple(position[ranked.unit] for ranked in state.order)
        if weighted_completion(items, new) > (1 - REORDER_GAIN) * weighted_completion(items, old):
            new = old
    return [units[i] for i in new]


def _slowest_first(work: Sequence[_Work], old: Ranked | None) -> tuple[str, ...]:
    place = {key: i for i, key in enumerate(old.jobs)} if old else {}
    order = sorted(work, key=lambda w: -w.critical_s)
    if all(w.job.key in place for w in work):
        stood = sorted(work, key=lambda w: place[w.job.key])
        if all(late.critical_s <= (1 + REORDER_SLOWNESS) * early.critical_s for early, late in combinations(stood, 2)):
            order = stood
    return tuple(w.job.key for w in order)
