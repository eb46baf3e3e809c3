"""The step at which a pruner of Optuna will judge a trial next: what somebody waits for.

Optuna has no interface for that. Each rule repeats what its pruner's `prune` decides, from attributes that are private; where
one is missing, `AttributeError` names it. `ATTRIBUTES` lists them all for the test that says what a new Optuna has broken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    PatientPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    ThresholdPruner,
    WilcoxonPruner,
)

ATTRIBUTES: Mapping[type[BasePruner], tuple[str, ...]] = {
    SuccessiveHalvingPruner: ("_min_resource", "_reduction_factor", "_min_early_stopping_rate"),
    HyperbandPruner: (
        *("_pruners", "_min_resource", "_max_resource", "_reduction_factor", "_bootstrap_count"),
        *("_get_bracket_id", "_try_initialization"),
    ),
    PercentilePruner: ("_n_warmup_steps", "_interval_steps"),
    ThresholdPruner: ("_n_warmup_steps", "_interval_steps"),
    PatientPruner: ("_wrapped_pruner",),
}
"""The private attributes on which milestones rest, by the class of Optuna that has them."""

RUNG_KEY = "completed_rung_{}"
"""The attribute of a trial by which successive halving notes that it was judged at a rung."""


@dataclass(frozen=True)
class Judged:
    """What a pruner's next judgement of a trial depends on.

    trial: as Optuna stored it when it started here. step: the last one that was reported, None before the first.
    """

    study: Any
    trial: Any
    step: int | None


def next_milestone(pruner: Any, judged: Judged) -> int | None:
    """Return the step at which a pruner judges a trial next if it goes on; None: it does not, or at every step, or unknown.

    Raises `AttributeError` where the pruner is not what it was in Optuna 4 and 5.
    """
    for kind in type(pruner).__mro__:
        if kind in _RULES:
            return _RULES[kind](pruner, judged)
    return None


def counts_reports(pruner: Any) -> bool:
    """Return whether steps are the names of instances, in any order, so that their number says how far a trial is."""
    return isinstance(pruner, WilcoxonPruner)


def _halving(pruner: Any, judged: Judged) -> int | None:
    """Rung k is at step min_resource * reduction_factor^(min_early_stopping_rate + k)."""
    first, factor = pruner._min_resource, pruner._reduction_factor
    if first is None:  # It is "auto", and estimated when the first trial has completed.
        return None
    rung = 0
    while RUNG_KEY.format(rung) in judged.trial.system_attrs:  # A retried trial may have them from the one before.
        rung += 1
    step: int = first * factor ** (pruner._min_early_stopping_rate + rung)
    while judged.step is not None and step <= judged.step:
        step *= factor
    return step


def _hyperband(pruner: Any, judged: Judged) -> int | None:
    """Each bracket is a pruner by successive halving; a trial's number and the study's name say which is its own."""
    brackets = pruner
    if not pruner._pruners:
        if not isinstance(pruner._max_resource, int):  # It is "auto", and estimated when the first trial has completed.
            return None
        # The pruner makes its brackets when it is first asked. Until then a copy of it says what they will be.
        brackets = HyperbandPruner(
            pruner._min_resource, pruner._max_resource, pruner._reduction_factor, pruner._bootstrap_count
        )
        brackets._try_initialization(judged.study)
    bracket = brackets._pruners[brackets._get_bracket_id(judged.study, judged.trial)]
    step = _halving(bracket, judged)
    return None if step is None or step > brackets._max_resource else step  # No trial is to go on beyond that.


def _intervals(pruner: Any, judged: Judged) -> int | None:
    """It judges from the warm-up on, once in each interval; where that is at every step, no step is waited for."""
    warmup, interval = pruner._n_warmup_steps, pruner._interval_steps
    if judged.step is None or judged.step < warmup:
        return warmup or None
    if interval == 1:
        return None
    following: int = (judged.step - warmup) // interval * interval + warmup + interval
    return following


def _patient(pruner: Any, judged: Judged) -> int | None:
    """It asks the pruner that it wraps, where there is one, once the trial no longer improves."""
    return next_milestone(pruner._wrapped_pruner, judged)


_RULES: Mapping[type, Callable[[Any, Judged], int | None]] = {
    SuccessiveHalvingPruner: _halving,
    HyperbandPruner: _hyperband,
    PercentilePruner: _intervals,
    ThresholdPruner: _intervals,
    PatientPruner: _patient,
}
