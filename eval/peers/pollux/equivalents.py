"""Functions of the artifact's libraries that return the same sooner: otherwise a run spends more than half its time in them.

The artifact's own code is run as it is. Its genetic algorithm (pymoo) takes the same steps to the last bit; the gradients of
its fits, which it has differentiated automatically (autograd), agree to rounding errors.
"""

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def install(simulator: Any) -> None:
    """Put the functions in the places of those that the simulator's modules use."""
    goodput = import_module("goodput")
    goodput.autograd = SimpleNamespace(numpy=np, grad=lambda objective: gradient)  # type: ignore[attr-defined]
    simulator.fit_perf_params = remembering(simulator.fit_perf_params)
    import_module("pymoo.util.dominator").Dominator.calc_domination_matrix = staticmethod(domination)
    import_module("pymoo.util.nds.fast_non_dominated_sort").fast_non_dominated_sort = fronts  # type: ignore[attr-defined]
    import_module("pymoo.model.population").Population.get = attributes
    import_module("pymoo.model.individual").Individual.__init__ = individual
    import_module("pymoo.model.duplicate").DefaultDuplicateElimination._do = repeated
    defaults = import_module("pymoo.algorithms.nsga2").NSGA2.__init__.__defaults__
    next(one for one in defaults if hasattr(one, "f_comp")).f_comp = winners


def remembering(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that computes a result once: half of all fits are repeated."""
    known: dict[bytes, Any] = {}

    def remembered(*arrays: Any) -> Any:
        key = b"\0".join(array.tobytes() for array in arrays)
        if key not in known:
            known[key] = fit(*arrays)
        return known[key]

    return remembered


def gradient(parameters: Array, nodes: Array, replicas: Array, batch: Array, accumulated_s: Array, step_s: Array) -> Array:
    """Return the gradient of what the artifact's fits minimise [Qiao et al. 2021, section 4.1].

    parameters: constant and slope of a sub-step's time by its batch, of synchronisation between nodes and within one by the
    GPUs beyond two, and the overlap's exponent. The others: of each measured shape. What is minimised: the sum of the root mean
    square errors of both times' logarithms, 1e-3 (exponent - 1)^2, and 1e-2 (slope / constant)^2 of both synchronisations.
    """
    constant, slope, far, far_slope, near, near_slope, exponent = parameters
    is_far, is_near = nodes > 1, (nodes <= 1) & (replicas > 1)
    beyond = np.maximum(replicas - 2, 1e-8)
    compute = constant + slope * batch
    network = np.where(is_far, far + far_slope * beyond, np.where(is_near, near + near_slope * beyond, 1e-8 + 1e-8 * beyond))
    compute_power, network_power = compute**exponent, network**exponent
    total = compute_power + network_power
    log_step = np.log(total) / exponent
    by_compute = _root_mean_square_slope(np.log(compute) - np.log(accumulated_s))
    by_step = _root_mean_square_slope(log_step - np.log(step_s))
    to_compute = by_compute / compute + by_step * compute_power / total / compute
    to_network = by_step * network_power / total / network
    share = (compute_power * np.log(compute) + network_power * np.log(network)) / total
    return np.array(
        [
            to_compute.sum(),
            (to_compute * batch).sum(),
            to_network[is_far].sum() - 2e-2 * far_slope**2 / far**3,
            (to_network * beyond)[is_far].sum() + 2e-2 * far_slope / far**2,
            to_network[is_near].sum() - 2e-2 * near_slope**2 / near**3,
            (to_network * beyond)[is_near].sum() + 2e-2 * near_slope / near**2,
            (by_step * (share - log_step) / exponent).sum() + 2e-3 * (exponent - 1),
        ]
    )


def _root_mean_square_slope(errors: Array) -> Array:
    """Return by how much the root mean square of errors changes with each."""
    size = np.sqrt(np.square(errors).mean())
    return errors / (len(errors) * size) if size else np.zeros_like(errors)


def domination(values: Array, others: Array | None = None, epsilon: float = 0.0) -> NDArray[np.int_]:
    """Return by row and column whether a row's point dominates (1) the column's, the reverse (-1), or neither (0)."""
    others = values if others is None else others
    smaller = larger = np.zeros((len(values), len(others)), bool)
    for row, column in zip(values.T[:, :, None], others.T[:, None, :], strict=True):
        smaller = smaller | (row + epsilon < column)
        larger = larger | (row > column + epsilon)
    return (smaller & ~larger).astype(int) - (larger & ~smaller)


def fronts(values: Array, **unused: Any) -> list[list[int]]:
    """Return the points' numbers by front: within one in the order in which Deb's sort finds them [Deb et al. 2002]."""
    dominates = domination(values) == 1
    left = dominates.sum(axis=0)
    front = np.flatnonzero(left == 0)
    found = [front.tolist()] if len(values) else []
    while sum(map(len, found)) < len(values):
        of_front = dominates[front]
        beaten = of_front.sum(axis=0)
        freed = np.flatnonzero((left > 0) & (left == beaten))
        left = left - beaten
        last = len(front) - 1 - of_front[::-1, freed].argmax(axis=0)  # who of the front frees it: its last that dominates it
        front = freed[np.lexsort((freed, last))]
        found.append(front.tolist())
    return found


def attributes(population: Any, *names: str, to_numpy: bool = True) -> Any:
    """Return the values of attributes of a population's individuals, one list or array for each name."""
    columns: list[Any] = []
    for name in names:
        column = [one.data[name] if name in one.data else getattr(one, name, None) for one in population]
        columns.append(np.array(column) if to_numpy else column)
    return columns[0] if len(columns) == 1 else tuple(columns)


ATTRIBUTES = frozenset({"X", "F", "CV", "G", "feasible"})


def individual(
    self: Any, X: Any = None, F: Any = None, CV: Any = None, G: Any = None, feasible: Any = None, **data: Any
) -> None:
    """Make an individual of a population."""
    self.X, self.F, self.CV, self.G, self.feasible, self.data, self.attr = X, F, CV, G, feasible, data, ATTRIBUTES


def repeated(self: Any, population: Any, others: Any | None, is_repeated: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the individuals whose whole numbers are those of one of the others, or without others of one before."""
    known = set() if others is None else {one.X.tobytes() for one in others}
    for number, one in enumerate(population):
        assert one.X.dtype == int
        key = one.X.tobytes()
        is_repeated[number] |= key in known
        if others is None:
            known.add(key)
    return is_repeated


def winners(population: Any, pairs: NDArray[np.int_], algorithm: Any, **unused: Any) -> NDArray[np.int_]:
    """Return who of each pair dominates the other, or else is the less crowded; one at random if neither."""
    assert algorithm.tournament_type == "comp_by_dom_and_crowding"
    values = np.array([one.F for one in population])
    crowding = np.array([one.data["crowding"] for one in population])
    first, second = pairs.T
    better = (values[first] < values[second]).any(axis=1).astype(int) - (values[second] < values[first]).any(axis=1)
    better = np.where(better == 0, _compared(crowding[first], crowding[second]), better)
    won = np.where(better > 0, first, second)
    for number in np.flatnonzero(better == 0):
        won[number] = np.random.choice(pairs[number])  # of the generator that the library draws from
    return np.asarray(won[:, None], int)


def _compared(first: Array, second: Array) -> NDArray[np.int_]:
    """Return whether the first is larger (1), smaller (-1), or neither (0); infinities are equal to themselves."""
    return (first > second).astype(int) - (first < second)
