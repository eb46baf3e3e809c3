"""Plans of rates by linear programme, and the policy that keeps them by classes."""

from dataclasses import replace
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.bounds.scenario import scenario_bounds
from beamer.network.job import JobSpec
from beamer.network.policies.beamer_plan import BeamerPlan, PlanState
from beamer.network.rate_plan import Demand, RatePlan, improved, in_turn, planned
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, LaterRung, StudyView
from beamer.sim import simulate
from beamer.studies.model import Worker
from beamer.testing.profile import PROFILE
from beamer.workloads.generate import Workload, generate
from beamer.workloads.scenario import Scenario, parse
from beamer.workloads.searches import search
from eval.network.cells import LIVE
from eval.network.wrapped import ToldSurvivors
from tests.unit.network.policies.test_policies import FABRIC, job, study


def demand(*stages: tuple[int, list[tuple[float, dict[int, float]]]], weight: tuple[float, ...] = (1.0, 1.0)) -> Demand:
    """Make a demand of stages, each an item and its jobs: seconds alone, and the share of each link meanwhile."""
    jobs = [
        (number, seconds, np.array(list(use), np.int64), np.array(list(use.values()), np.float64))
        for number, (_, of) in enumerate(stages)
        for seconds, use in of
    ]
    return Demand.of(np.array(weight), [item for item, _ in stages], jobs)


def plan(of: Demand, *order: int) -> RatePlan:
    found = planned(of, np.array(order, np.int64))
    assert found is not None
    return found


def test_stages_that_share_a_link_run_one_after_another() -> None:
    of = demand((0, [(4.0, {0: 1.0})]), (1, [(2.0, {0: 1.0})]))
    assert plan(of, 0, 1).cost == pytest.approx(4 + 6)
    short_first = plan(of, 1, 0)
    assert short_first.cost == pytest.approx(2 + 6)
    assert short_first.length_s == pytest.approx(2.0)
    assert short_first.progress_s == pytest.approx([0.0, 2.0], abs=1e-6)
    assert short_first.end_s == pytest.approx([6.0, 2.0])


def test_jobs_that_load_links_in_part_run_together() -> None:
    half = {0: 0.5}
    both = plan(demand((0, [(4.0, half)]), (1, [(2.0, half)])), 1, 0)
    assert both.cost == pytest.approx(2 + 4)
    assert both.progress_s == pytest.approx([2.0, 2.0])


def test_a_stage_begins_when_the_one_before_it_in_its_item_has_ended() -> None:
    chained = demand((0, [(4.0, {0: 1.0}), (4.0, {1: 1.0})]), (0, [(3.0, {2: 1.0})]), weight=(1.0,))
    assert plan(chained, 0, 1).cost == pytest.approx(7.0)


def test_a_wide_stage_passes_a_long_one_of_another_link_where_its_jobs_need_not_wait() -> None:
    of = demand((0, [(2.0, {0: 1.0})]), (0, [(6.0, {1: 1.0})]), (1, [(3.0, {0: 1.0}), (3.0, {1: 1.0})]))
    best = min((plan(of, *order) for order in permutations(range(3)) if order.index(0) < order.index(1)), key=lambda p: p.cost)
    found = improved(of, plan(of, *in_turn(of, np.array([0, 1]), 2)), programmes=20)
    assert found.cost == pytest.approx(best.cost)
    assert found.cost == pytest.approx(14.0), "one item strictly before the other comes to 17"


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    stages = []
    for item in range(2):
        for _ in range(draw(st.integers(1, 2))):
            uses = st.dictionaries(st.integers(0, 2), st.sampled_from((0.25, 0.5, 1.0)), max_size=2)
            stages.append((item, draw(st.lists(st.tuples(st.sampled_from((0.5, 1.0, 3.0)), uses), min_size=1, max_size=3))))
    return demand(*stages, weight=(draw(st.sampled_from((0.5, 1.0))), 1.0))


@PROFILE
@given(demands())
def test_a_plan_is_feasible_and_the_best_order_is_no_worse_than_any_schedule_of_items_in_turn(of: Demand) -> None:
    stages = range(len(of.item))
    orders = [order for order in permutations(stages) if all(order.index(a) < order.index(b) for a, b in chained(of))]
    plans = [plan(of, *order) for order in orders]
    user = np.repeat(np.arange(len(of.seconds)), np.diff(of.first))
    for one in plans:
        complete_s = [float(one.end_s[of.item[of.stage] == item].max()) for item in (0, 1)]
        assert one.cost >= float(of.weight @ complete_s) * (1 - 1e-6), "no job is complete after the end of its item"
        for before, after in chained(of):
            assert one.end_s[of.stage == after].max() > one.end_s[of.stage == before].max()
        assert (one.progress_s <= one.length_s * (1 + 1e-6) + 1e-6).all()
        carried = np.bincount(of.link, one.progress_s[user] * of.use, 3)
        assert (carried <= one.length_s * (1 + 1e-6) + 1e-6).all()
    alone = np.zeros(len(stages))
    for stage in stages:
        load = np.bincount(of.link, np.where(of.stage[user] == stage, of.seconds[user] * of.use, 0.0), 3)
        alone[stage] = max(load.max(), of.seconds[of.stage == stage].max())
    least = min(one.cost for one in plans)
    for first in (0, 1):
        in_turns = [stage for item in (first, 1 - first) for stage in stages if of.item[stage] == item]
        ends_s = dict(zip(in_turns, np.cumsum(alone[in_turns]).tolist(), strict=True))
        serial = sum(of.weight[item] * ends_s[int(of.last[item])] for item in (0, 1))
        assert least <= serial * (1 + 2e-3)
    start = plan(of, *in_turn(of, np.array([0, 1]), 3))
    assert start.order.tolist() in [list(order) for order in orders]
    found = improved(of, start, programmes=30)
    assert least * (1 - 2e-3) <= found.cost <= start.cost
    assert found.order.tolist() in [list(order) for order in orders]


def chained(of: Demand) -> list[tuple[int, int]]:
    return [(before, stage) for stage, before in enumerate(of.before.tolist()) if before >= 0]


def test_what_is_over_at_once_counts_as_one_interval() -> None:
    of = demand((0, [(1e-4, {0: 1.0})]), (1, [(5.0, {0: 1.0})]))
    assert plan(of, 0, 1).length_s == pytest.approx(5.0, rel=1e-3)
    assert plan(demand((0, [(1e-4, {})]), weight=(1.0,)), 0).length_s == pytest.approx(1e-4)


def served(
    policy: BeamerPlan, state: PlanState, now: float, *studies: StudyView, seed: int = 0
) -> tuple[PlanState, list[str], float | None]:
    state, order, wake_at = policy.order(state, Snapshot.of(FABRIC, studies), now, Random(seed))
    return state, [key for tier in order for key in tier.jobs], wake_at


def test_a_job_that_falls_behind_the_plan_passes_one_that_keeps_to_it() -> None:
    policy = BeamerPlan()
    state, order, wake_at = served(policy, PlanState(), 0.0, study("a", job("a", "x"), job("a", "y")))
    assert order == ["a/x", "a/y"]
    assert wake_at is not None
    for done, first in (((6, 4), "a/y"), ((4, 6), "a/x")):
        now = study("a", *(job("a", name, done=its) for name, its in zip("xy", done, strict=True)))
        assert served(policy, state, wake_at / 2, now)[1][0] == first


def test_survivors_are_drawn_once_per_stage_and_stay_when_trials_arrive_or_bytes_are_learnt() -> None:
    policy = BeamerPlan()
    later = (LaterRung("rung1", 2, 40),)
    trials = [job("a", name) for name in "uvxyz"]
    state, _, _ = served(policy, PlanState(), 0.0, study("a", *trials, later=later))
    (survivors,) = state.expected[0].survivors
    assert len(survivors) == 2
    others = {
        served(policy, PlanState(), 0.0, study("a", *trials, later=later), seed=seed)[0].expected[0].survivors
        for seed in range(9)
    }
    assert len(others) > 1, "they are drawn"
    for seed, left in enumerate(range(4, 0, -1)):
        now = [job("a", name, sync_bytes=300_000) for name in "uvxyz"[-left:]]
        state, _, _ = served(policy, state, 0.0, study("a", *now, later=later), seed=seed + 1)
        assert state.expected[0].survivors == (survivors,), "those that have arrived are still expected"
        assert [trial.trial for trial in state.expected[0].members] == list("uvxyz")


def test_survivors_that_are_known_are_not_drawn_and_may_become_known_later() -> None:
    rungs = (LaterRung("rung1", 2, 40, ("x", "z")), LaterRung("rung2", 1, 40, ("z",)))
    trials = [job("a", name) for name in "uvxyz"]
    state, _, _ = served(BeamerPlan(), PlanState(), 0.0, study("a", *trials, later=rungs))
    assert state.expected[0].survivors == (("x", "z"), ("z",))
    unknown = tuple(replace(rung, survivors=()) for rung in rungs)
    for seed in range(5):
        state, _, _ = served(BeamerPlan(), PlanState(), 0.0, study("a", *trials, later=unknown), seed=seed)
        state, _, _ = served(BeamerPlan(), state, 0.0, study("a", *trials, later=rungs), seed=seed)
        assert state.expected[0].survivors == (("x", "z"), ("z",))


def test_a_rung_of_more_jobs_than_there_are_trials_loads_the_network_by_its_number_of_jobs() -> None:
    state, _, _ = served(BeamerPlan(), PlanState(), 0.0, study("a", job("a", "x"), later=(LaterRung("rung1", 9, 40),)))
    assert state.expected[0].survivors == (("x",) * 9,)


@pytest.mark.parametrize(
    ("changed", "anew"),
    [
        ({"iterations": 500}, True),
        ({"sync_bytes": 200_000}, True),
        ({"sync_bytes": 101_000}, False),
        ({"done": 3}, False),
        ({"started_s": 1.0}, True),
    ],
)
def test_a_plan_is_made_anew_when_what_it_was_made_of_is_not_so_any_more(changed: dict[str, float], anew: bool) -> None:
    policy, other = BeamerPlan(), study("b", job("b", "z", iterations=50))
    state, _, wake_at = served(policy, PlanState(), 0.0, study("a", job("a", "x")), other)
    assert wake_at is not None
    now = study("a", job("a", "x", **changed))  # type: ignore[arg-type]
    after, _, _ = served(policy, state, wake_at / 4, now, other)
    assert (after != state) == anew
    assert served(policy, state, wake_at, now, other)[0] != state, "at its stage end in any case"
    declared = study("a", job("a", "x"), later=(LaterRung("rung1", 1, 5),))
    assert served(policy, state, wake_at / 4, declared, other)[0] != state


def test_the_order_of_stage_ends_is_searched_again_when_other_stages_run_and_starts_from_that_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []

    def unimproved(demand: Demand, plan: RatePlan, programmes: int) -> RatePlan:
        searched.append(programmes)
        return plan

    monkeypatch.setattr("beamer.network.policies.beamer_plan.improved", unimproved)
    policy = BeamerPlan()
    later = (LaterRung("rung1", 1, 5),)
    jobs = [job("a", "x"), job("a", "y")]
    other = study("b", job("b", "z"))
    state, _, _ = served(policy, PlanState(), 0.0, study("a", *jobs, later=later), other)
    assert set(state.ends) == {"a/rung0", "a/rung1", "b/rung0"}
    after, _, _ = served(policy, state, 0.0, study("a", jobs[0], later=later), other)
    assert (after.ends, len(searched)) == (state.ends, 1), "a job that ends changes no order"
    after, _, _ = served(policy, after, 0.0, study("a", jobs[0], stage="rung1"), other)
    assert (after.ends, len(searched)) == (tuple(end for end in state.ends if end != "a/rung0"), 2)


def test_jobs_without_traffic_or_work_are_planned_too() -> None:
    alone = JobView("c/w", JobSpec("w", (Worker(0, "h1"),), 5, 100_000), 5, 0, 0.0)
    _, order, _ = served(BeamerPlan(), PlanState(), 0.0, study("a", job("a", "x")), study("c", alone))
    assert sorted(order) == ["a/x", "c/w"]


def test_what_is_too_large_to_plan_is_served_one_item_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamer.network.policies.beamer_plan.MAX_VARIABLES", 1)
    long = study("a", job("a", "x", iterations=50), job("a", "y", iterations=50))
    _, order, wake_at = served(BeamerPlan(), PlanState(), 0.0, long, study("b", job("b", "z")))
    assert order == ["b/z", "a/x", "a/y"]
    assert wake_at is None


def drawn(seed: int) -> Scenario:
    return parse(
        generate(
            Workload(
                topology={"shape": "single", "hosts": 8, "rate": "1gbit"},
                studies=2,
                search=search(kind="successive-halving", trials=4, eta=2, iterations=4),
                workers=(4,),
                compute_ratio=0.0,
                seed=seed,
            )
        )
    )


def test_told_the_survivors_the_plan_comes_close_to_the_bound_and_never_below_it() -> None:
    ratios = []
    for seed in range(5):
        work = drawn(seed)
        least = scenario_bounds(work, acknowledgements=False).mean_s
        ratios.append(simulate(work, ToldSurvivors(BeamerPlan(), work), assumptions=LIVE).mean_sct_s / least)
    assert min(ratios) >= 1 - 1e-6
    assert np.mean(ratios) < 1.15
