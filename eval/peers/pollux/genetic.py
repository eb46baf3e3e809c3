"""The genetic algorithm of the artifact's library (pymoo's NSGA-II) on arrays: the same steps to the last bit, sooner.

The library keeps an object for each individual of a population, which takes longer than what is computed with them. The
operators are the artifact's own. [Deb et al. 2002]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MATINGS = 100  # at most, beyond the first, to make as many new individuals as are asked for


@dataclass
class Population:
    """Individuals: whole numbers, a row each, and once they are known their objectives and how far they are from others."""

    X: Array
    F: Array
    crowding: Array

    def get(self, name: str) -> Array:
        """Return the rows, as the artifact's operators ask for them."""
        assert name == "X"
        return self.X

    def new(self, name: str, rows: Array) -> "Population":
        """Return individuals that are not evaluated."""
        assert name == "X"
        return Population.of(rows)

    @classmethod
    def of(cls, rows: Array) -> "Population":
        """Return individuals that are not evaluated."""
        return cls(rows, np.zeros((0, 2)), np.zeros(0))


def minimize(
    problem: Any, algorithm: Any, termination: tuple[str, int], crowding: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Return the individuals that no other dominates, and their objectives.

    algorithm: pymoo's NSGA2, with its operators and the individuals to start from. termination: "n_gen" and the number of
    generations. crowding: pymoo's function of a front's objectives.
    """
    unit, generations = termination
    assert (unit, algorithm.tournament_type, problem.n_constr) == ("n_gen", "comp_by_dom_and_crowding", 0)
    np.random.seed(np.random.randint(0, 10000000))  # the library, too, starts the generator anew with a number drawn from it
    rows = algorithm.repair.do(problem, Population.of(algorithm.initialization.sampling)).X
    rows = rows[~repeated(rows, [])]
    population = survivors(rows, evaluated(problem, rows), len(rows), crowding)
    for _ in range(generations - 1):
        offspring = offspring_of(problem, algorithm, population)
        if not len(offspring):
            break
        values = np.concatenate([population.F, evaluated(problem, offspring)])
        population = survivors(np.concatenate([population.X, offspring]), values, algorithm.pop_size, crowding)
    best = fronts(population.F)[0]
    best.sort()
    return population.X[best], population.F[best]


def evaluated(problem: Any, rows: Array) -> Array:
    """Return the objectives of individuals."""
    return np.asarray(problem.evaluate(rows, return_values_of=["F"], return_as_dictionary=True)["F"])


def offspring_of(problem: Any, algorithm: Any, population: Population) -> Array:
    """Return new individuals, none of them twice or among those that there are."""
    found = population.X[:0]
    for _ in range(MATINGS + 1):
        missing = algorithm.n_offsprings - len(found)
        if missing <= 0:
            break
        parents = winners(population, math.ceil(missing / algorithm.mating.crossover.n_offsprings) * 2).reshape(-1, 2)
        rows = crossed_over(problem, algorithm.mating.crossover, population.X[parents.T])
        rows = algorithm.mating.mutation.do(problem, Population.of(rows))
        rows = algorithm.repair.do(problem, rows).X
        rows = rows[~repeated(rows, [population.X, found])]
        found = np.concatenate([found, rows[:missing]])
    return found


def winners(population: Population, count: int) -> NDArray[np.int_]:
    """Return the winners of as many contests of two at random: who dominates the other, or else is less crowded, or either."""
    draws = [np.random.permutation(len(population.X)) for _ in range(math.ceil(2 * count / len(population.X)))]
    first, second = pairs = np.concatenate(draws)[: 2 * count].reshape(-1, 2).T
    values, crowding = population.F, population.crowding
    better = (values[first] < values[second]).any(axis=1).astype(int) - (values[second] < values[first]).any(axis=1)
    less_crowded = (crowding[first] > crowding[second]).astype(int) - (crowding[first] < crowding[second])
    better = np.where(better == 0, less_crowded, better)
    won = np.where(better > 0, first, second)
    either = np.flatnonzero(better == 0)
    won[either] = pairs[np.random.randint(0, 2, size=len(either)), either]  # the same numbers as one by one
    return won


def crossed_over(problem: Any, crossover: Any, parents: Array) -> Array:
    """Return the offspring of pairs: of shape (2, pairs, whole numbers); some are their parents again."""
    crosses = np.random.random(parents.shape[1]) < crossover.prob
    children = crossover._do(problem, parents.copy())
    return np.where(crosses[None, :, None], children, parents).reshape(-1, parents.shape[-1])


def repeated(rows: Array, others: list[Array]) -> NDArray[np.bool_]:
    """Mark the rows that are equal to one before them or to one of others."""
    assert rows.dtype == int
    known = {row.tobytes() for array in others for row in array}
    marks = np.zeros(len(rows), bool)
    for number, row in enumerate(rows):
        key = row.tobytes()
        marks[number] = key in known
        known.add(key)
    return marks


def survivors(rows: Array, values: Array, count: int, crowding_of: Callable[[Array], Array]) -> Population:
    """Return those of the first fronts, of the last of them the least crowded."""
    count = min(count, len(rows))
    kept: list[Array] = []
    crowding = np.zeros(len(rows))
    left = count
    for front in map(np.array, fronts(values)):
        crowding[front] = distances = crowding_of(values[front])
        if left < len(front):
            shuffled = np.random.permutation(len(front))
            front = front[shuffled[np.argsort(distances[shuffled], kind="quicksort")][::-1][:left]]
        kept.append(front)
        left -= len(front)
        if left <= 0:
            break
    chosen = np.concatenate(kept)
    return Population(rows[chosen], values[chosen], crowding[chosen])


def domination(values: Array) -> NDArray[np.bool_]:
    """Return by row and column whether a row's point dominates the column's: smaller in one objective and larger in none."""
    smaller = larger = np.zeros((len(values), len(values)), bool)
    for column in values.T:
        below = column[:, None] < column[None, :]
        smaller, larger = smaller | below, larger | below.T
    return smaller & ~larger


def fronts(values: Array) -> list[list[int]]:
    """Return the points' numbers by front: within one in the order in which Deb's sort finds them [Deb et al. 2002]."""
    dominates = domination(values)
    left = dominates.sum(axis=0)
    front = np.flatnonzero(left == 0)
    found = [front.tolist()] if len(values) else []
    while sum(map(len, found)) < len(values):
        of_front = dominates[front]
        beaten = of_front.sum(axis=0)
        freed = np.flatnonzero((left > 0) & (left == beaten))
        left = left - beaten
        last = len(front) - 1 - of_front[::-1, freed].argmax(axis=0)  # The last of the front that dominates it frees it.
        front = freed[np.lexsort((freed, last))]
        found.append(front.tolist())
    return found
