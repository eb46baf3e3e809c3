"""Policies by name: those that come with a level, and those that other packages bring by entry point."""

from collections.abc import Iterable
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint
from typing import Any, TypeVar

from beamer import entry_points
from beamer.decision.policy import Policy
from beamer.errors import InputError
from beamer.validation import check_arguments, parameters_of

P = TypeVar("P", bound=Policy[Any])


class PolicyRegistry(entry_points.Registry[P]):
    """The policies of a level; the name of another package's entry point is the policy's.

    own: those that come with the level, in the order in which they are listed.
    """

    def __init__(self, group: str, seam: type[P], own: Iterable[type[P]]) -> None:
        super().__init__(group, seam, {policy.name: policy for policy in own})

    def make(self, name: str, **parameters: Any) -> P:
        """Return the policy of that name. Raises `InputError` for a name or a parameter that does not exist or is missing."""
        policy = self.choose("policy", name)
        check_arguments(name, policy, parameters, parameters_of(policy))
        return policy(**parameters)

    def _load(self, entry: EntryPoint) -> type[P]:
        """Load another package's policy. Raises `InputError` for one without this name, too, and for a state that is none."""
        policy = super()._load(entry)
        if getattr(policy, "name", None) != entry.name:
            found = getattr(policy, "name", None)
            raise InputError(entry_points.where(entry), found, f"the name {entry.name!r} on the class, too")
        state = getattr(policy, "State", None)
        if not (isinstance(state, type) and is_dataclass(state)):
            raise entry_points.refused(entry, f"a class whose State is a dataclass, not {state!r}")
        return policy
