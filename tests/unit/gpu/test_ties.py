"""Numbers that rounding alone tells apart are equal, and a rule decides between them."""

from itertools import permutations

import numpy as np
import pytest

from beamer.gpu.evolution import Throughputs, scores, select_best
from beamer.gpu.marginal_gain import allocate_by_gain
from beamer.gpu.ties import NO_ERROR, comparable, comparable_errors

LAST_BITS = 1.0 + 4 * np.finfo(np.float64).eps


def test_last_bits_are_dropped_and_nothing_else() -> None:
    values = np.array([0.0, 1.0, -1.0, 0.1, 1e300, 1e-300, np.inf, -np.inf])
    assert comparable(values) == pytest.approx(values, rel=1e-9)
    assert (comparable(values * LAST_BITS) == comparable(values)).all()
    assert comparable(1.0) < comparable(1.0 + 1e-8)
    assert np.isnan(comparable(np.nan))
    assert comparable_errors(np.array([NO_ERROR / 2, 0.25])).tolist() == [0.0, 0.25]


def test_equal_gains_go_to_the_first_job_whatever_the_last_bits() -> None:
    sizes = np.array([[0, 1, 2]] * 3)
    for factors in permutations((1.0, LAST_BITS, 1.0 / LAST_BITS)):
        value = np.array([[0.0, 0.3, 0.6]] * 3) * np.array(factors)[:, None]
        assert allocate_by_gain(sizes, value, 4).tolist() == [2, 1, 1]


def test_assignments_of_jobs_that_speed_up_linearly_tie() -> None:
    rates = Throughputs.of([[(1.0, 0.1), (3.0, 0.3)], [(1.0, 0.7), (7.0, 4.9)]])
    held = np.array([[1, 1], [2, 1], [3, 1], [1, 3], [1, 7]])
    for remaining in np.random.default_rng(0).uniform(1, 100, (50, 2)):
        score = scores(held, remaining, rates)
        assert len(set(score.tolist())) == 1
        assert select_best(held, score, 2).tolist() == [0, 1]
