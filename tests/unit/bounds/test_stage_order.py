"""The stage-order bound where it is known, its search, and exact optima of tiny instances in unit steps."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

from beamer.bounds import IteratingJobs
from beamer.bounds.barrier import barrier
from beamer.bounds.stage_order import stage_order
from beamer.bounds.stage_programme import Programmes
from beamer.bounds.subset_dp import subset_dp
from beamer.errors import InputError
from tests.support.tiers import long

ROUNDING = 1 + 1e-9

Row = tuple[int, int, int, int, tuple[int, ...]]  # item, stage, iterations, lead, load


def jobs_of(rows: list[Row], weight: tuple[float, ...], release: tuple[float, ...] = ()) -> IteratingJobs:
    """Make jobs of one phase: an iteration alone is its lead and then its largest load."""
    item, stage, iterations, lead = (np.array([row[k] for row in rows]) for k in range(4))
    load = np.array([row[4] for row in rows], np.float64)
    period = lead + load.max(axis=1)
    return IteratingJobs(
        np.array(weight),
        item,
        stage,
        iterations,
        lead.astype(np.float64),
        period,
        load,
        np.array(release or [0.0] * len(weight)),
    )


BEFORE_A_WAIT = [(0, 0, 1, 0, (1, 0)), (1, 0, 1, 0, (3, 0)), (1, 1, 1, 2, (0, 1))]


def test_work_before_a_barrier_cannot_be_made_up_for_after_it() -> None:
    # Item 0 ends at 1, and item 1 its first stage, on the same link, at 4 and its second, 3 s elsewhere, at 7; or they end at 4
    # and 6. In the barrier bound item 1's second stage may run while its first one waits: 1 and 6.
    jobs = jobs_of(BEFORE_A_WAIT, (1.0, 1.0))
    assert barrier(jobs) == pytest.approx(1 + 6)
    assert stage_order(jobs) == pytest.approx(1 + 7) == pytest.approx(optimum(jobs))


def test_weights_choose_who_waits() -> None:
    # Before: 1 x 1 + 5 x 7 = 36; after: 1 x 4 + 5 x 6 = 34.
    assert stage_order(jobs_of(BEFORE_A_WAIT, (1.0, 5.0))) == pytest.approx(34)
    assert stage_order(jobs_of(BEFORE_A_WAIT, (5.0, 1.0))) == pytest.approx(5 + 7)


def test_nothing_of_an_item_runs_before_its_release() -> None:
    # Item 0 comes at 2 and ends at 3 while item 1 waits, at 4 and 7; or at 4, and item 1 at 6. Either is 8.
    jobs = jobs_of(BEFORE_A_WAIT, (1.0, 1.0), (2.0, 0.0))
    assert barrier(jobs) == pytest.approx(1 + 6)
    assert stage_order(jobs) == pytest.approx(1 + 7)


def test_work_before_a_release_is_none() -> None:
    # Item 1 sends over link 0 at 2 to 5 and 6 to 9 and ends at 10, item 0 at 5 to 6 and 7 to 8: one second has to wait.
    jobs = jobs_of([(0, 0, 2, 1, (1, 1)), (1, 0, 2, 1, (3, 2)), (1, 1, 1, 0, (0, 1))], (2.0, 1.0), (4.0, 1.0))
    assert barrier(jobs) == pytest.approx(2 * 4 + 9)
    assert stage_order(jobs) == pytest.approx(2 * 4 + 10) == pytest.approx(optimum(jobs))


@pytest.mark.parametrize(
    ("rows", "weight", "value"),
    [
        ([(0, 0, 3, 1, (1, 0)), (0, 0, 3, 0, (1, 2)), (0, 1, 1, 2, (0, 1)), (1, 0, 3, 2, (0, 1))], (1.0, 3.0), 38),
        ([(0, 0, 1, 2, (0, 1)), (0, 1, 3, 1, (1, 2)), (1, 0, 1, 0, (0, 3)), (2, 0, 1, 1, (3, 0))], (1.0, 3.0, 3.0), 34),
        ([(0, 0, 4, 0, (2, 0, 0)), (0, 0, 2, 0, (0, 0, 1)), (0, 1, 2, 0, (0, 1, 3)), (1, 0, 3, 1, (3, 3, 3))], (2.0, 1.0), 49),
    ],
)
def test_optima_that_take_every_row(rows: list[Row], weight: tuple[float, ...], value: float) -> None:
    """Without upper envelopes, with work that falls, or with links apart, the bound is below these optima."""
    jobs = jobs_of(rows, weight)
    assert stage_order(jobs) == pytest.approx(value) == pytest.approx(optimum(jobs))


def test_an_iteration_carries_nothing_in_its_lead() -> None:
    # Two pairs that alternate on the link one after the other: no order of four such jobs has a third one beside the first two.
    jobs = jobs_of([(i, 0, 10, 1, (1,)) for i in range(4)], (1.0,) * 4)
    assert stage_order(jobs) == pytest.approx(20 + 21 + 40 + 41)


def test_the_bound_grows_with_its_programmes_from_the_subset_bound() -> None:
    rng = np.random.default_rng(4)
    jobs = drawn(rng, items=3, stages=3, most=3, links=4, iterations=4)
    values = [stage_order(jobs, programmes) for programmes in (0, 3, 10, 30, 300)]
    assert values[0] == pytest.approx(subset_dp(jobs.instance))
    assert values == sorted(values)
    assert values[-1] > 1.1 * barrier(jobs)


@pytest.mark.parametrize("size", [1e-6, 1e9])
def test_the_unit_of_time_does_not_matter(size: float) -> None:
    jobs = drawn(np.random.default_rng(1), items=3, stages=2, most=2, links=3, iterations=3)
    jobs = replace(jobs, release_s=np.array([0.0, 3.0, 5.0]))
    fields = {name: getattr(jobs, name) * size for name in ("lead_s", "period_s", "load", "release_s")}
    assert stage_order(replace(jobs, **fields)) == pytest.approx(stage_order(jobs) * size, rel=1e-6)


def test_an_order_bounds_those_that_extend_it() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        programmes = Programmes(drawn(rng, items=3, stages=3, most=2, links=3, iterations=3))
        order = [int(e) for e in programmes.final]
        values = [programmes.solve(tuple(order)).value]
        for e in set(range(programmes.stages)) - set(order):
            start, due = (int(at[e]) for at in programmes.window(tuple(order)))
            order.insert(int(rng.integers(start + 1, due + 1)), e)
            values.append(programmes.solve(tuple(order)).value)
        assert all(a <= b * (1 + 1e-6) for a, b in pairwise(values)), values


def test_nothing_and_too_many() -> None:
    assert stage_order(IteratingJobs(np.zeros(0), *(np.zeros(0, np.int64) for _ in range(5)), np.zeros((0, 2)))) == 0
    with pytest.raises(InputError, match="at most 18 items, for the stage-order bound"):
        stage_order(jobs_of([(i, 0, 1, 0, (1,)) for i in range(19)], (1.0,) * 19))


def test_items_without_load_take_what_they_take_alone() -> None:
    jobs = jobs_of([(0, 0, 2, 3, (0,)), (0, 1, 1, 4, (0,)), (1, 0, 1, 5, (0,))], (1.0, 2.0), (0.0, 7.0))
    assert stage_order(jobs) == pytest.approx(10 + 2 * 5)


def drawn(rng: np.random.Generator, items: int, stages: int, most: int, links: int, iterations: int) -> IteratingJobs:
    """Draw jobs in whole seconds: up to `stages` stages of up to `most` jobs of up to `iterations` iterations."""
    rows: list[Row] = []
    for item in range(items):
        for stage in range(int(rng.integers(1, stages + 1))):
            for _ in range(int(rng.integers(1, most + 1))):
                load = rng.integers(0, 4, links) * (rng.random(links) < 0.7)
                load[rng.integers(links)] += not load.any()
                rows.append((item, stage, int(rng.integers(1, iterations + 1)), int(rng.integers(0, 3)), tuple(load.tolist())))
    return jobs_of(rows, tuple(rng.choice([1.0, 2.0, 3.0], items).tolist()))


# Of each item, the time to its release; of each job, iterations left, and of this one the lead and the loads left.
State = tuple[tuple[int, ...], tuple[tuple[int, int, tuple[int, ...]], ...]]


def optimum(jobs: IteratingJobs) -> float:
    """Return the least objective of all schedules in which a link serves one job for a second at a time."""
    lead, load = jobs.lead_s.astype(int).tolist(), jobs.load.astype(int).tolist()
    key = list(zip(jobs.item.tolist(), jobs.stage.tolist(), range(len(jobs.item)), strict=True))

    def running(state: State) -> list[int]:
        left = [k for k in key if state[1][k[2]][0] > 0 and state[0][k[0]] == 0]
        return [j for item, stage, j in left if stage == min(s for i, s, _ in left if i == item)]

    def next_states(state: State) -> Iterator[State]:
        going = running(state)
        users = ([j for j in going if state[1][j][1] == 0 and state[1][j][2][p] > 0] or [-1] for p in range(jobs.load.shape[1]))
        for served in product(*users):
            after = list(state[1])
            for j in going:
                count, wait, left = after[j]
                left = left if wait else tuple(x - (served[p] == j) for p, x in enumerate(left))
                wait = max(wait - 1, 0)
                after[j] = (count, wait, left) if wait or any(left) else (count - 1, lead[j], tuple(load[j]))
            yield tuple(max(wait - 1, 0) for wait in state[0]), tuple(after)

    @cache
    def least(state: State) -> float:
        if not any(count for count, _, _ in state[1]):
            return 0.0
        open_items = {key[j][0] for j in running(state)}
        return float(sum(jobs.weight[i] for i in open_items)) + min(least(after) for after in next_states(state))

    first = tuple(zip(jobs.iterations.tolist(), lead, map(tuple, load), strict=True))
    return least((tuple(jobs.release_s.astype(int).tolist()), first))


@pytest.mark.parametrize("block", long(*range(8)))
def test_no_optimum_in_unit_steps_beats_the_bound(block: int) -> None:
    """Unit steps are only some schedules, so that the least of any is between the bound and theirs."""
    rng = np.random.default_rng(block)
    ratios = []
    for number in range(25):
        more = number % 2
        jobs = drawn(rng, items=2 + more, stages=2 + more, most=2 - more, links=2, iterations=2)
        if block % 2:
            jobs = replace(jobs, release_s=rng.integers(0, 7, 2 + more).astype(np.float64))
        least = optimum(jobs)
        values = [subset_dp(jobs.instance), barrier(jobs), stage_order(jobs)]
        assert values[0] <= values[1] * ROUNDING <= values[2] * ROUNDING**2 <= least * ROUNDING**3, (
            block,
            number,
            values,
            least,
        )
        ratios.append([value / least for value in values])
    mean = np.mean(ratios, axis=0)
    assert mean[2] >= 0.975
    assert mean[2] >= mean[1] + 0.02
