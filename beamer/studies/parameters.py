"""The parameters that a search draws values of, and the seam of samplers, which draw them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, isfinite

from beamer.errors import InputError

MAX_VALUE = 1e15
"""The largest end of a range, as of amounts in files: three decimal places of it are exact to a tenth."""

MAX_CHOICES = 1024
"""The most values of a choice: samplers keep a weight for each of them and each trial."""


@dataclass(frozen=True)
class FloatRange:
    """Real numbers from `low` to `high`, both included.

    step: values are `low` and whole steps above it; None: any value. log: whether their logarithm is drawn uniformly.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if not isfinite(value) or abs(value) > MAX_VALUE:
                raise InputError(name, value, f"a number from -{MAX_VALUE:g} to {MAX_VALUE:g}")
        if self.low >= self.high:
            raise InputError("low", self.low, f"below {self.high}, the end of the range")
        if self.log and self.low <= 0:
            raise InputError("low", self.low, "above 0, as the logarithm is drawn")
        if self.step is not None and self.log:
            raise InputError("step", self.step, "no step where the logarithm is drawn")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise InputError("step", self.step, f"above 0 and at most {self.high - self.low}, the width of the range")

    def text(self, value: bool | int | float | str) -> str:
        """Return a value as programs are given it: the shortest text that is read back as the same number."""
        return repr(float(value))

    def value(self, text: str) -> float:
        """Return the value that a text is of."""
        return float(text)

    @property
    def ends(self) -> tuple[str, ...]:
        """The least and the largest value as text."""
        steps = None if self.step is None else floor((self.high - self.low) / self.step)
        return self.text(self.low), self.text(self.high if steps is None or self.step is None else self.low + steps * self.step)


@dataclass(frozen=True)
class IntegerRange:
    """Whole numbers from `low` to `high`, both included.

    step: values are `low` and whole steps above it. log: whether their logarithm is drawn uniformly.
    """

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if abs(value) > MAX_VALUE:
                raise InputError(name, value, f"a whole number from -{MAX_VALUE:g} to {MAX_VALUE:g}")
        if self.low >= self.high:
            raise InputError("low", self.low, f"below {self.high}, the end of the range")
        if self.log and self.low < 1:
            raise InputError("low", self.low, "at least 1, as the logarithm is drawn")
        if self.step != 1 and self.log:
            raise InputError("step", self.step, "no step where the logarithm is drawn")
        if not 1 <= self.step <= self.high - self.low:
            raise InputError("step", self.step, f"1 to {self.high - self.low}, the width of the range")

    def text(self, value: bool | int | float | str) -> str:
        """Return a value as programs are given it."""
        return str(int(value))

    def value(self, text: str) -> int:
        """Return the value that a text is of."""
        return int(text)

    @property
    def ends(self) -> tuple[str, ...]:
        """The least and the largest value as text."""
        return self.text(self.low), self.text(self.low + (self.high - self.low) // self.step * self.step)


@dataclass(frozen=True)
class Choice:
    """One of several texts, between which there is no order."""

    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.choices) <= MAX_CHOICES:
            raise InputError("choices", len(self.choices), f"1 to {MAX_CHOICES} values")
        for i, choice in enumerate(self.choices):
            if choice in self.choices[:i]:
                raise InputError("choices", choice, "values that differ")

    def text(self, value: bool | int | float | str) -> str:
        """Return a value as programs are given it."""
        return str(value)

    def value(self, text: str) -> str:
        """Return the value that a text is of."""
        return text

    @property
    def ends(self) -> tuple[str, ...]:
        """All values."""
        return self.choices


Parameter = FloatRange | IntegerRange | Choice
"""What values are drawn from."""


@dataclass(frozen=True)
class TrialResult:
    """What a sampler learns of a trial. loss: the less the better, None where the trial has failed before it had one."""

    loss: float | None


class ConfigurationSampler(ABC):
    """Draws the values of trials 0, 1, 2 and so on, in that order.

    What it draws depends on its parameters, its seed, the trial's number, the values of earlier trials and the results that it
    was told before, and on nothing else: a new one that `take` and `tell` made know the same draws the same.
    """

    @abstractmethod
    def draw(self) -> dict[str, str]:
        """Return the values of the next trial by parameter, as programs are given them."""

    @abstractmethod
    def take(self, values: Mapping[str, str]) -> None:
        """Take the values of the next trial, which were drawn before, by a predecessor.

        Raises `InputError` where it can draw no more without what its predecessor knew.
        """

    @abstractmethod
    def tell(self, number: int, result: TrialResult) -> None:
        """Take in the result of a trial, once; a loss that is not finite is the worst."""
