"""What policies of both levels have in common: a name, and a state that the journal keeps for them."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class Stateless:
    """The state of a policy that remembers nothing."""


class Policy(ABC, Generic[S]):
    """A policy of either level.

    name: what users select it by. State: the frozen dataclass that it remembers; plain JSON by pydantic, for the journal.
    """

    name: ClassVar[str]
    State: type[S]

    def initial(self) -> S:
        """Return what the policy remembers before its first decision."""
        return self.State()
