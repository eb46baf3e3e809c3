"""Beamer's plan of rates, kept by classes: whoever needs the highest rate to meet it goes first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import improved as improved_order
from beamer.network.bssi import sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import without_rounding
from beamer.network.rate_plan import Demand, RatePlan, improved, in_turn, planned
from beamer.network.snapshot import Run, Snapshot
from beamer.network.views import LaterRung
from beamer.network.work import RemainingWork, remaining_work
from beamer.studies.model import split_key

EFFORT = 10_000  # All programmes of one decision may have so many variables together: half a second, about.
MAX_VARIABLES = EFFORT // 2  # A programme with more variables is not solved.
NEED_STEP = 0.01  # Needs are told apart in steps of this share of a job's full rate.
CHANGED = 0.1  # An iteration has to take longer or shorter than planned by this share for a new plan.
MIN_PLAN_S = 1e-6  # A plan that is over sooner is not needed.


@dataclass(frozen=True)
class StageTrial:
    """A trial of a running stage, which may have arrived at its barrier: what a later rung with it would load.

    iteration_s: with the fabric to itself. link, use: the share of each link that it takes meanwhile.
    """

    trial: str
    iteration_s: float
    link: tuple[int, ...]
    use: tuple[float, ...]


@dataclass(frozen=True)
class Expected:
    """What is expected of an item: the trials of its running stages so far, and those of them that each declared rung holds.

    rungs: as declared. survivors: for each of them, its trials; some more than once where it holds more jobs than there are.
    """

    item: str
    stages: tuple[str, ...]
    members: tuple[StageTrial, ...]
    rungs: tuple[LaterRung, ...]
    survivors: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Goal:
    """What a job has to complete until the plan's next stage end: `iterations` of the `remaining` ones when it was made.

    iteration_s: as it was then. end_s: when the plan completes the job.
    """

    remaining: int
    iterations: float
    iteration_s: float
    end_s: float


@dataclass(frozen=True)
class PlanState:
    """The plan in force.

    ends: of stages as `study/stage`, in the order in which they end. stages: that run. rungs: that their studies have declared.
    runs, goals: of the running jobs, in order of their positions then. until_s: the plan's next stage end.
    """

    expected: tuple[Expected, ...] = ()
    ends: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    rungs: tuple[tuple[LaterRung, ...], ...] = ()
    runs: tuple[Run, ...] = ()
    goals: tuple[Goal, ...] = ()
    until_s: float = 0.0


class BeamerPlan(NetworkPolicy[PlanState]):
    """Plan how fast every job progresses until each stage ends, and serve first whoever needs the highest rate to keep to it.

    The plan is a linear programme for an order of the ends of all stages, running and declared ones, see
    `beamer.network.rate_plan`: a wide first stage may go ahead of the last trial of a more urgent study, and jobs may share
    links where an order cannot. The order of ends is that in force or that of `beamer` without ageing, whichever costs less,
    improved by exchanges of neighbours; it is searched for when other stages run or are declared. A job that ends changes the
    plan, but not that order. Until the plan's next stage end, jobs go by the rate that they need to meet it then, highest
    first: strict classes so share links over time, as the plan does at every moment.

    Which trials a declared rung will hold is drawn at random once per stage, unless they are known.
    Running stages of one item count as one. With more than `MAX_VARIABLES` variables, items are served strictly one before
    another instead.

    programmes: solved per decision at most, fewer if they are large, see `EFFORT`.
    """

    name = "beamer-plan"
    State = PlanState
    programmes: ClassVar[int] = 40

    def order(self, state: PlanState, snapshot: Snapshot, now: float, rng: Random) -> tuple[PlanState, Order, float | None]:
        """Return one tier per job, the one that needs the highest rate first."""
        if not snapshot.jobs.key:
            return PlanState(), (), None
        if now >= state.until_s or not _applies(state, snapshot):
            work = remaining_work(snapshot, looks_ahead=True)
            urgent_first = improved_order(work.items, sequence(work.items)[0])
            state = replace(state, expected=_expected(state, snapshot, work, rng))
            made = self._plan(state, snapshot, work, urgent_first)
            if made is None:
                return PlanState(state.expected), _one_by_one(snapshot, work, urgent_first), None
            plan, ends = made
            rungs = tuple(study.later for study in snapshot.studies)
            goals = _goals(plan, snapshot, now)
            state = PlanState(state.expected, ends, snapshot.stages, rungs, snapshot.jobs.run, goals, now + plan.length_s)
        return state, _by_need(state, snapshot, now), state.until_s

    def _plan(
        self, state: PlanState, snapshot: Snapshot, work: RemainingWork, urgent_first: Ints
    ) -> tuple[RatePlan, tuple[str, ...]] | None:
        """Return a plan and the order of its ends; None of what is too large, too short, or not solved."""
        ends, demand = _demand(snapshot, work, state.expected)
        position = {end: i for i, end in enumerate(ends)}
        kept = np.array([position[end] for end in state.ends if end in position], np.int64)
        in_force = len(kept) == len(ends)
        orders = [kept] if in_force else []
        searched = not in_force or (snapshot.stages, len(ends)) != (state.stages, len(state.ends))
        if searched:
            orders.append(in_turn(demand, urgent_first, work.items.links))
        largest = max(demand.variables(order) for order in orders)
        if largest > MAX_VARIABLES:
            return None
        plans = [plan for order in orders if (plan := planned(demand, order)) is not None and plan.length_s >= MIN_PLAN_S]
        if not plans:
            return None
        plan = min(plans, key=lambda one: one.cost)
        if searched:
            plan = improved(demand, plan, min(self.programmes, EFFORT // largest) - len(orders))
        return plan, tuple(ends[i] for i in plan.order.tolist())


def _applies(state: PlanState, snapshot: Snapshot) -> bool:
    """Return whether a plan is of the jobs, stages and rungs that there are now, as they are now."""
    rungs = tuple(study.later for study in snapshot.studies)
    if (state.runs, state.stages, state.rungs) != (snapshot.jobs.run, snapshot.stages, rungs):
        return False
    planned_s = np.array([goal.iteration_s for goal in state.goals])
    before = np.array([goal.remaining for goal in state.goals], np.int64)
    as_planned = np.abs(snapshot.jobs.iteration_s - planned_s) <= CHANGED * planned_s
    return bool(as_planned.all() and (snapshot.remaining <= before).all())


def _expected(state: PlanState, snapshot: Snapshot, work: RemainingWork, rng: Random) -> tuple[Expected, ...]:
    """Return what is expected of every item: survivors as before where its stages, trials and rungs are the same."""
    jobs = snapshot.jobs
    before = {one.item: one for one in state.expected}
    found = []
    for i, name in enumerate(work.name):
        positions = np.flatnonzero(work.item_of_job == i).tolist()
        study = snapshot.studies[jobs.study[positions[0]]]
        stages = tuple(dict.fromkeys(snapshot.stages[jobs.stage[j]] for j in positions))
        rungs = study.later if name == study.name else ()
        running = {trial.trial: trial for j in positions if rungs for trial in [_stage_trial(snapshot, j)]}
        old = before.get(name)
        if old is None or old.stages != stages:
            old = Expected(name, stages, (), (), ())
        members = {trial.trial: trial for trial in old.members} | running
        survivors = old.survivors
        if rungs != old.rungs or len(members) > len(old.members):
            survivors = _survivors(tuple(members), rungs, rng)
        found.append(Expected(name, stages, tuple(members.values()), rungs, survivors))
    return tuple(found)


def _use(snapshot: Snapshot, j: int) -> tuple[Ints, Floats]:
    """Return a job's links, and the share of each that it takes with the fabric to itself."""
    own = slice(int(snapshot.jobs.first[j]), int(snapshot.jobs.first[j + 1]))
    seconds, iteration_s = snapshot.jobs.seconds[own], float(snapshot.jobs.iteration_s[j])
    return snapshot.jobs.link[own], seconds / iteration_s if iteration_s > 0 else np.zeros(len(seconds))


def _stage_trial(snapshot: Snapshot, j: int) -> StageTrial:
    link, use = _use(snapshot, j)
    trial = split_key(snapshot.jobs.key[j])[1]
    return StageTrial(trial, float(snapshot.jobs.iteration_s[j]), tuple(link.tolist()), tuple(use.tolist()))


def _survivors(members: Sequence[str], rungs: Sequence[LaterRung], rng: Random) -> tuple[tuple[str, ...], ...]:
    """Return the trials that each declared rung will hold, of those before it: as known, the others drawn."""
    alive = list(members)
    found = []
    for rung in rungs:
        known = [trial for trial in alive if trial in rung.survivors]
        others = [trial for trial in alive if trial not in rung.survivors]
        alive = known + rng.sample(others, max(min(rung.jobs - len(known), len(others)), 0))
        found.append(tuple(alive[i % len(alive)] for i in range(max(rung.jobs, len(known)))))
    return tuple(found)


def _demand(snapshot: Snapshot, work: RemainingWork, expected: Sequence[Expected]) -> tuple[list[str], Demand]:
    """Return all stages, running and declared ones, item after item; running jobs come first among the jobs."""
    jobs = snapshot.jobs
    ends: list[str] = []
    of_item: list[int] = []
    first: list[int] = []
    declared: list[tuple[int, float, Ints, Floats]] = []
    for i, one in enumerate(expected):
        first.append(len(ends))
        ends.append(one.stages[-1])
        members = {trial.trial: trial for trial in one.members}
        for rung, trials in zip(one.rungs, one.survivors, strict=True):
            for own in (members[trial] for trial in trials):
                seconds = rung.iterations * own.iteration_s
                declared.append((len(ends), seconds, np.array(own.link, np.int64), np.array(own.use, np.float64)))
            ends.append(f"{one.item}/{rung.name}")
        of_item += [i] * (len(ends) - first[-1])
    running = [
        (first[item], float(snapshot.remaining[j] * jobs.iteration_s[j]), *_use(snapshot, j))
        for j, item in enumerate(work.item_of_job.tolist())
    ]
    return ends, Demand.of(work.items.weight, of_item, running + declared)


def _goals(plan: RatePlan, snapshot: Snapshot, now: float) -> tuple[Goal, ...]:
    iteration_s = snapshot.jobs.iteration_s
    done = plan.progress_s[: len(iteration_s)]
    goals = zip(
        snapshot.remaining.tolist(),
        np.divide(done, iteration_s, out=np.zeros(len(done)), where=iteration_s > 0).tolist(),
        iteration_s.tolist(),
        (now + plan.end_s[: len(iteration_s)]).tolist(),
        strict=True,
    )
    return tuple(Goal(*goal) for goal in goals)


def _by_need(state: PlanState, snapshot: Snapshot, now: float) -> Order:
    """Return the jobs by the share of its full rate that each needs to meet its goal, those that are complete sooner first."""
    remaining = np.array([goal.remaining for goal in state.goals], np.int64)
    iterations = np.array([goal.iterations for goal in state.goals], np.float64)
    end_s = np.array([goal.end_s for goal in state.goals], np.float64)
    need = (iterations - (remaining - snapshot.remaining)) * snapshot.jobs.iteration_s / (state.until_s - now)
    # Differences are rounded, as nine digits of a Unix time would be a second.
    left_s = without_rounding(np.maximum(end_s - now, 0.0))
    return tuple(Tier((snapshot.jobs.key[j],)) for j in np.lexsort((left_s, -np.round(need / NEED_STEP))).tolist())


def _one_by_one(snapshot: Snapshot, work: RemainingWork, urgent_first: Ints) -> Order:
    members = [np.flatnonzero(work.item_of_job == i) for i in urgent_first]
    slowest_first = [jobs[np.argsort(-without_rounding(work.critical_s[jobs]), kind="stable")] for jobs in members]
    return tuple(Tier(tuple(snapshot.jobs.key[j] for j in jobs), divisible=True) for jobs in slowest_first)
