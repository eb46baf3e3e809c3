"""The sampler of a search: its part of the search file, and which draw is due.

    results of trials -> journal -> `DrawnTrials` -> the next draw -> journal -> a trial that asks for GPUs

The journal is the only record. A draw depends on the seed, on the values of earlier trials and on the results that it is told.
With `wait`, these are the results of all trials that are `lag` or more before it, and the draw waits for them: so it does not
depend on which trial ends first. At most `lag` trials have no result at any time.

A trial's result is its loss at the end of its first rung, or at its last iteration where there are no rungs. In successive
halving all draws are made while trials run in the first rung, so that no later loss could be known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from pydantic import Field

from beamer.errors import InputError, PlatformError, nearest
from beamer.file_numbers import Trials
from beamer.gpu.events import RunFinished, TrialReported, TrialSampled
from beamer.lazy_commands import install_command
from beamer.studies.events import Event, TrialEnded
from beamer.studies.model import split_key
from beamer.studies.parameters import Choice, ConfigurationSampler, FloatRange, IntegerRange, Parameter, TrialResult
from beamer.validation import FileEntry

KINDS = ("tpe", "cma-es", "random", "quasi-random")
PACKAGES = ("optuna", "cmaes", "scipy")
LAG_ROUNDS = 2
"""`lag` is so many times the trials that run at once: while some compute, as many others wait, and are started ahead."""
_FORMS = ("log_uniform", "uniform", "integer", "categorical")


class _Parameter(FileEntry):
    log_uniform: list[float] | None = Field(default=None, min_length=2, max_length=2)
    """The least and the largest of real numbers above 0, whose logarithm is drawn uniformly."""
    uniform: list[float] | None = Field(default=None, min_length=2, max_length=2)
    """The least and the largest of real numbers."""
    integer: list[int] | None = Field(default=None, min_length=2, max_length=2)
    """The least and the largest of whole numbers."""
    categorical: list[str] | None = Field(default=None, min_length=1)
    """Values without an order, each given to the program as it is written."""
    step: float | None = None
    """Of `uniform` and `integer`: values are the least one and whole steps above it; by default any real or whole number."""
    log: bool = False
    """Of `integer`: whether the logarithm is drawn uniformly."""

    def made(self, field: str) -> Parameter:
        """Return the parameter. Raises `InputError` about `field`."""
        given = [form for form in _FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise InputError(field, given, f"one of {', '.join(_FORMS)}")
        (form,) = given
        if self.step is not None and form not in ("uniform", "integer"):
            raise InputError(f"{field}.step", self.step, f"no step of {form}")
        if self.log and form != "integer":
            raise InputError(f"{field}.log", True, f"no such key of {form}: log_uniform draws the logarithm of real numbers")
        if self.step is not None and form == "integer" and self.step != int(self.step):
            raise InputError(f"{field}.step", self.step, "a whole number, as the range's values are")
        try:
            if self.categorical is not None:
                return Choice(tuple(self.categorical))
            if self.integer is not None:
                return IntegerRange(self.integer[0], self.integer[1], 1 if self.step is None else int(self.step), self.log)
            ends = self.log_uniform or self.uniform or []
            return FloatRange(ends[0], ends[1], self.step, log=form == "log_uniform")
        except InputError as error:
            name = "step" if error.field == "step" else form
            raise InputError(f"{field}.{name}", error.value, error.expected) from error


class SamplerEntry(FileEntry):
    """The key `sampler` of a search file."""

    kind: str
    """Who draws: `tpe`, `cma-es`, `random` or `quasi-random`."""
    trials: Trials
    """How many configurations are drawn in all."""
    parameters: dict[str, _Parameter] = Field(min_length=1)
    """What they are drawn from, by the name of the placeholder in `job`."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """The seed of the draws; another one gives other configurations."""
    lag: Trials | None = None
    """A draw knows the results of trials that are so many before it; by default twice as many as run at once."""
    wait: bool = True
    """Whether a draw waits for these results and knows no others, so that draws do not depend on which trial ends first.

    With `false` it knows whatever results there are when a place for it comes up.
    """
    storage: str = ""
    """URL of an Optuna storage to which trials and results are copied, such as `sqlite:///optuna.db`; by default none."""

    def made(self, slots: int) -> "Sampling":
        """Return the sampling of a search. slots: how many trials run at once. Raises `InputError`."""
        if self.kind not in KINDS:
            raise InputError("sampler.kind", self.kind, nearest(self.kind, KINDS))
        parameters = {name: entry.made(f"sampler.parameters.{name}") for name, entry in self.parameters.items()}
        if self.kind == "cma-es":
            _check_numbers(parameters)
        lag = self.lag or LAG_ROUNDS * slots
        return Sampling(self.kind, self.trials, parameters, self.seed, lag, self.wait, self.storage)


def _check_numbers(parameters: Mapping[str, Parameter]) -> None:
    for name, parameter in parameters.items():
        if isinstance(parameter, Choice):
            expected = "a range of numbers, which is all that cma-es knows, or kind: tpe"
            raise InputError(f"sampler.parameters.{name}", parameter.choices, expected)
    if len(parameters) < 2:
        raise InputError("sampler.parameters", list(parameters), "at least two ranges under cma-es, or kind: tpe")


@dataclass(frozen=True)
class Sampling:
    """How the configurations of a search are drawn. The fields are those of `SamplerEntry`."""

    kind: str
    trials: int
    parameters: Mapping[str, Parameter]
    seed: int
    lag: int
    wait: bool
    storage: str

    def open(self) -> ConfigurationSampler:
        """Return the sampler, which has drawn nothing yet. Raises `PlatformError` where a package is not installed."""
        try:
            from beamer.integrations.optuna_samplers import open_sampler

            return open_sampler(self.kind, self.parameters, self.seed)
        except ModuleNotFoundError as error:
            if error.name not in PACKAGES:
                raise
            raise PlatformError(f"the sampler {self.kind} needs the package {error.name}", install_command("optuna")) from error

    def open_copy(self, name: str) -> "DrawsCopy":
        """Return what copies a search of a name to `storage`. Raises `InputError` where that is none."""
        from beamer.integrations.optuna_copy import StudyCopy

        return StudyCopy(self.storage, name, self.parameters)


class DrawsCopy(Protocol):
    """A copy of draws elsewhere."""

    def update(self, drawn: Sequence[Mapping[str, str]], results: Mapping[int, TrialResult]) -> None:
        """Write what is not there yet. drawn: values by number. results: by number."""


class DrawnTrials:
    """The trials that a search has drawn and their results, from its events alone; says which draw is due.

    study: of the search. drawn, results: by number; results in the order in which they came.
    """

    def __init__(self, study: str, sampling: Sampling) -> None:
        self.sampling = sampling
        self._study = study
        self.drawn: list[TrialSampled] = []
        self.results: dict[int, TrialResult] = {}
        self._number: dict[str, int] = {}  # by trial
        self._losses: dict[str, float] = {}
        self._known: list[int] = []  # of each draw, how many results there were
        self._sampler: ConfigurationSampler | None = None
        self._taken = 0  # so many draws the sampler knows
        self._told: set[int] = set()  # trials of which it knows the results

    def apply(self, event: Event) -> None:
        """Take in an event that the tracker has applied."""
        match event:
            case TrialSampled(study=self._study, trial=trial, number=number) if number == len(self.drawn):
                self._number[trial] = number
                self.drawn.append(event)
                self._known.append(len(self.results))
            case TrialReported(trial=key, report=report) if report:
                self._losses[key] = report.loss
            case RunFinished(trial=key):  # The first time, it has come to its first target.
                self._end(key, TrialResult(self._losses.get(key, inf)))
            case TrialEnded(trial=key):
                self._end(key, TrialResult(None))

    def _end(self, key: str, result: TrialResult) -> None:
        """Keep the first result of a trial."""
        number = self._number.get(split_key(key)[1])
        if number is not None:
            self.results.setdefault(number, result)

    @property
    def is_due(self) -> bool:
        """Whether the next trial can be drawn."""
        number, lag = len(self.drawn), self.sampling.lag
        if number >= self.sampling.trials:
            return False
        if self.sampling.wait:
            return all(earlier in self.results for earlier in range(number - lag + 1))
        return number - len(self.results) < lag

    @property
    def next_trial(self) -> str:
        """The name of the trial that is drawn next."""
        return trial_name(len(self.drawn))

    def draw(self, at_s: float) -> TrialSampled:
        """Return the draw that is due. Raises as `Sampling.open` and `ConfigurationSampler.take`."""
        below = self._results_below() if self.sampling.wait else None
        sampler = self.prepared()
        self._tell(sampler, below, len(self.results))
        values = sampler.draw()
        self._taken += 1
        return TrialSampled(at_s, self._study, self.next_trial, len(self.drawn), values, below)

    def _results_below(self) -> int:
        """Return below which number results are known to the next draw: no fewer than the last one knew, whatever `lag` was."""
        before = self.drawn[-1].results_below if self.drawn else None
        return max(len(self.drawn) - self.sampling.lag + 1, before or 0)

    def prepared(self) -> ConfigurationSampler:
        """Return the sampler with all that was drawn so far."""
        if self._sampler is None:
            self._sampler = self.sampling.open()
        for event, known in zip(self.drawn[self._taken :], self._known[self._taken :], strict=True):
            self._tell(self._sampler, event.results_below, known)
            self._sampler.take(event.values)
            self._taken += 1
        return self._sampler

    def _tell(self, sampler: ConfigurationSampler, below: int | None, known: int) -> None:
        """Tell the sampler what a draw knew. below: as of `TrialSampled.results_below`. known: how many results there were."""
        numbers: Sequence[int] = list(self.results)[:known] if below is None else range(below)
        for number in sorted(set(numbers) - self._told):
            sampler.tell(number, self.results[number])
            self._told.add(number)


def trial_name(number: int) -> str:
    """Return the name of a trial that is drawn, as Optuna counts them."""
    return f"trial-{number}"
