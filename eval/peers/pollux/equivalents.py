"""Functions of the artifact's libraries that return the same sooner: otherwise a run spends more than half its time in them.

The artifact's own code is run as it is. Its genetic algorithm, of pymoo (`eval.peers.pollux.genetic`), takes the same steps to
the last bit; the gradients of its fits, which it has differentiated automatically (autograd), agree to rounding errors.
"""

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.peers.pollux.genetic import fronts, minimize

Array = NDArray[Any]


def install(simulator: Any) -> None:
    """Put the functions in the places of those that the simulator's modules use."""
    goodput = import_module("goodput")
    goodput.autograd = SimpleNamespace(numpy=np, grad=lambda objective: gradient)  # type: ignore[attr-defined]
    simulator.fit_perf_params = remembering(simulator.fit_perf_params)
    crowding = import_module("pymoo.algorithms.nsga2").calc_crowding_distance

    def minimized(problem: Any, algorithm: Any, termination: tuple[str, int]) -> Any:
        rows, values = minimize(problem, algorithm, termination, crowding)
        return SimpleNamespace(X=rows, F=values)

    import_module("pymoo.optimize").minimize = minimized  # type: ignore[attr-defined]
    # the artifact also sorts a result itself
    import_module("pymoo.util.nds.fast_non_dominated_sort").fast_non_dominated_sort = sort  # type: ignore[attr-defined]


def sort(values: Array, **unused: Any) -> list[list[int]]:
    """Return the points' numbers by front."""
    return fronts(values)


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
