"""All bounds that apply to an instance, and the best of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from beamer.bounds.barrier import barrier
from beamer.bounds.dual import dual
from beamer.bounds.instance import Instance
from beamer.bounds.relaxation import lp_ov
from beamer.bounds.release import release_busy, release_srpt
from beamer.bounds.stage_order import stage_order
from beamer.bounds.study import chained
from beamer.bounds.subset_dp import subset_dp
from beamer.errors import InputError, nearest

BOUNDS: Mapping[str, Callable[[Instance], float]] = {
    "dual": dual,
    "lp-ov": lp_ov,
    "subset-dp": subset_dp,
    "release-srpt": release_srpt,
    "release-busy": release_busy,
}

# These bounds need jobs, not only their loads, and the most programmes to solve.
JOB_BOUNDS: Mapping[str, Callable[..., float]] = {
    "barrier": barrier,
    "stage-order": stage_order,
}


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on one sum of weight x (completion - release).

    values: seconds by name. inapplicable: by name, why the bound does not apply. weight: what the mean divides by.
    """

    values: Mapping[str, float]
    inapplicable: Mapping[str, str]
    weight: float

    @property
    def best(self) -> str:
        """The name of the largest bound."""
        return max(self.values, key=lambda name: self.values[name])

    @property
    def best_s(self) -> float:
        """The largest bound, seconds."""
        return self.values[self.best]

    @property
    def mean_s(self) -> float:
        """The largest bound on the weighted mean of completion - release, seconds; 0 of nothing."""
        return self.best_s / self.weight if self.weight > 0 else 0.0


def bounds(instance: Instance, only: Sequence[str] = tuple(BOUNDS)) -> Bounds:
    """Return every bound that applies to `instance`; only: of these names.

    Raises `InputError` for a name that is none, and if no bound applies.
    """
    values: dict[str, float] = {}
    inapplicable: dict[str, str] = {}
    for name in only:
        if name not in BOUNDS:
            raise InputError("bound", name, nearest(name, BOUNDS))
        try:
            values[name] = BOUNDS[name](instance)
        except InputError as error:
            inapplicable[name] = str(error)
    if not values:
        raise InputError("bounds", inapplicable, "at least one that applies")
    return Bounds(values, inapplicable, float(instance.weight.sum()))


def study_bounds(study: Sequence[str], stages: Instance, only: Sequence[str] = tuple(BOUNDS)) -> Bounds:
    """Return the bounds on the sum of weight x stage completion time of chained stages; see `chained` and `bounds`.

    `mean_s` is per stage: the sum divided by the sum of the stages' weights.
    """
    return replace(bounds(chained(study, stages), only), weight=float(stages.weight.sum()))
