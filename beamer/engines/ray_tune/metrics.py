"""The metrics that a search of Tune is judged by: which keys, from which options, and what a result's values say.

This module does not import Ray.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NamedTuple

from beamer.errors import InputError, hint

Mode = Literal["min", "max"]

LOSS = "loss"
MODE: Mode = "min"
MAX_FAILED_TRIALS = 5
"""Trials without a key that no result has had. So many are the fault of the setting, and not of a trial."""
MAX_TRIALS_WITHOUT_LOSS = 2
"""Trials that reached their target without a loss. The verdict of a rung does not depend on the place of one alone."""
MAX_REMEMBERED_KEYS = 1000
"""Keys of results that are remembered."""


class Reading(NamedTuple):
    """What a result says: of a metric that it lacks, None. loss: less is better."""

    iteration: float | None
    loss: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Metrics:
    """The keys of results. mode: "max" if more of `loss` is better. accuracy: None where no key is read."""

    iteration: str
    loss: str = LOSS
    mode: Mode = MODE
    accuracy: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max"):
            raise InputError("mode", self.mode, '"min" or "max"')

    @property
    def sign(self) -> float:
        """What a value of `loss` is multiplied by so that less is better."""
        return 1.0 if self.mode == "min" else -1.0

    @property
    def options(self) -> Mapping[str, str]:
        """The keys, each with where it is set."""
        named = {
            self.loss: "TuneConfig(metric=...) or BeamerScheduler(loss=...)",
            self.iteration: "BeamerScheduler(iteration=...)",
        }
        return named | ({self.accuracy: "BeamerScheduler(accuracy=...)"} if self.accuracy else {})

    def read(self, result: Mapping[str, Any]) -> Reading:
        """Return what a result says. Raises `InputError`, with the key, for a value that is no number."""
        iteration, loss, accuracy = (
            number(key, result[key]) if key is not None and key in result else None
            for key in (self.iteration, self.loss, self.accuracy)
        )
        if iteration is not None and not (isfinite(iteration) and iteration >= 0):
            raise InputError(repr(self.iteration), result[self.iteration], "a number of iterations")
        return Reading(iteration, None if loss is None else self.sign * loss, accuracy)


def metrics_of(iteration: str, loss: str | None, mode: Mode | None, accuracy: str | None, metric: Any, tuned: Any) -> Metrics:
    """Return the metrics of a scheduler's options, None where they are not given, and of a Tuner's `metric` and mode.

    Raises `InputError` where they contradict each other, and where a metric has no mode.
    """
    if None not in (loss, metric) and loss != metric:
        raise InputError("TuneConfig(metric)", metric, f"{loss!r}, as BeamerScheduler(loss) says; leave one of them out")
    if None not in (mode, tuned) and mode != tuned:
        raise InputError("TuneConfig(mode)", tuned, f"{mode!r}, as BeamerScheduler(mode) says; leave one of them out")
    if metric is not None and loss is None and mode is None and tuned is None:
        raise InputError("TuneConfig(mode)", None, f'"min" or "max", beside the metric {metric!r}')
    key = metric if loss is None else loss
    given = tuned if mode is None else mode
    return Metrics(iteration, LOSS if key is None else key, MODE if given is None else given, accuracy)


def number(key: str, value: Any) -> float:
    """Return a value of a result as a number; that of an array or tensor is its only element.

    Text is none, whatever it says: neither Tune's own schedulers nor its results can compare it. Raises `InputError`.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value
        if not isinstance(plain, str | bytes | bytearray):
            return float(plain)
    except Exception as error:  # The value and its methods are the trial's, and may raise anything.
        raise InputError(repr(key), value, "a number") from error
    raise InputError(repr(key), value, "a number")


class Readings:
    """Check the results of a search, and know which keys any of them has had.

    has_loss: whether there was a loss before, by the journal. hidden: keys that Tune adds to every result, with all below them.
    """

    def __init__(self, metrics: Metrics, has_loss: bool = False, hidden: Iterable[str] = ()) -> None:
        self.metrics = metrics
        self._seen = {metrics.loss} if has_loss else set[str]()
        self._hidden = frozenset(hidden)
        self._keys: set[str] = set()
        self._failed: dict[str, set[str]] = {}
        self._failed_at: dict[str, float] = {}  # the iteration of each trial's last failure
        self._arrived: set[str] = set()

    def check(self, trial: str, result: Mapping[str, Any], *, is_strict: bool) -> Reading:
        """Take in a result and return what it says; raise `InputError` where its trial is to fail of it.

        That is for a value that is no number, and, if strict, for a key that it lacks.
        """
        self._seen.update(key for key in self.metrics.options if key in result)
        self._keys.update(key for key in self._shown(result) if len(self._keys) < MAX_REMEMBERED_KEYS)
        try:
            reading = self.metrics.read(result)
        except InputError as error:
            raise InputError(f"{error.field} in a result of trial {trial}", error.value, error.expected) from error
        missing = [key for key in self.metrics.options if key not in result]
        if missing and is_strict:
            self._failed.setdefault(missing[0], set()).add(trial)
            keys = sorted(self._shown(result))
            raise InputError(f"keys in a result of trial {trial}", keys, self._expected(missing[0], keys))
        return reading

    def may_restart(self, trial: str, result: Mapping[str, Any]) -> bool:
        """Take in that a trial fails of a result, and say whether to start it again may help.

        It does not where the trial has failed before and has come no farther since: whatever a program reports wrong at a step,
        it mostly reports again, and an unlimited number of restarts would keep the GPUs for ever.
        """
        try:
            iteration = number(self.metrics.iteration, result[self.metrics.iteration])
        except (InputError, KeyError):
            iteration = 0.0
        before = self._failed_at.get(trial)
        self._failed_at[trial] = iteration
        return before is None or iteration > before

    def arrive(self, trial: str) -> None:
        """Take in that a trial has come to its target, while no result of the search has had the loss."""
        if self.metrics.loss not in self._seen:
            self._arrived.add(trial)

    def nothing(self, trials: int | None) -> InputError | None:
        """Return why the search is to stop if it would be judged on nothing: a key that no result has had.

        trials: of the search; None: more may come.
        """
        for key, failed in [*self._failed.items(), (self.metrics.loss, self._arrived)]:
            most = MAX_TRIALS_WITHOUT_LOSS if failed is self._arrived else MAX_FAILED_TRIALS
            if key not in self._seen and failed and len(failed) >= min(most, trials or most):
                keys = sorted(self._keys)
                where = f"{self._expected(key, keys)}: no result of {len(failed)} trials has had it, so nothing can be judged"
                return InputError("keys in the results of the search", keys, where)
        return None

    def _shown(self, result: Mapping[str, Any]) -> list[str]:
        return [key for key in result if key.partition("/")[0] not in self._hidden]

    def _expected(self, key: str, keys: list[str]) -> str:
        return f"the key {key!r}{hint(key, keys)} that {self.metrics.options[key]} names"
