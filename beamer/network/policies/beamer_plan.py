"""Beamer's plan of rates, kept by classes: whoever is furthest behind it goes first."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import improved as improved_order
from beamer.network.bssi import sequence
from beamer.network.fluid_plan import Demand, FluidPlan, improved, in_turn, planned
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Run, Snapshot
from beamer.network.views import LaterRung
from beamer.network.work import RemainingWork, remaining_work
from beamer.studies.model import split_key

PROGRAMMES = 40  # per search for an order of stage ends; more gain nothing
EFFORT = 20_000  # variables of all programmes of a search together: a second, about
LARGEST = 8_000  # variables of a programme that is solved at all: a second, about
BEHIND = 0.01  # share of its full rate by which a job has to be further behind than another to go first

StageEnd = tuple[str, str]
"""The item and the name of a stage or a declared rung."""


@dataclass(frozen=True)
class StageTrial:
    """A trial of a running stage, which may have arrived at its barrier: what a later rung of it would load.

    iteration_s: with the fabric to itself. link, use: the share of each link that it takes meanwhile.
    """

    trial: str
    iteration_s: float
    link: tuple[int, ...]
    use: tuple[float, ...]


@dataclass(frozen=True)
class Expected:
    """What is expected of an item's running stage: its members so far, and those of them that each declared rung will hold."""

    item: str
    stage: str
    members: tuple[StageTrial, ...]
    survivors: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Goal:
    """What a job has to complete until the plan's next stage end: `iterations` of the `remaining` ones when it was made.

    end_s: when the plan completes it.
    """

    remaining: int
    iterations: float
    end_s: float


@dataclass(frozen=True)
class PlanState:
    """The plan in force.

    stages: that run. runs, goals: of the running jobs, in order of their positions then. until_s: its next stage end.
    """

    expected: tuple[Expected, ...] = ()
    ends: tuple[StageEnd, ...] = ()
    stages: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    goals: tuple[Goal, ...] = ()
    until_s: float = 0.0


class BeamerPlan(NetworkPolicy[PlanState]):
    """Plan how fast every job progresses until each stage ends, and serve first whoever has most to catch up.

    The plan is a linear programme for an order of the ends of all stages, running and declared ones, see
    `beamer.network.fluid_plan`: a wide first stage may go ahead of the last trial of a more urgent study, and jobs may share
    links where an order cannot. The order of ends starts as `beamer`'s without ageing and is improved by exchanges of
    neighbours whenever other stages run, `PROGRAMMES` at most, fewer if they are large; a job that ends changes the plan, but
    not that order. Until the plan's next stage end, jobs go by the rate that they need to meet it then, highest first: strict
    classes so share links over time, as the plan does at every moment.

    Which trials a declared rung will hold is drawn at random once per stage, unless it is known. Several futures averaged gain
    nothing more. With more than `LARGEST` variables, items are served strictly one before another instead.
    """

    name = "beamer-plan"
    State = PlanState
    programmes: ClassVar[int] = PROGRAMMES

    def order(self, state: PlanState, snapshot: Snapshot, now: float, rng: Random) -> tuple[PlanState, Order, float | None]:
        """Return one tier per job, the one that has most to catch up first."""
        if not snapshot.jobs.key:
            return PlanState(), (), None
        if (snapshot.stages, snapshot.jobs.run) != (state.stages, state.runs) or now >= state.until_s:
            work = remaining_work(snapshot, looks_ahead=True)
            urgent_first = improved_order(work.items, sequence(work.items)[0])
            expected = _expected(state, snapshot, work, rng)
            made = self._plan(replace(state, expected=expected), snapshot, work, urgent_first)
            if made is None:
                return replace(PlanState(), expected=expected), _one_by_one(snapshot, work, urgent_first), None
            plan, ends = made
            goals = _goals(plan, snapshot, now)
            state = PlanState(expected, ends, snapshot.stages, snapshot.jobs.run, goals, now + plan.length_s)
        return state, _by_need(state, snapshot, now), state.until_s

    def _plan(
        self, state: PlanState, snapshot: Snapshot, work: RemainingWork, urgent_first: Ints
    ) -> tuple[FluidPlan, tuple[StageEnd, ...]] | None:
        ends, demand = _demand(snapshot, work, state.expected)
        position = {end: i for i, end in enumerate(ends)}
        known = [position[end] for end in state.ends if end in position]
        order = np.array(known, np.int64) if len(known) == len(ends) else in_turn(demand, urgent_first, work.items.links)
        size = demand.size(order)
        plan = planned(demand, order) if size <= LARGEST else None
        if plan is None or not plan.length_s > 0:
            return None
        if set(ends) != set(state.ends):
            plan = improved(demand, plan, min(self.programmes, EFFORT // size))
        return plan, tuple(ends[i] for i in plan.order.tolist())


def _expected(state: PlanState, snapshot: Snapshot, work: RemainingWork, rng: Random) -> tuple[Expected, ...]:
    """Return what is expected of every item, as before where its stage and its members are the same."""
    jobs = snapshot.jobs
    before = {one.item: one for one in state.expected}
    found = []
    for i, name in enumerate(work.name):
        positions = np.flatnonzero(work.item_of_job == i).tolist()
        study = snapshot.studies[jobs.study[positions[0]]]
        stage = snapshot.stages[jobs.stage[positions[-1]]]
        later = study.later if name == study.name else ()
        old = before.get(name)
        known = {member.trial: member for member in old.members} if old is not None and old.stage == stage else {}
        running = [_member(snapshot, j) for j in positions] if later else []
        members = tuple((known | {member.trial: member for member in running}).values())
        if old is None or members != old.members or [r for r, _ in old.survivors] != [rung.name for rung in later]:
            old = Expected(name, stage, members, _survivors(members, later, rng))
        found.append(old)
    return tuple(found)


def _member(snapshot: Snapshot, j: int) -> StageTrial:
    jobs = snapshot.jobs
    own = slice(int(jobs.first[j]), int(jobs.first[j + 1]))
    iteration_s = float(jobs.iteration_s[j])
    use = jobs.seconds[own] / iteration_s if iteration_s > 0 else jobs.seconds[own]
    return StageTrial(split_key(jobs.key[j])[1], iteration_s, tuple(jobs.link[own].tolist()), tuple(use.tolist()))


def _survivors(
    members: tuple[StageTrial, ...], later: tuple[LaterRung, ...], rng: Random
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the trials that each declared rung will hold, of those before it: as told, the others drawn."""
    alive = [member.trial for member in members]
    rungs = []
    for rung in later:
        told = [trial for trial in alive if trial in rung.survivors]
        others = [trial for trial in alive if trial not in rung.survivors]
        alive = told + rng.sample(others, max(min(rung.jobs - len(told), len(others)), 0))
        rungs.append((rung.name, tuple(alive)))
    return tuple(rungs)


def _demand(snapshot: Snapshot, work: RemainingWork, expected: tuple[Expected, ...]) -> tuple[list[StageEnd], Demand]:
    """Return all stages, running and declared ones, item after item; running jobs come first among the jobs."""
    jobs = snapshot.jobs
    ends: list[StageEnd] = []
    of_item: list[int] = []
    first: list[int] = []
    rungs: list[tuple[int, float, Ints, Floats]] = []
    for i, one in enumerate(expected):
        first.append(len(ends))
        ends.append((one.item, one.stage))
        study = snapshot.studies[jobs.study[np.searchsorted(work.item_of_job, i)]]
        iterations = {rung.name: rung.iterations for rung in study.later}
        shape: Mapping[str, StageTrial] = {member.trial: member for member in one.members}
        for rung, trials in one.survivors:
            for trial in trials:
                own = shape[trial]
                seconds = iterations[rung] * own.iteration_s
                rungs.append((len(ends), seconds, np.array(own.link, np.int64), np.array(own.use, np.float64)))
            ends.append((one.item, rung))
        of_item += [i] * (len(ends) - first[-1])
    iteration_s = np.maximum(jobs.iteration_s, 1e-300)
    running = [
        (
            first[item],
            float(snapshot.remaining[j] * jobs.iteration_s[j]),
            jobs.link[jobs.first[j] : jobs.first[j + 1]],
            jobs.seconds[jobs.first[j] : jobs.first[j + 1]] / iteration_s[j],
        )
        for j, item in enumerate(work.item_of_job.tolist())
    ]
    return ends, Demand.of(work.items.weight, of_item, running + rungs)


def _goals(plan: FluidPlan, snapshot: Snapshot, now: float) -> tuple[Goal, ...]:
    iteration_s = np.maximum(snapshot.jobs.iteration_s, 1e-300)
    goals = zip(
        snapshot.remaining.tolist(),
        (plan.progress_s[: len(iteration_s)] / iteration_s).tolist(),
        (now + plan.end_s[: len(iteration_s)]).tolist(),
        strict=True,
    )
    return tuple(Goal(*goal) for goal in goals)


def _by_need(state: PlanState, snapshot: Snapshot, now: float) -> Order:
    """Return the jobs by the share of its full rate that each needs to meet its goal, those that are complete sooner first."""
    remaining = np.array([goal.remaining for goal in state.goals], np.int64)
    due = np.array([goal.iterations for goal in state.goals], np.float64)
    end_s = np.array([goal.end_s for goal in state.goals], np.float64)
    need = (due - (remaining - snapshot.remaining)) * snapshot.jobs.iteration_s / (state.until_s - now)
    return tuple(Tier((snapshot.jobs.key[j],)) for j in np.lexsort((end_s, -np.round(need / BEHIND))).tolist())


def _one_by_one(snapshot: Snapshot, work: RemainingWork, urgent_first: Ints) -> Order:
    members = [np.flatnonzero(work.item_of_job == i) for i in urgent_first]
    slowest_first = [jobs[np.argsort(-work.critical_s[jobs], kind="stable")] for jobs in members]
    return tuple(Tier(tuple(snapshot.jobs.key[j] for j in jobs), divisible=True) for jobs in slowest_first)
