"""What the searches of a scenario for both levels may run on real packets, and what a configuration of each says.

`topologies.emulation.searches` has their commands. A simulation knows a search's curves alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamer.errors import InputError, nearest
from beamer.validation import input_error

Configuration = Mapping[str, int | float]
STAND_IN, DIGITS = "stand-in", "digits"
VALUE_BYTES = 4  # bytes of a gradient's value


@dataclass(frozen=True)
class Program:
    """A program."""

    configuration: type[BaseModel] | None = None
    """The record that each of its configurations is; None: it has none."""
    batch_size: int = 0
    """Samples of an iteration, all ranks together; 0: a sample per GPU that a trial asks for."""
    least_bytes: Callable[[Configuration], int] = lambda configuration: 0
    """Returns the smallest gradient of a configuration, in bytes."""
    requires: tuple[str, ...] = ()
    """Modules that it imports and Beamer does not; without them the stand-in runs."""
    extra: str = ""
    """The extra that installs them."""

    def check_bytes(self, configuration: Configuration, sync_bytes: int, field: str) -> None:
        """Check that a configuration's gradient can have so many bytes. Raises `InputError`."""
        if sync_bytes < (least := self.least_bytes(configuration)):
            raise InputError(field, sync_bytes, f"at least {least}, the smallest gradient of {dict(configuration)}")


def check_program(name: str, field: str) -> Program:
    """Return the program called `name`. Raises `InputError`."""
    if name not in PROGRAMS:
        raise InputError(field, name, nearest(name, PROGRAMS))
    return PROGRAMS[name]


def configurations(program: Program, given: Sequence[Any] | None, trials: int, field: str) -> tuple[Configuration, ...]:
    """Return the configuration of each trial, checked; empty ones for a program that has none. Raises `InputError`."""
    if program.configuration is None:
        if given is not None:
            having = [name for name, one in PROGRAMS.items() if one.configuration is not None]
            raise InputError(field, given, f"no such key without a program that has them: {', '.join(having)}")
        return ({},) * trials
    if given is None or len(given) != trials:
        raise InputError(field, given, f"a list of {trials}, one for each curve")
    return tuple(_checked(program.configuration, one, f"{field}[{i}]") for i, one in enumerate(given))


def _checked(record: type[BaseModel], given: Any, field: str) -> Configuration:
    try:
        return record.model_validate(given).model_dump()
    except ValidationError as error:
        raise input_error(error, record, field) from error


class _Digits(BaseModel):
    """Of `topologies.emulation.digits`. channels: of the first convolution; the second has twice as many."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    channels: Annotated[int, Field(ge=1, le=64)] = 8


def digits_values(channels: int, hidden: int) -> int:
    """Return how many values a gradient of `topologies.emulation.digits` has: two convolutions, two linear layers, flags."""
    convolutions = (9 + 1) * channels + (9 * channels + 1) * 2 * channels
    return convolutions + (32 * channels + 1) * hidden + (hidden + 1) * 10 + 2


def digits_hidden(channels: int, sync_bytes: int) -> int:
    """Return the most units of its hidden layer with which a gradient has at most so many bytes."""
    without, one = (digits_values(channels, hidden) for hidden in (0, 1))
    return (sync_bytes // VALUE_BYTES - without) // (one - without)


PROGRAMS: Mapping[str, Program] = {
    STAND_IN: Program(),
    DIGITS: Program(
        _Digits,
        batch_size=48,
        least_bytes=lambda configuration: VALUE_BYTES * digits_values(int(configuration["channels"]), 1),
        requires=("sklearn", "torch"),
        extra="digits",
    ),
}
