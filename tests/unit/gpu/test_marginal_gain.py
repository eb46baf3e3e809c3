"""Handing out GPUs by marginal gain, against every other way of handing them out."""

from itertools import product

import numpy as np
import pytest

from beamer.gpu.marginal_gain import _hulls, allocate_by_gain, candidate_sizes


def test_steps_on_hulls_reach_the_optimum_of_concave_tables() -> None:
    rng = np.random.default_rng(0)
    sizes = np.tile(np.arange(5), (4, 1))
    for _ in range(20):
        value = np.cumsum(-np.sort(-rng.random((4, 5)), axis=1), axis=1) - 3.0
        value[:, 1:] = np.where(np.arange(1, 5) > rng.integers(2, 6, (4, 1)), -np.inf, value[:, 1:])
        for gpus in range(13):
            chosen = allocate_by_gain(sizes, value, gpus)
            best = max(value[np.arange(4), list(pick)].sum() for pick in product(range(5), repeat=4) if sum(pick) <= gpus)
            assert chosen.sum() <= gpus
            assert value[np.arange(4), chosen].sum() == pytest.approx(best)


def test_hulls_skip_what_lies_below_them() -> None:
    rows, starts, ends, slope = _hulls(np.array([[0, 1, 2, 4]]), np.array([[0.0, 1.0, 6.0, 8.0]]))
    assert (rows.tolist(), starts.tolist(), ends.tolist(), slope.tolist()) == ([0, 0], [0, 2], [2, 3], [3.0, 1.0])


def test_sizes_on_several_nodes_are_whole_nodes() -> None:
    assert candidate_sizes(4, 40, whole_nodes=True).tolist() == [1, 2, 3, 4, 8, 12, 16, 24, 32]
    assert set(range(1, 17)) < set(candidate_sizes(4, 40, whole_nodes=False).tolist())
    assert candidate_sizes(4, 3, whole_nodes=True).tolist() == [1, 2, 3]
