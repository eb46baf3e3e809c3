"""Who goes on at a rung, judged by who came before."""

from collections.abc import Iterable
from math import inf, isfinite, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.studies.asynchronous_halving import AsynchronousHalving, RungArrival


def test_rungs_lie_ever_farther_apart_and_end_with_the_iterations() -> None:
    def steps(*arguments: int) -> list[int]:
        rungs = AsynchronousHalving(*arguments).rungs
        assert len({rung.name for rung in rungs}) == len(rungs)
        assert all(rung.trials == 0 for rung in rungs)
        return [rung.step for rung in rungs]

    assert steps(150) == [1, 4, 16, 64, 150]
    assert steps(64) == [1, 4, 16, 64]
    assert steps(270, 3, 10) == [10, 30, 90, 270]
    assert steps(1) == [1]


def arrivals(halving: AsynchronousHalving, losses: Iterable[float]) -> list[RungArrival]:
    """Let trials with these losses come to a rung one after another."""
    found: list[RungArrival] = []
    for loss in losses:
        found.append(RungArrival(loss, halving.goes_on(loss, found)))
    return found


def who_goes_on(halving: AsynchronousHalving, losses: Iterable[float]) -> list[int]:
    return [i for i, one in enumerate(arrivals(halving, losses)) if one.went_on]


def test_the_first_goes_on_and_then_one_in_so_many_of_the_best() -> None:
    halving = AsynchronousHalving(100, 4)
    assert who_goes_on(halving, [9.0]) == [0]
    assert who_goes_on(halving, [8.0, 9.0, 7.0]) == [0, 2]
    before = arrivals(halving, [8.0, 9.0, 10.0])
    assert halving.goes_on(7.0, before)
    assert not halving.goes_on(8.5, before)
    assert halving.goes_on(8.5, arrivals(halving, [8.0, 9.0, 10.0, 11.0])), "the second of five"


@pytest.mark.parametrize("reduction_factor", [2, 3, 4])
@pytest.mark.parametrize("mark", [0.1, 1.0, -3.5])
def test_one_in_so_many_of_equal_trials_goes_on_whenever_they_come(reduction_factor: int, mark: float) -> None:
    on = who_goes_on(AsynchronousHalving(100, reduction_factor), [mark] * 64)
    assert on == list(range(0, 64, reduction_factor))


def test_sixteen_of_64_ties_go_on() -> None:
    assert len(who_goes_on(AsynchronousHalving(100), [0.5] * 64)) == 16


def test_equals_of_a_trial_that_was_ended_do_not_keep_it_from_going_on() -> None:
    halving = AsynchronousHalving(100, 4)
    ended = [RungArrival(8.0, False)] * 4
    assert halving.goes_on(8.0, [RungArrival(8.0, True), *ended[1:], RungArrival(9.0, False)])
    assert not halving.goes_on(8.0, [RungArrival(8.0, True), RungArrival(8.0, True), *ended[2:]])


@given(
    st.lists(st.sampled_from([k / 10 for k in range(10)]) | st.sampled_from([nan, inf, -inf]), max_size=64), st.integers(2, 5)
)
@settings(deadline=None)
def test_the_rule_of_both_counts(losses: list[float], reduction_factor: int) -> None:
    halving = AsynchronousHalving(100, reduction_factor)
    found: list[RungArrival] = []
    for loss in losses:
        best = -(-(len(found) + 1) // reduction_factor)
        goes_on = halving.goes_on(loss, found)
        if not isfinite(loss):
            assert not goes_on
        else:
            other = [one for one in found if isfinite(one.loss)]
            strictly = sum(one.loss < loss for one in other)
            ahead = sum(one.loss <= loss and one.went_on for one in other)
            assert goes_on == (strictly < best and ahead < best)
        found.append(RungArrival(loss, goes_on))
    for mark in set(losses):
        equal = [one for one in found if one.loss == mark]
        assert sum(one.went_on for one in equal) <= -(-len(found) // reduction_factor)


@given(st.lists(st.floats(-1e9, 1e9), unique=True, max_size=40), st.integers(2, 5))
@settings(deadline=None)
def test_trials_of_different_losses_are_judged_by_rank_alone(losses: list[float], reduction_factor: int) -> None:
    on = who_goes_on(AsynchronousHalving(100, reduction_factor), losses)
    assert on == [i for i, loss in enumerate(losses) if sorted(losses[: i + 1]).index(loss) < -(-(i + 1) // reduction_factor)]


def test_a_loss_that_is_not_finite_is_the_worst() -> None:
    halving = AsynchronousHalving(100, 4)
    for loss in (nan, inf, -inf):
        assert not halving.goes_on(loss, [])
        assert halving.goes_on(5.0, [RungArrival(loss, False)])


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("iterations", (0,)), ("reduction_factor", (10, 1)), ("first", (10, 4, 11)), ("first", (10, 4, 0))],
)
def test_what_makes_no_sense_is_refused(field: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=field):
        AsynchronousHalving(*arguments)
