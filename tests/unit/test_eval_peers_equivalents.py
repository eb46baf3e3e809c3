"""The functions that stand in for those of Pollux' libraries: each against what it stands in for, written plainly."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime  # type: ignore[import-untyped]

from eval.peers.pollux.equivalents import attributes, domination, fronts, gradient, individual, remembering, repeated, winners

SHAPES = (  # nodes, replicas, batch size, times of a sub-step and of a step
    np.array([1, 1, 1, 2, 4]),
    np.array([1, 2, 4, 8, 16]),
    np.array([128, 64, 96, 128, 32]),
    np.array([0.9, 0.5, 0.7, 0.9, 0.25]),
    np.array([0.9, 0.7, 1.1, 1.6, 1.2]),
)


def objective(parameters: Any, nodes: Any, replicas: Any, batch: Any, accumulated_s: Any, step_s: Any) -> float:
    """Return what the fits minimise, as Pollux' paper has it."""
    constant, slope, far, far_slope, near, near_slope, exponent = parameters
    compute = constant + slope * batch
    network = np.full(len(nodes), 1e-8)
    for i, (on, count) in enumerate(zip(nodes, replicas, strict=True)):
        if on > 1:
            network[i] = far + far_slope * max(count - 2, 1e-8)
        elif count > 1:
            network[i] = near + near_slope * max(count - 2, 1e-8)
    step = (compute**exponent + network**exponent) ** (1 / exponent)
    errors = [np.sqrt(np.mean((np.log(a) - np.log(b)) ** 2)) for a, b in ((compute, accumulated_s), (step, step_s))]
    return float(sum(errors) + 1e-3 * (exponent - 1) ** 2 + 1e-2 * ((far_slope / far) ** 2 + (near_slope / near) ** 2))


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parameters = np.concatenate((rng.uniform(0.05, 0.5, 6), [rng.uniform(1.1, 4.0)]))
    expected = approx_fprime(parameters, objective, 1e-7, *SHAPES)
    assert gradient(parameters, *SHAPES) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_an_exact_prediction_has_a_finite_gradient() -> None:
    parameters = np.array([0.1, 0.01, 0.1, 0.02, 0.1, 0.03, 2.0])
    one = np.array([1]), np.array([1]), np.array([10]), np.array([0.1 + 0.01 * 10]), np.array([0.4])
    assert np.isfinite(gradient(parameters, *one)).all()


def plain_fronts(values: Any) -> list[list[int]]:
    """Return the fronts as Deb's sort finds them: for each point the list of those that it dominates."""
    n = len(values)
    dominated: list[list[int]] = [[] for _ in range(n)]
    by = [0] * n
    for i in range(n):
        for j in range(n):
            if all(values[i] <= values[j]) and any(values[i] < values[j]):
                dominated[i].append(j)
                by[j] += 1
    found = [[i for i in range(n) if not by[i]]]
    while sum(map(len, found)) < n:
        following = []
        for i in found[-1]:
            for j in dominated[i]:
                by[j] -= 1
                if not by[j]:
                    following.append(j)
        found.append(following)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_fronts_are_those_of_the_plain_sort_in_its_order(seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 12, (60, 2)).astype(float)
    assert fronts(values) == plain_fronts(values)
    one, other = values[7], values[21]
    less, more = bool((one < other).any()), bool((one > other).any())
    assert domination(values)[7, 21] == (less and not more) - (more and not less)
    assert fronts(np.zeros((0, 2))) == []


def population(rows: Any, values: Any = None, crowding: Any = None) -> list[Any]:
    found = []
    for number, row in enumerate(rows):
        one = SimpleNamespace()
        individual(one, X=np.array(row), F=None if values is None else np.array(values[number]))
        one.data["crowding"] = None if crowding is None else crowding[number]
        found.append(one)
    return found


def test_repeated_individuals_are_marked() -> None:
    rows = population([[1, 2], [3, 4], [1, 2], [0, 0]])
    assert repeated(None, rows, None, np.full(4, False)).tolist() == [False, False, True, False]
    assert repeated(None, rows, population([[3, 4]]), np.full(4, False)).tolist() == [False, True, False, False]


def test_attributes_come_from_the_data_first() -> None:
    rows = population([[1], [2]], crowding=[0.5, 0.7])
    x, crowding, missing = attributes(rows, "X", "crowding", "rank")
    assert (x.tolist(), crowding.tolist(), missing.tolist()) == ([[1], [2]], [0.5, 0.7], [None, None])
    assert attributes(rows, "crowding", to_numpy=False) == [0.5, 0.7]


def test_the_dominating_wins_then_the_less_crowded_then_either() -> None:
    values, crowding = [[0.0, 0.0], [1.0, 1.0], [0.0, 2.0], [0.0, 2.0]], [1.0, np.inf, np.inf, np.inf]
    rows = population([[0]] * 4, values, crowding)
    pairs = np.array([[1, 0], [1, 2], [0, 1], [2, 3]])
    algorithm = SimpleNamespace(tournament_type="comp_by_dom_and_crowding")
    np.random.seed(3)
    found = winners(rows, pairs, algorithm)[:, 0]
    np.random.seed(3)
    either = np.random.choice([1, 2]), np.random.choice([2, 3])  # in their order: neither dominates the other, both at the rim
    assert found.tolist() == [0, either[0], 0, either[1]]


def test_equal_fits_are_made_once() -> None:
    calls: list[bytes] = []

    def array(text: bytes) -> Any:
        return SimpleNamespace(tobytes=lambda: text)

    def counted(*arrays: Any) -> int:
        calls.append(b"")
        return len(calls)

    fit = remembering(counted)
    assert [fit(array(b"x"), array(b"y")), fit(array(b"x"), array(b"y")), fit(array(b"xy"), array(b""))] == [1, 1, 2]
