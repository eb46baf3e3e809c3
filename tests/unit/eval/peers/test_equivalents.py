"""The functions that stand in for those of Pollux' libraries: each against what it stands in for, written plainly."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime  # type: ignore[import-untyped]

from eval.peers.pollux.equivalents import gradient, remembering
from eval.peers.pollux.genetic import Population, domination, fronts, minimize, repeated, survivors, winners

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
    assert domination(values)[7, 21] == (bool((one < other).any()) and not (one > other).any())
    assert fronts(np.zeros((0, 2))) == []


def test_repeated_rows_are_marked() -> None:
    rows = np.array([[1, 2], [3, 4], [1, 2], [0, 0]])
    assert repeated(rows, []).tolist() == [False, False, True, False]
    assert repeated(rows, [np.array([[3, 4]])]).tolist() == [False, True, True, False]


def test_the_dominating_wins_then_the_less_crowded_then_either() -> None:
    values = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    population = Population(np.zeros((4, 1), int), values, np.array([1.0, np.inf, 2.0, 2.0]))
    contests = 200
    np.random.seed(3)
    found = winners(population, contests)
    np.random.seed(3)
    pairs = np.concatenate([np.random.permutation(4) for _ in range(contests // 2)]).reshape(-1, 2).tolist()
    expected = []
    for first, second in pairs:
        if {first, second} == {2, 3}:
            expected.append(int(np.random.choice([first, second])))  # equal: at random, in their order
        elif 0 in (first, second):
            expected.append(0)  # dominates all others
        else:
            expected.append(1)  # neither dominates the other, and 1 is at the rim
    assert found.tolist() == expected


def test_survivors_are_the_first_fronts_and_the_least_crowded_of_the_last() -> None:
    values = np.array([[3.0, 3.0], [0.0, 2.0], [1.0, 1.0], [2.0, 0.0], [2.0, 3.0], [1.5, 3.5]])
    distances = {(0.0, 2.0): 9.0, (1.0, 1.0): 1.0, (2.0, 0.0): 8.0, (2.0, 3.0): 5.0, (1.5, 3.5): 6.0}

    def crowding(front: Any) -> Any:
        return np.array([distances[tuple(point)] for point in front.tolist()])

    rows = np.arange(6)[:, None]
    assert sorted(survivors(rows, values, 2, crowding).X[:, 0].tolist()) == [1, 3]
    found = survivors(rows, values, 4, crowding)
    assert found.X[:, 0].tolist() == [1, 2, 3, 5]
    assert found.crowding.tolist() == [9.0, 1.0, 8.0, 6.0]
    assert len(survivors(rows[:5], values[1:], 9, crowding).X) == 5


class Nearest:
    """Whole numbers of which the first shall be small and the second large; operators as the artifact has them."""

    n_constr, pop_size, n_offsprings, tournament_type, n_parents, prob = 0, 20, 20, "comp_by_dom_and_crowding", 2, 0.9

    def __init__(self) -> None:
        self.initialization = SimpleNamespace(sampling=np.full((3, 2), 50))
        self.mating = SimpleNamespace(crossover=self, mutation=self)
        self.repair = SimpleNamespace(do=lambda problem, population: population.new("X", np.clip(population.get("X"), 0, 100)))

    def _do(self, problem: Any, parents: Any) -> Any:
        return parents[::-1]

    def do(self, problem: Any, population: Any) -> Any:
        return population.new("X", population.get("X") + np.random.randint(-5, 6, size=population.get("X").shape))

    def evaluate(self, rows: Any, **unused: Any) -> Any:
        return {"F": np.column_stack([rows[:, 0] + 0.1 * rows[:, 1], -rows[:, 1]])}


def test_generations_find_the_front() -> None:
    np.random.seed(1)
    rows, values = minimize(Nearest(), Nearest(), ("n_gen", 60), lambda front: np.ones(len(front)))
    assert len(rows) == len(values) > 1
    assert values[:, 0].min() < 8
    assert values[:, 1].min() < -95
    assert not domination(values).any()


def test_equal_fits_are_made_once() -> None:
    calls: list[bytes] = []

    def array(text: bytes) -> Any:
        return SimpleNamespace(tobytes=lambda: text)

    def counted(*arrays: Any) -> int:
        calls.append(b"")
        return len(calls)

    fit = remembering(counted)
    assert [fit(array(b"x"), array(b"y")), fit(array(b"x"), array(b"y")), fit(array(b"xy"), array(b""))] == [1, 1, 2]
