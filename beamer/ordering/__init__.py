"""Network policies: one per file, each registered here under its name."""

from typing import Any

from beamer.errors import InputError, nearest
from beamer.ordering.base import Nothing, Order, Ordering, Tier
from beamer.ordering.beamer import Beamer
from beamer.ordering.beamer_stage import BeamerStage
from beamer.ordering.fair import Fair
from beamer.ordering.fifo import Fifo

__all__ = ["ORDERINGS", "Nothing", "Order", "Ordering", "Tier", "ordering"]

ORDERINGS: dict[str, type[Ordering[Any]]] = {policy.name: policy for policy in (Fair, Fifo, Beamer, BeamerStage)}


def ordering(name: str) -> Ordering[Any]:
    """Return the policy that is registered under `name`. Raises `InputError` with the nearest name if there is none."""
    if name not in ORDERINGS:
        raise InputError("policy", name, nearest(name, ORDERINGS))
    return ORDERINGS[name]()
