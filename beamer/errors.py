"""Every error that Beamer raises on purpose, so that callers can tell bad input from a broken platform.

BeamerError
+-- InputError         a value is wrong: names the field, the value, what was expected (exit code 2, HTTP 422)
|   +-- NotFoundError  a name that nothing is registered under (HTTP 404)
|   +-- ConflictError  a repeated registration that differs from the first (HTTP 409)
|   +-- NewerError     what a newer Beamer wrote; it is not damaged, and nothing of it may be removed
+-- PlatformError      the machine lacks something: root, Open vSwitch, a kernel module (exit code 2)
|   +-- TakenError     another process has what only one can have: a journal
|   +-- NoControllerError no controller answers, or none of them leads
|   +-- SilentError    a database does not answer: who leads by it cannot know whether it still does
+-- EmulationError     an emulated run broke off: names the step and what was found (exit code 1)
+-- EngineError        an engine could not do what it was asked for a job: names both and what it saw (exit code 1)
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import TypeVar

E = TypeVar("E", bound=BaseException)

MAX_SHOWN = 1000  # The limit, in characters of a value in a message, suffices for what a person wrote.
# A misspelt name is compared with at most so many, as each takes about 50 microseconds and delays a server's other answers.
MAX_COMPARED = 256


class BeamerError(Exception):
    """The base of every deliberate error."""


class InputError(BeamerError, ValueError):
    """A value that cannot be used; nothing was changed."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: got {shortened(repr(value))}, expected {expected}")

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, object, str]]:
        """Return how to make it again in another process."""
        return type(self), (self.field, self.value, self.expected)


class NotFoundError(InputError):
    """A name that nothing is registered under."""


class ConflictError(InputError):
    """A repeated registration whose content differs from the first one."""


class NewerError(InputError):
    """What a newer Beamer wrote, and this one cannot read."""


class PlatformError(BeamerError):
    """The machine lacks something that the command needs."""

    def __init__(self, missing: str, remedy: str) -> None:
        self.missing = missing
        self.remedy = remedy
        super().__init__(f"{missing}; {remedy}")

    def __reduce__(self) -> tuple[type["PlatformError"], tuple[str, str]]:
        """Return how to make it again in another process."""
        return type(self), (self.missing, self.remedy)


class TakenError(PlatformError):
    """Another process has what only one can have."""


class SilentError(PlatformError):
    """A database that cannot be reached, or does not answer in time."""


class NoControllerError(PlatformError):
    """No controller answers where one was asked, or none of them leads."""


class EmulationError(BeamerError):
    """An emulated run that broke off."""


class EngineError(BeamerError):
    """A call that an engine could not carry out; it may be repeated."""


def nearest(value: str, known: Iterable[str]) -> str:
    """Say which names are known, the nearest to `value` first, as the `expected` part of an `InputError`."""
    names = sorted(known)
    return f"one of {', '.join(names)}{hint(value, names)}"


def hint(value: str, known: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" with the nearest of the first `MAX_COMPARED` known names, nothing if none is near."""
    close = get_close_matches(value[:MAX_SHOWN], islice(known, MAX_COMPARED), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shortened(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text, of a longer one its first `most` characters and how many there were."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def first_of(group: BaseExceptionGroup[E]) -> E:
    """Return the first exception in nested groups."""
    found: E | BaseExceptionGroup[E] = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
