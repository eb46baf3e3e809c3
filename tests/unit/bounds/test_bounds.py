"""Each bound where its value is known, where it does not apply, and kernels against plain references."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from beamer.bounds import BOUNDS, Instance, IteratingJobs, bounds, chained, study_bounds
from beamer.bounds.barrier import barrier
from beamer.bounds.dual import dual
from beamer.bounds.instance import distinct_links
from beamer.bounds.relaxation import lp_ov
from beamer.bounds.release import release_busy, release_srpt
from beamer.bounds.subset_dp import subset_dp
from beamer.errors import BeamerError, InputError
from beamer.network.arrays import Floats
from tests.support.reference.exact import best_static, exact

Rows = Sequence[Sequence[float]]


def instance(
    load: Rows,
    weight: Sequence[float] = (),
    critical_s: Sequence[float] = (),
    release_s: Sequence[float] = (),
    head_s: Rows | None = None,
    tail_s: Rows | None = None,
) -> Instance:
    """Make an instance; weights are 1 and times 0 unless given."""
    n = len(load)
    return Instance(
        np.array(weight or [1.0] * n),
        np.array(load, np.float64).reshape(n, -1),
        np.array(critical_s or [0.0] * n),
        np.array(release_s or [0.0] * n),
        None if head_s is None else np.array(head_s, np.float64),
        None if tail_s is None else np.array(tail_s, np.float64),
    )


def drawn(seed: int, n: int, links: int, *, release: float = 0.0, wait: float = 0.0) -> Instance:
    rng = np.random.default_rng(seed)
    load = rng.uniform(0.1, 5.0, (n, links)) * (rng.random((n, links)) < 0.6)
    head, tail = rng.uniform(0, wait, (n, links)), rng.uniform(0, wait, (n, links))
    weight = rng.uniform(0.5, 3.0, n) if seed % 2 else np.ones(n)
    return Instance(weight, load, rng.uniform(0, 6, n), rng.uniform(0, release, n), head, tail)


ONE_LINK = instance([[3.0], [1.0], [2.0]])


@pytest.mark.parametrize("name", BOUNDS)
def test_on_one_link_every_bound_is_the_optimum(name: str) -> None:
    assert BOUNDS[name](ONE_LINK) == pytest.approx(1 + 3 + 6)


@pytest.mark.parametrize("name", ["dual", "lp-ov", "subset-dp", "release-busy"])
def test_on_one_link_weights_count_by_load(name: str) -> None:
    # Smith's rule: 5/2 before 1/1, that is 5 x 2 + 1 x 3.
    assert BOUNDS[name](instance([[1.0], [2.0]], weight=[1.0, 5.0])) == pytest.approx(13)


@pytest.mark.parametrize("name", BOUNDS)
def test_items_that_share_nothing_take_their_floors(name: str) -> None:
    assert BOUNDS[name](instance([[2.0, 0.0], [0.0, 3.0]], critical_s=[1.0, 7.0])) == pytest.approx(2 + 7)


@pytest.mark.parametrize("name", BOUNDS)
def test_sparse_loads_are_as_good_as_dense_ones(name: str) -> None:
    dense = drawn(2, 6, 4)
    sparse = Instance(dense.weight, csr_array(dense.load.toarray()), dense.critical_s, dense.release_s)
    plain = Instance(dense.weight, dense.load.toarray(), dense.critical_s, dense.release_s)
    assert BOUNDS[name](sparse) == BOUNDS[name](plain)


@pytest.mark.parametrize("name", BOUNDS)
def test_nothing_and_items_without_load(name: str) -> None:
    assert BOUNDS[name](Instance(np.zeros(0), np.zeros((0, 3)), np.zeros(0), np.zeros(0))) == 0
    assert BOUNDS[name](instance([[0.0], [0.0]], critical_s=[4.0, 0.0])) == pytest.approx(4)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("size", [1e-6, 1e9])
def test_the_unit_of_time_does_not_matter(name: str, size: float) -> None:
    small = drawn(4, 6, 4)
    large = Instance(small.weight, small.load * size, small.critical_s * size, small.release_s)
    small = Instance(small.weight, small.load, small.critical_s, small.release_s)
    assert BOUNDS[name](large) == pytest.approx(BOUNDS[name](small) * size, rel=1e-6)


def test_a_common_release_changes_nothing_and_different_ones_rule_the_dual_out() -> None:
    assert dual(instance([[3.0], [1.0]], release_s=[5.0, 5.0])) == pytest.approx(1 + 4)
    with pytest.raises(InputError, match=r"release_s.*one release time for all items, for the dual bound"):
        dual(instance([[3.0], [1.0]], release_s=[5.0, 6.0]))


@pytest.mark.parametrize(("name", "most"), [("lp-ov", 150), ("subset-dp", 18)])
def test_too_many_items_are_refused(name: str, most: int) -> None:
    with pytest.raises(InputError, match=f"got {most + 1}, expected at most {most} items"):
        BOUNDS[name](instance([[1.0]] * (most + 1)))


def test_unequal_weights_are_refused_by_shortest_remaining_time() -> None:
    with pytest.raises(InputError, match=r"weight.*equal weights"):
        release_srpt(instance([[1.0], [2.0]], weight=[1.0, 2.0]))


def test_shortest_remaining_time_preempts() -> None:
    # The long one runs 0-1 and 2-6, the short one 1-2: completions 6 and 2, less their releases.
    assert release_srpt(instance([[5.0], [1.0]], release_s=[0.0, 1.0])) == pytest.approx(6 + 1)


def test_shortest_remaining_time_adds_the_floors_of_those_elsewhere() -> None:
    assert release_srpt(instance([[5.0, 0.0], [1.0, 0.0], [0.0, 2.0]], [], [0, 0, 9], [0, 1, 3])) == pytest.approx(6 + 1 + 9)


def test_shortest_remaining_time_takes_several_links_and_leaves_out_what_waits_anyway() -> None:
    on_two = instance([[2.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 3.0], [1.0, 0.0]], critical_s=[0, 0, 0, 0, 50])
    assert release_srpt(on_two) == pytest.approx((2 + 4) + (3 + 6) + 50)


def test_mean_busy_time_is_below_the_preemptive_optimum_and_above_the_floors() -> None:
    item = instance([[5.0], [1.0]], release_s=[0.0, 1.0])
    # 5 x 1/5 ranks below 1: mean busy time of the long one (0.5 + 4 x 4) / 5 = 3.3, plus 2.5; of the short one 1.5 + 0.5.
    assert release_busy(item) == pytest.approx(3.3 + 2.5 + 2.0 - 1.0)
    assert item.floors_s() < release_busy(item) < release_srpt(item)


@pytest.mark.parametrize("name", BOUNDS)
def test_heads_and_tails_of_one_item_are_its_floor(name: str) -> None:
    assert BOUNDS[name](instance([[2.0, 1.0]], head_s=[[3.0, 0.0]], tail_s=[[4.0, 0.0]])) == pytest.approx(9)


@pytest.mark.parametrize("name", ["lp-ov", "subset-dp", "release-srpt", "release-busy"])
def test_nobody_uses_a_link_before_the_first_is_ready_nor_ends_before_its_tail(name: str) -> None:
    # The link is idle until 2 and carries 1, then 3; the last completion is a tail of 1 later: 4 and 7.
    assert BOUNDS[name](instance([[1.0], [3.0]], [], [], [], [[2.0], [2.0]], [[1.0], [1.0]])) == pytest.approx(4 + 7)


def test_heads_and_tails_mean_nothing_without_load() -> None:
    assert subset_dp(instance([[0.0, 1.0]], head_s=[[9.0, 0.0]], tail_s=[[9.0, 0.0]])) == pytest.approx(1)


def subset_reference(item: Instance) -> float:
    """The subset bound by recursion, M over all subsets by enumeration."""
    load, ready, after = item.dense()
    n = item.items

    @cache
    def alone(members: tuple[int, ...]) -> float:
        own = list(members)
        ends = [
            load[own, p].sum() + ready[own, p].min() + after[own, p].min() for p in range(load.shape[1]) if load[own, p].any()
        ]
        return max(ends, default=0.0)

    @cache
    def end(members: tuple[int, ...]) -> float:
        parts = (part for k in range(1, len(members) + 1) for part in combinations(members, k))
        return max(max(alone(part) for part in parts), *item.floor_s[list(members)], 0.0)

    best = np.inf
    for order in permutations(range(n)):
        prefixes = (tuple(sorted(order[: k + 1])) for k in range(n))
        best = min(best, sum(item.weight[s] * end(prefix) for s, prefix in zip(order, prefixes, strict=True)))
    return max(float(best - item.weight @ item.release_s), item.floors_s())


@pytest.mark.parametrize("seed", range(12))
def test_subset_bound_agrees_with_plain_enumeration(seed: int) -> None:
    item = drawn(seed, 2 + seed % 4, 3, release=4.0 * (seed % 3), wait=2.0 * (seed % 2))
    assert subset_dp(item) == pytest.approx(subset_reference(item), rel=1e-12)


def machine(item: Instance, rank: Callable[[int, float], float]) -> tuple[Floats, Floats]:
    """Serve one link preemptively, the least `rank` of item and seconds left first; return completions and mean busy times."""
    load, ready, after = (values[:, 0] for values in item.dense())
    left, now = load.copy(), 0.0
    end, busy = np.zeros(len(load)), np.zeros(len(load))
    while left.any():
        there = [s for s in range(len(load)) if left[s] > 0 and ready[s] <= now]
        until = min((ready[s] for s in range(len(load)) if left[s] > 0 and ready[s] > now), default=np.inf)
        if there:
            s = min(there, key=lambda s: rank(s, left[s]))
            until = min(until, now + left[s])
            left[s] = left[s] - (until - now) if until < now + left[s] else 0.0
            busy[s] += (until**2 - now**2) / 2 / load[s]
            end[s] = until + after[s]
        now = until
    return end, busy


def on_one_link(seed: int) -> Instance:
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 3, 4) if seed % 2 else np.ones(4)
    release = np.zeros(4) if seed % 3 == 0 else rng.uniform(0, 6, 4)
    head, tail = rng.uniform(0, 2, (2, 4, 1))
    return Instance(weight, rng.uniform(0.5, 4, (4, 1)), np.zeros(4), release, head, tail)


@pytest.mark.parametrize("seed", range(30))
def test_no_priority_order_of_one_link_beats_a_bound(seed: int) -> None:
    item = on_one_link(seed)
    ends = (machine(item, lambda s, _, order=order: order.index(s))[0] for order in permutations(range(4)))
    best = min(float(item.weight @ (end - item.release_s)) for end in ends)
    found = bounds(item)
    assert {name: value for name, value in found.values.items() if value > best * (1 + 1e-9)} == {}
    assert best <= 1.25 * found.best_s


@pytest.mark.parametrize("seed", range(12))
def test_single_machine_bounds_agree_with_a_plain_machine(seed: int) -> None:
    item = on_one_link(seed)
    load, _, after = (values[:, 0] for values in item.dense())
    _, busy = machine(item, lambda s, _: -item.weight[s] / load[s])
    assert release_busy(item) == pytest.approx(item.weight @ (busy + load / 2 + after - item.release_s))
    if seed % 2 == 0:
        end, _ = machine(item, lambda _, left: left)
        assert release_srpt(item) == pytest.approx((end - item.release_s).sum())


def test_links_that_another_one_covers_are_left_out() -> None:
    load = np.array([[3.0, 1.0, 3.0, 0.0], [2.0, 2.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    none, never = np.where(load > 0, 0.0, np.inf), np.where(load > 0, 0.0, np.inf)
    assert distinct_links(load, none, never).tolist() == [0]
    late = none.copy()
    late[0, 1] = 5.0  # link 1 has the smaller loads, but its users come later
    assert sorted(distinct_links(load, late, never).tolist()) == [0, 1]


def test_the_ordering_bound_is_one_after_every_round() -> None:
    item = drawn(1, 12, 8)
    values = [lp_ov(item, gain=0.0, rounds=k) for k in (1, 2, 30)]
    assert values == sorted(values)
    assert values[-1] <= subset_dp(item) * (1 + 1e-6)


def test_exact_on_a_matching_and_on_a_shared_port() -> None:
    free, shared = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    free[0, 0, 0], free[1, 1, 1] = 3.0, 1.0
    shared[0, 0, 0], shared[1, 0, 1] = 3.0, 1.0
    assert exact(np.ones(2), free).total_s == pytest.approx(4)
    assert exact(np.ones(2), shared).total_s == pytest.approx(1 + 4)
    assert exact(np.ones(2), shared).order == (1, 0)


def test_exact_sees_ports_that_cannot_be_busy_at_once() -> None:
    # Coflow 0 fills both uplinks for 1 s; coflow 1 needs each for 1 s, into one downlink: 1 and 3, or 2 and 2.
    demand = np.zeros((2, 3, 3))
    demand[0, 0, 0] = demand[0, 2, 2] = demand[1, 0, 1] = demand[1, 2, 1] = 1.0
    load = np.concatenate([demand.sum(axis=2), demand.sum(axis=1)], axis=1)
    assert subset_dp(instance(load.tolist())) == pytest.approx(1 + 2)
    assert exact(np.ones(2), demand).total_s == pytest.approx(4)
    assert exact(np.ones(1), np.zeros((1, 2, 2))).total_s == 0


@pytest.mark.parametrize(
    ("weight", "demand", "field"),
    [
        (np.ones(7), np.ones((7, 2, 2)), "items"),
        (np.ones(0), np.ones((0, 2, 2)), "items"),
        (np.ones(2), np.ones((2, 2, 3)), "demand"),
        (np.ones(2), np.ones((1, 2, 2)), "demand"),
        (np.ones(2), -np.ones((2, 2, 2)), "demand"),
        (np.ones(2), np.full((2, 2, 2), np.nan), "demand"),
        (np.zeros(2), np.ones((2, 2, 2)), "weight"),
    ],
)
def test_exact_refuses(weight: Floats, demand: Floats, field: str) -> None:
    with pytest.raises(InputError) as error:
        exact(weight, demand)
    assert error.value.field == field


def test_best_static_order_is_found_among_all() -> None:
    assert best_static(3, lambda order: float(order.index(2) * 10 + order.index(0))).order == (2, 0, 1)
    with pytest.raises(InputError, match="1 to 6"):
        best_static(7, lambda order: 0.0)


def test_chained_stages_are_bounded_by_their_studies() -> None:
    # The example of the model: five stages of length 1 against one of length 2 on one link, mean SCT 1.5.
    stages = instance([[1.0]] * 5 + [[2.0]], critical_s=[1.0] * 5 + [2.0])
    found = study_bounds(["a"] * 5 + ["b"], stages)
    assert found.best_s == pytest.approx(2 + 7)
    assert found.mean_s == pytest.approx(1.5)


def test_chained_stages_put_heads_and_tails_on_links_that_only_some_use() -> None:
    stages = instance([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]], [], [2.5, 3.0, 4.0], [], [[0.5, 0], [0, 0], [1, 0]])
    item = chained(["u"] * 3, stages)
    load, ready, after = item.dense()
    assert item.floor_s.tolist() == [2.5 + 3.0 + 4.0]
    assert load.tolist() == [[3.0, 3.0]]
    assert ready.tolist() == [[0.5, 2.5]]
    assert after.tolist() == [[0.0, 4.0]]


@pytest.mark.parametrize(
    ("study", "weight", "release_s", "message"),
    [
        (["a"], [1.0, 1.0], [0.0, 0.0], "one name per stage"),
        (["a", "a"], [1.0, 2.0], [0.0, 0.0], "equal weights inside a study"),
        (["a", "a"], [1.0, 1.0], [0.0, 3.0], "study's own release"),
    ],
)
def test_chained_stages_are_refused(study: list[str], weight: list[float], release_s: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_bounds(study, instance([[1.0], [1.0]], weight, [], release_s))


def test_all_bounds_that_apply_are_returned_and_the_others_with_the_reason() -> None:
    found = bounds(instance([[1.0], [3.0]], [1.0, 2.0], [], [0.0, 1.0]))
    assert set(found.values) == {"lp-ov", "subset-dp", "release-busy"}
    assert "equal weights" in found.inapplicable["release-srpt"]
    assert "one release time" in found.inapplicable["dual"]
    assert found.best_s == max(found.values.values()) == found.values[found.best]
    assert found.mean_s == pytest.approx(found.best_s / 3)


def test_named_bounds_only() -> None:
    assert set(bounds(ONE_LINK, ["dual"]).values) == {"dual"}
    with pytest.raises(InputError, match="did you mean 'lp-ov'"):
        bounds(ONE_LINK, ["lp-vo"])
    with pytest.raises(InputError, match="at least one that applies"):
        bounds(instance([[1.0], [3.0]], [1.0, 2.0]), ["release-srpt"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"weight": np.array([1.0, 0.0])}, "instance.weight"),
        ({"weight": np.ones((2, 1))}, "instance.weight"),
        ({"load": np.ones((3, 1))}, "instance.load"),
        ({"load": np.ones(2)}, "instance.load"),
        ({"load": -np.ones((2, 1))}, "instance.load"),
        ({"load": np.full((2, 1), np.inf)}, "instance.load"),
        ({"critical_s": np.array([1.0, np.nan])}, "instance.critical_s"),
        ({"release_s": np.array([1.0, -1.0])}, "instance.release_s"),
        ({"release_s": np.ones(3)}, "instance.release_s"),
        ({"head_s": np.ones((2, 2))}, "instance.head_s"),
        ({"tail_s": np.full((2, 1), np.nan)}, "instance.tail_s"),
    ],
)
def test_wrong_instances_are_refused(change: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"weight": np.ones(2), "load": np.ones((2, 1)), "critical_s": np.ones(2), "release_s": np.zeros(2)}
    with pytest.raises(InputError) as error:
        Instance(**{**good, **change})
    assert error.value.field == field


GOOD: dict[str, Any] = {
    "weight": np.ones(2),
    "item": np.array([0, 0, 1]),
    "stage": np.array([0, 1, 0]),
    "iterations": np.array([2, 3, 4]),
    "lead_s": np.array([1.0, 0.0, 1.0]),
    "period_s": np.array([2.0, 1.0, 3.0]),
    "load": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]]),
}


def test_jobs_make_an_instance_of_their_chained_stages() -> None:
    jobs = IteratingJobs(**GOOD)
    load, ready, after = jobs.instance.dense()
    assert load.tolist() == [[2.0, 3.0], [4.0, 8.0]]
    assert jobs.instance.floor_s.tolist() == [4.0 + 3.0, 12.0]
    assert ready.tolist() == [[1.0, 4.0], [1.0, 1.0]]
    assert after.tolist() == [[3.0, 0.0], [0.0, 0.0]]
    assert jobs.ready_s.tolist() == [1.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"stage": np.array([0, 2, 0])}, "jobs.stage"),
        ({"item": np.array([0, 0, 0])}, "jobs.item"),
        ({"iterations": np.array([2, 0, 4])}, "jobs.iterations"),
        ({"lead_s": np.array([1.0, -1.0, 1.0])}, "jobs.lead_s"),
        ({"period_s": np.array([2.0, 0.5, 3.0])}, "jobs.period_s[1]"),
        ({"load": np.full((3, 2), np.nan)}, "jobs.load"),
        ({"load": np.ones((2, 2))}, "jobs.load"),
        ({"release_s": np.zeros(3)}, "jobs.release_s"),
    ],
)
def test_wrong_jobs_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        IteratingJobs(**{**GOOD, **change})
    assert error.value.field == field


def single_stage(iterations: Sequence[int], lead_s: Sequence[float], period_s: Sequence[float], load: Rows) -> IteratingJobs:
    n = len(iterations)
    parts = (np.array(part) for part in (iterations, lead_s, period_s, load))
    return IteratingJobs(np.ones(n), np.arange(n), np.zeros(n, np.int64), *parts)


def test_the_barrier_bound_grows_with_its_programmes_from_the_subset_bound() -> None:
    jobs = single_stage([10] * 5, [1.0] * 5, [2.0] * 5, [[1.0]] * 5)
    values = [barrier(jobs, programmes) for programmes in (0, 5, 50, 500)]
    assert values[0] == pytest.approx(subset_dp(jobs.instance))
    assert values == sorted(values)
    assert values[-1] > values[0] * 1.05
    # Two pairs that alternate on the link one after the other, then the fifth alone.
    assert values[-1] <= (20 + 21 + 40 + 41 + 60) * (1 + 1e-9)


def test_the_barrier_bound_of_a_link_begins_when_an_item_needs_it() -> None:
    # Item 1 is not on the link before its lead of 10; item 0, elsewhere, need not wait for that.
    assert barrier(single_stage([1, 1], [0.0, 10.0], [1.0, 11.0], [[1.0, 0.0], [0.0, 1.0]])) == pytest.approx(1 + 11)


def test_the_barrier_bound_lets_a_slack_link_wait_inside_its_iteration() -> None:
    # Item 0 is 3 s elsewhere in its iteration before it needs the link that item 1 has until then.
    assert barrier(single_stage([1, 1], [0.0, 0.0], [4.0, 3.0], [[3.0, 1.0], [0.0, 3.0]])) == pytest.approx(4 + 3)


def test_the_barrier_bound_of_nothing_and_of_too_many() -> None:
    assert barrier(IteratingJobs(np.zeros(0), *(np.zeros(0, np.int64) for _ in range(5)), np.zeros((0, 2)))) == 0
    with pytest.raises(InputError, match="at most 18 items"):
        barrier(single_stage([1] * 19, [0.0] * 19, [1.0] * 19, [[1.0]] * 19))


def test_a_solver_that_gives_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        x, message = None, "time limit"

    monkeypatch.setattr("beamer.bounds.linear_programme.scipy.optimize.linprog", lambda *args, **options: Failed())
    with pytest.raises(BeamerError, match="not solved: time limit"):
        lp_ov(ONE_LINK)
