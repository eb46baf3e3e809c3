"""What packages bring by entry point: found by its name, a name of Beamer's first, and loaded with errors that name it."""

from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from beamer.errors import InputError
from beamer.lazy_commands import DISTRIBUTION


def find(group: str, own: Container[str] = ()) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without those that take a name of Beamer's.

    own: names that are Beamer's without an entry point; one that its distribution registers is Beamer's anyway.
    """
    entries = sorted(entry_points(group=group), key=_is_own)  # Of equal names the last entry stays.
    return {entry.name: entry for entry in entries if entry.name not in own}


def load(entry: EntryPoint, kind: str) -> Any:
    """Import what an entry point refers to. kind: what that should be, for the `InputError` if it cannot be imported."""
    try:
        return entry.load()
    except Exception as error:  # Another package's modules may raise anything.
        raise refused(entry, f"{kind} that can be imported ({type(error).__name__}: {error})") from error


def refused(entry: EntryPoint, expected: str) -> InputError:
    """Return the error that names an entry point, what it refers to and what was expected."""
    return InputError(where(entry), entry.value, expected)


def where(entry: EntryPoint) -> str:
    """Return the field of an `InputError` about an entry point."""
    return f"entry point {entry.group}:{entry.name}"


def _is_own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name == DISTRIBUTION
