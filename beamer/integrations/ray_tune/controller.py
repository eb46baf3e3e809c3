"""How a callback comes to the controller of its search, and hears what the search's scheduler decides.

Tune hands callbacks its trials alone. While it sets them up, though, its controller is among their callers: see `calling`.
Tune does not tell who ended a trial either: a scheduler's decision is heard by standing between it and its controller.
"""

import sys
from types import FrameType
from typing import Any

from ray.tune.execution.tune_controller import TuneController
from ray.tune.schedulers import TrialScheduler

PRIVATE = ("_storage", "scheduler_alg", "search_alg")
"""The attributes of Tune's controller that are read. None of them is documented."""
_RUN = ("run", TuneController.__module__.partition(".execution")[0] + ".tune")


def calling() -> tuple[TuneController | None, str | None, str | None]:
    """Return Tune's controller that has, over others, called the caller, with `TuneConfig`'s metric and mode.

    None: not found. Metric and mode are those of the function that runs the controller: it keeps no mode.
    """
    frame: FrameType | None = sys._getframe(1)
    controller: TuneController | None = None
    while frame is not None:
        code = frame.f_code
        if controller is None and isinstance(frame.f_locals.get("self"), TuneController):
            controller = frame.f_locals["self"]
        elif controller is not None and (code.co_name, frame.f_globals.get("__name__")) == _RUN:
            return controller, frame.f_locals.get("metric"), frame.f_locals.get("mode")
        frame = frame.f_back
    return controller, None, None


class HeardScheduler:
    """Keep what a scheduler decides of results, by trial, until it is asked for; `close` leaves the scheduler as it was."""

    def __init__(self, scheduler: TrialScheduler) -> None:
        self._scheduler = scheduler
        self._decisions: dict[str, str] = {}
        decide = scheduler.on_trial_result
        decisions = self._decisions

        def on_trial_result(tune_controller: Any, trial: Any, result: Any) -> Any:
            decision = decide(tune_controller, trial, result)
            decisions[trial.trial_id] = decision
            return decision

        scheduler.on_trial_result = on_trial_result

    def take(self, trial: str) -> str | None:
        """Return the decision on a trial's latest result, None where the scheduler was not asked."""
        return self._decisions.pop(trial, None)

    def close(self) -> None:
        """Leave the scheduler as it was."""
        self._scheduler.__dict__.pop("on_trial_result", None)
