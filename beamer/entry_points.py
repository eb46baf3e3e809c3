"""What packages bring by entry point: found by its name, a name of Beamer's first, and loaded with errors that name it."""

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from beamer.errors import InputError, nearest
from beamer.lazy_commands import DISTRIBUTION

T = TypeVar("T")


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


class Registry(Mapping[str, type[T]], Generic[T]):
    """Classes by name; a package adds one by an entry point of `group`.

    seam: what every one of them subclasses. own: those of Beamer's that need no entry point, by name, in the order in which
    they are listed. No other package can take a name of Beamer's.
    """

    def __init__(self, group: str, seam: type[T], own: Mapping[str, type[T]] | None = None) -> None:
        self.group = group
        self._seam = seam
        self._own = own or {}

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        return find(self.group, self._own)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *self._others])

    def __len__(self) -> int:
        return len(self._own) + len(self._others)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._others

    def __getitem__(self, name: str) -> type[T]:
        return self._own[name] if name in self._own else self._load(self._others[name])

    def choose(self, field: str, name: object) -> type[T]:
        """Return the class of that name. Raises `InputError` about `field` with the nearest name where there is none."""
        if not isinstance(name, str) or name not in self:
            raise InputError(field, name, nearest(str(name), self))
        return self[name]

    def _load(self, entry: EntryPoint) -> type[T]:
        """Load a class. Raises `InputError` where it cannot be imported or is none of this seam."""
        found = load(entry, "a class")
        if not (isinstance(found, type) and issubclass(found, self._seam)):
            raise refused(entry, f"a subclass of {self._seam.__module__}.{self._seam.__name__}")
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise refused(entry, f"a class that is not abstract (it does not define {', '.join(missing)})")
        return found


def _is_own(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name == DISTRIBUTION
