"""Plans of rates by linear programme, and the policy that keeps them by classes."""

from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.bounds.scenario import scenario_bounds
from beamer.network.fluid_plan import Demand, FluidPlan, improved, in_turn, planned
from beamer.network.policies.beamer_plan import BeamerPlan, PlanState
from beamer.network.snapshot import Snapshot
from beamer.network.views import LaterRung, StudyView
from beamer.sim import Assumptions, simulate
from beamer.workloads import Workload, generate, search
from beamer.workloads.scenario import Scenario, parse
from tests.unit.test_network_policies import FABRIC, job, study


def demand(*stages: tuple[int, list[tuple[float, dict[int, float]]]], weight: tuple[float, ...] = (1.0, 1.0)) -> Demand:
    """Make a demand of stages, each an item and its jobs: seconds alone, and the share of each link meanwhile."""
    jobs = [
        (number, seconds, np.array(list(use), np.int64), np.array(list(use.values()), np.float64))
        for number, (_, of) in enumerate(stages)
        for seconds, use in of
    ]
    return Demand.of(np.array(weight), [item for item, _ in stages], jobs)


def plan(of: Demand, *order: int) -> FluidPlan:
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


@settings(deadline=None, max_examples=30)
@given(demands())
def test_a_plan_is_no_worse_than_one_item_after_another_and_search_makes_none_worse(of: Demand) -> None:
    start = plan(of, *in_turn(of, np.array([0, 1]), 3))
    alone = np.zeros(len(of.item))
    user = np.repeat(np.arange(len(of.seconds)), np.diff(of.first))
    for stage in range(len(alone)):
        load = np.bincount(of.link, np.where(of.stage[user] == stage, of.seconds[user] * of.use, 0.0), 3)
        alone[stage] = max(load.max(), of.seconds[of.stage == stage].max())
    serial = np.cumsum(alone)[of.last]
    assert plan(of, *range(len(of.item))).cost <= float(of.weight @ serial) * (1 + 1e-6)
    found = improved(of, start, programmes=10)
    assert found.cost <= start.cost
    assert (found.progress_s <= found.length_s * (1 + 1e-6) + 1e-6).all()
    carried = np.bincount(of.link, found.progress_s[user] * of.use, 3)
    assert (carried <= found.length_s * (1 + 1e-6) + 1e-6).all()
    assert sorted(found.order.tolist()) == list(range(len(of.item)))
    for before, stage in zip(of.before.tolist(), range(len(of.item)), strict=True):
        assert before < 0 or found.order.tolist().index(before) < found.order.tolist().index(stage)


def served(policy: BeamerPlan, state: PlanState, now: float, *studies: StudyView) -> tuple[PlanState, list[str], float | None]:
    state, order, wake_at = policy.order(state, Snapshot.of(FABRIC, studies), now, Random(0))
    return state, [key for tier in order for key in tier.jobs], wake_at


def test_a_job_that_falls_behind_the_plan_passes_one_that_keeps_to_it() -> None:
    policy = BeamerPlan()
    state, order, wake_at = served(policy, PlanState(), 0.0, study("a", job("a", "x"), job("a", "y")))
    assert order == ["a/x", "a/y"]
    assert wake_at is not None
    for done, first in (((6, 4), "a/y"), ((4, 6), "a/x")):
        now = study("a", *(job("a", name, done=its) for name, its in zip("xy", done, strict=True)))
        assert served(policy, state, wake_at / 2, now)[1][0] == first


def test_survivors_are_drawn_once_per_stage_and_stay_when_trials_arrive() -> None:
    policy = BeamerPlan()
    later = (LaterRung("rung1", 2, 40),)
    trials = [job("a", name) for name in ("u", "v", "x", "y", "z")]
    state, _, _ = served(policy, PlanState(), 0.0, study("a", *trials, later=later))
    ((_, survivors),) = state.expected[0].survivors
    assert len(survivors) == 2
    for left in range(4, 0, -1):
        state, _, _ = served(policy, state, 0.0, study("a", *trials[-left:], later=later))
        assert state.expected[0].survivors == (("rung1", survivors),), "those that have arrived are still expected"


def test_survivors_that_are_known_are_not_drawn() -> None:
    told = (LaterRung("rung1", 2, 40, frozenset({"x", "z"})), LaterRung("rung2", 1, 40, frozenset({"z"})))
    state, _, _ = served(BeamerPlan(), PlanState(), 0.0, study("a", *(job("a", name) for name in "uvxyz"), later=told))
    assert state.expected[0].survivors == (("rung1", ("x", "z")), ("rung2", ("z",)))


def test_the_order_of_stage_ends_is_searched_again_only_when_other_stages_run(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def unimproved(demand: Demand, plan: FluidPlan, programmes: int) -> FluidPlan:
        searched.append(programmes)
        return plan

    monkeypatch.setattr("beamer.network.policies.beamer_plan.improved", unimproved)
    policy = BeamerPlan()
    jobs = [job("a", "x"), job("a", "y")]
    state, _, _ = served(policy, PlanState(), 0.0, study("a", *jobs), study("b", job("b", "z")))
    state, _, _ = served(policy, state, 0.0, study("a", jobs[0]), study("b", job("b", "z")))
    assert searched == [policy.programmes]
    served(policy, state, 0.0, study("a", jobs[0], stage="rung1"), study("b", job("b", "z")))
    assert len(searched) == 2


def test_what_is_too_large_to_plan_is_served_one_item_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamer.network.policies.beamer_plan.LARGEST", 1)
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
        assumed = Assumptions(acknowledgements=False, coflows_known=False, survivors_known=True)
        least = scenario_bounds(work, acknowledgements=False).mean_s
        ratios.append(simulate(work, "beamer-plan", assumptions=assumed).mean_sct_s / least)
    assert min(ratios) >= 1 - 1e-6
    assert np.mean(ratios) < 1.15
