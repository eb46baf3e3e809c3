"""A controller of Tune that has each result checked before it does anything with it, so that one ends its own trial at most.

Tune raises from within its loop, and so ends the experiment, where a result lacks a metric that is expected, and where a
scheduler or a search algorithm raises at one. A scheduler sees a result after the first of these, and cannot fail a trial by
what it returns.

Uses parts of Tune that are not documented: `TuneController._process_trial_result`, `_validate_result_metrics`, `_scheduler_alg`
and `_trial_task_failure`, which is what Tune does when a trial raises an exception of its own.
"""

import os
from typing import Any

from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.result import RESULT_DUPLICATE
from ray.tune.utils import flatten_dict

LENIENT_VARIABLE = "TUNE_DISABLE_STRICT_METRIC_CHECKING"
"""Of Tune: 1 lets a trial go on whose result lacks a metric."""


class CheckedResults(TuneController):  # type: ignore[misc]
    """A controller whose scheduler has `check`, `may_restart` and `failed`, as `BeamerScheduler` has."""

    def _process_trial_result(self, trial: Trial, result: dict[str, Any]) -> str | None:
        # A function that has returned sends its last result again. A function that has sent no result is checked for that.
        if not (RESULT_DUPLICATE in result and trial.last_result):
            flat = flatten_dict({key: value for key, value in result.items() if key != RESULT_DUPLICATE})
            try:
                self._scheduler_alg.check(self, trial, flat)
                self._validate_result_metrics(flat)
            except ValueError as error:
                self._fail(trial, error, self._scheduler_alg.may_restart(trial, flat))
                self._scheduler_alg.failed(self)
                return None  # There is no decision, as the trial has failed or is started again.
        return super()._process_trial_result(trial, result)  # type: ignore[no-any-return]

    def _fail(self, trial: Trial, error: Exception, may_restart: bool) -> None:
        most = trial.max_failures
        try:
            trial.max_failures = most if may_restart else 0
            self._trial_task_failure(trial, error)
        finally:
            trial.max_failures = most


def check_results(controller: Any) -> None:
    """Have a controller's results checked by its scheduler, which has what `CheckedResults` calls."""
    if type(controller) is TuneController:
        controller.__class__ = CheckedResults  # Only the class changes, so that Tune's stored state holds nothing of the check.


def is_strict() -> bool:
    """Say whether Tune takes a result for an error that lacks a metric."""
    return os.environ.get(LENIENT_VARIABLE, "0") != "1"
