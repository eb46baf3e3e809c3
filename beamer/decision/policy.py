"""What policies of both levels have in common beyond their seams."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stateless:
    """The state of a policy that remembers nothing."""
