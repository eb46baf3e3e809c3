"""Who goes on at a rung, judged by who came before."""

from math import inf, nan

import pytest

from beamer.errors import InputError
from beamer.studies.asynchronous_halving import AsynchronousHalving


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


def test_the_first_goes_on_and_then_one_in_so_many_of_the_best() -> None:
    halving = AsynchronousHalving(100, 4)
    assert halving.goes_on(9.0, [])
    assert not halving.goes_on(9.0, [8.0])
    assert halving.goes_on(7.0, [8.0, 9.0, 10.0])
    assert not halving.goes_on(8.5, [8.0, 9.0, 10.0])
    assert halving.goes_on(8.5, [8.0, 9.0, 10.0, 11.0]), "the second of five"
    assert not halving.goes_on(8.0, [8.0]), "of equals the first"


def test_a_loss_that_is_not_finite_is_the_worst() -> None:
    halving = AsynchronousHalving(100, 4)
    for loss in (nan, inf, -inf):
        assert not halving.goes_on(loss, [])
        assert halving.goes_on(5.0, [loss])


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("iterations", (0,)), ("reduction_factor", (10, 1)), ("first", (10, 4, 11)), ("first", (10, 4, 0))],
)
def test_what_makes_no_sense_is_refused(field: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=field):
        AsynchronousHalving(*arguments)
