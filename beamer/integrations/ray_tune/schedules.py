"""What Tune's schedulers know: the step at which a trial is judged next, and which trials wait for each other.

Schedulers have this in private attributes, which `PRIVATE` lists. Where one is missing in another version of Ray, reading
raises `AttributeError`: see `ReadSchedule`.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ray.tune.result import TRAINING_ITERATION
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from ray.tune.schedulers.trial_scheduler import TrialScheduler

from beamer.integrations.ray_tune.schedule import Barrier, Schedule
from beamer.studies.model import Rung

PRIVATE: Mapping[type, tuple[str, ...]] = {
    AsyncHyperBandScheduler: ("_brackets", "_max_t", "_stop_last_trials", "_time_attr", "_trial_info"),
    HyperBandScheduler: ("_hyperbands", "_max_t_attr", "_state", "_time_attr"),
    PopulationBasedTraining: (
        "_burn_in_period",
        "_next_perturbation_sync",
        "_perturbation_interval",
        "_synch",
        "_time_attr",
        "_trial_state",
    ),
    ResourceChangingScheduler: ("_base_scheduler",),
}
"""The private attributes that are read, by scheduler. Of brackets it is `_rungs`, `_live_trials`, `_cumul_r` and `_halves`."""

_T = TypeVar("_T")

log = logging.getLogger("beamer.integrations")


class HalvingSchedule(Schedule):
    """ASHA: a trial is judged at the rungs of its bracket, and waits for nobody."""

    def __init__(self, scheduler: AsyncHyperBandScheduler) -> None:
        self._scheduler = scheduler
        self.max_step = math.ceil(scheduler._max_t)
        self._last = self.max_step if scheduler._stop_last_trials else None

    def rungs(self) -> Sequence[Rung]:
        """Return those of the bracket, where there is one alone. How many trials come to one is not known."""
        if len(self._scheduler._brackets) > 1:
            return ()
        steps = sorted({*self._steps(self._scheduler._brackets[0]), *([self._last] if self._last else [])})
        return [Rung(f"rung{i}", 0, step) for i, step in enumerate(steps)]

    def next_step(self, trial: Any, step: int) -> int | None:
        """Return the next rung of the trial's bracket, or the last step."""
        bracket = self._scheduler._trial_info.get(trial.trial_id)
        if bracket is None:
            return None
        steps = [one for one in self._steps(bracket) if one > step]
        return min(steps, default=self._last if self._last and self._last > step else None)

    @staticmethod
    def _steps(bracket: Any) -> list[int]:
        return [math.ceil(step) for step, _ in bracket._rungs]


class HyperbandSchedule(Schedule):
    """HyperBand and BOHB: the trials of a bracket wait for each other at each of its rungs."""

    has_barriers = True

    def __init__(self, scheduler: HyperBandScheduler) -> None:
        self._scheduler = scheduler
        self.max_step = math.ceil(scheduler._max_t_attr)
        self._steps: dict[tuple[int, int], list[int]] = {}  # of the rungs that each bracket has come to
        self._state = scheduler._state, scheduler._hyperbands

    def is_complete(self, trial: Any, step: int) -> bool:
        """Return whether the trial has come to the end of its bracket's last rung."""
        for _, bracket in self._brackets():
            if trial in bracket._live_trials or trial in bracket._all_trials:
                return bool(bracket._halves == 0 and step >= bracket._cumul_r)
        return super().is_complete(trial, step)

    def state(self) -> object:
        """Return the rungs of all brackets, how many trials each has, and which one trials join."""
        brackets = [(place, bracket._cumul_r, len(bracket._live_trials)) for place, bracket in self._brackets()]
        return brackets, id(self._scheduler._state["bracket"])

    def barriers(self, is_search_over: bool) -> Iterable[Barrier]:
        """Yield the present rung of each bracket that has trials."""
        for place, bracket in self._brackets():
            step = math.ceil(bracket._cumul_r)
            steps = self._steps.setdefault(place, [step])
            if step not in steps:
                steps.append(step)
            is_closed = is_search_over or bracket is not self._scheduler._state["bracket"]
            name = f"band{place[0]}-bracket{place[1]}-rung{steps.index(step)}"
            yield Barrier(name, step, tuple(bracket._live_trials), is_closed)

    def _brackets(self) -> list[tuple[tuple[int, int], Any]]:
        """Return the brackets with their places: the band's, and that in the band. One that was too small is None."""
        return [
            ((i, j), bracket)
            for i, band in enumerate(self._scheduler._hyperbands)
            for j, bracket in enumerate(band)
            if bracket is not None
        ]


class PopulationSchedule(Schedule):
    """Population based training: each trial is judged after an interval of its own."""

    def __init__(self, scheduler: PopulationBasedTraining) -> None:
        self._scheduler = scheduler
        self._interval, self._burn_in = scheduler._perturbation_interval, scheduler._burn_in_period
        _ = scheduler._trial_state

    def next_step(self, trial: Any, step: int) -> int | None:
        """Return the step of the trial's next perturbation."""
        state = self._scheduler._trial_state.get(trial)
        if state is None:
            return None
        following: float = max(state.last_perturbation_time + self._interval, self._burn_in)
        return max(math.ceil(following), step + 1)


class GenerationSchedule(Schedule):
    """Synchronous population based training: all trials wait for each other at the end of a generation."""

    has_barriers = True

    def __init__(self, scheduler: PopulationBasedTraining) -> None:
        self._scheduler = scheduler
        self._steps: list[int] = []

    def state(self) -> object:
        """Return the end of the present generation, and how many trials there are."""
        return self._scheduler._next_perturbation_sync, len(self._scheduler._trial_state)

    def barriers(self, is_search_over: bool) -> Iterable[Barrier]:
        """Yield the present generation."""
        step = math.ceil(self._scheduler._next_perturbation_sync)
        if step not in self._steps:
            self._steps.append(step)
        trials = tuple(trial for trial in self._scheduler._trial_state if not trial.is_finished())
        yield Barrier(f"generation{self._steps.index(step)}", step, trials, is_search_over)


class ReadSchedule(Schedule):
    """Read a scheduler for as long as it can be read; what cannot is logged once, and the search is then one without rungs."""

    def __init__(self, scheduler: TrialScheduler) -> None:
        self._name = type(scheduler).__name__
        self._read = Schedule()
        try:
            self._read = schedule_of(scheduler)
        except Exception as error:  # noqa: BLE001  Whatever another version of Ray has changed.
            self._give_up(error)

    @property
    def has_barriers(self) -> bool:  # type: ignore[override]
        """Whether trials wait for each other."""
        return self._read.has_barriers

    @property
    def max_step(self) -> int | None:  # type: ignore[override]
        """The step at which the scheduler has a trial complete."""
        return self._read.max_step

    def rungs(self) -> Sequence[Rung]:
        """Return the rungs that all trials have in common."""
        return self._try(self._read.rungs, ())

    def next_step(self, trial: Any, step: int) -> int | None:
        """Return the step at which a trial is judged next by itself."""
        return self._try(lambda: self._read.next_step(trial, step), None)

    def is_complete(self, trial: Any, step: int) -> bool:
        """Return whether the scheduler has no more for a trial to do."""
        return self._try(lambda: self._read.is_complete(trial, step), False)

    def state(self) -> object:
        """Return what is equal as long as the barriers are."""
        return self._try(self._read.state, None)

    def barriers(self, is_search_over: bool) -> Iterable[Barrier]:
        """Return the barriers ahead of trials."""
        return self._try(lambda: list(self._read.barriers(is_search_over)), [])

    def _try(self, read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except Exception as error:  # noqa: BLE001  As above.
            self._give_up(error)
            return otherwise

    def _give_up(self, error: Exception) -> None:
        self._read = Schedule()
        log.warning(BROKEN, self._name, ray_version(), error)


BROKEN = "%s of Ray %s cannot be read (%s): Beamer knows the progress of this search's trials, but no rungs"


def schedule_of(scheduler: TrialScheduler) -> Schedule:
    """Return how a scheduler is read.

    Raises `AttributeError` where it lacks what is needed, `ValueError` where it counts in another unit than iterations.
    """
    while isinstance(scheduler, ResourceChangingScheduler):
        scheduler = scheduler._base_scheduler
    kind = next((kind for kind in (*PRIVATE, MedianStoppingRule, FIFOScheduler) if isinstance(scheduler, kind)), None)
    for name in PRIVATE.get(kind, ()) if kind else ():
        getattr(scheduler, name)
    if kind in PRIVATE and scheduler._time_attr != TRAINING_ITERATION:
        raise ValueError(f"its time_attr is {scheduler._time_attr!r}, not {TRAINING_ITERATION!r}")
    return _READ[kind](scheduler) if kind in _READ else Schedule()


def _population(scheduler: PopulationBasedTraining) -> Schedule:
    return GenerationSchedule(scheduler) if scheduler._synch else PopulationSchedule(scheduler)


_READ: Mapping[Any, Callable[[Any], Schedule]] = {
    AsyncHyperBandScheduler: HalvingSchedule,
    HyperBandScheduler: HyperbandSchedule,
    PopulationBasedTraining: _population,
}
"""How each kind of scheduler is read; all others judge no trial."""


def ray_version() -> str:
    """Return the version of Ray that is installed."""
    import ray

    return str(ray.__version__)
