"""Policies by name: those that come with a level, and those that other packages bring by entry point."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib.metadata import EntryPoint
from inspect import isabstract
from typing import Any, Generic, TypeVar

from beamer import entry_points
from beamer.decision.policy import Policy
from beamer.errors import InputError, nearest
from beamer.validation import check_arguments

P = TypeVar("P", bound=Policy[Any])


class Registry(Mapping[str, type[P]], Generic[P]):
    """The policies of a level; another package adds one by an entry point of `group` whose name is the policy's.

    seam: what every policy of the level subclasses. own: those that come with it, in the order in which they are listed.
    A name of `own` cannot be taken by another package.
    """

    def __init__(self, group: str, seam: type[P], own: Iterable[type[P]]) -> None:
        self.group = group
        self._seam = seam
        self._own = {policy.name: policy for policy in own}

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        return entry_points.find(self.group, self._own)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *self._others])

    def __len__(self) -> int:
        return len(self._own) + len(self._others)

    def __getitem__(self, name: str) -> type[P]:
        return self._own[name] if name in self._own else self._load(self._others[name])

    def make(self, name: str, **parameters: Any) -> P:
        """Return the policy of that name. Raises `InputError` for a name or a parameter that does not exist or is missing."""
        if name not in self:
            raise InputError("policy", name, nearest(name, self))
        policy = self[name]
        check_arguments(name, policy, parameters, parameters_of(policy))
        return policy(**parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._others

    def _load(self, entry: EntryPoint) -> type[P]:
        """Load another package's policy. Raises `InputError` where it cannot be imported or is not one of this level."""
        policy = entry_points.load(entry, "a class")
        if not (isinstance(policy, type) and issubclass(policy, self._seam)):
            raise entry_points.refused(entry, f"a subclass of {self._seam.__module__}.{self._seam.__name__}")
        if getattr(policy, "name", None) != entry.name:
            found = getattr(policy, "name", None)
            raise InputError(entry_points.where(entry), found, f"the name {entry.name!r} on the class, too")
        if isabstract(policy):
            missing = ", ".join(sorted(policy.__abstractmethods__))
            raise entry_points.refused(entry, f"a class that is not abstract (it does not define {missing})")
        state = getattr(policy, "State", None)
        if not (isinstance(state, type) and is_dataclass(state)):
            raise entry_points.refused(entry, f"a class whose State is a dataclass, not {state!r}")
        return policy


def parameters_of(policy: type[Policy[Any]]) -> list[str]:
    """Return the names of a policy's parameters: its fields if it is a dataclass, else none."""
    return [field.name for field in fields(policy) if field.init] if is_dataclass(policy) else []
