"""Network policies: one per file, each registered here under its name."""

from typing import Any

from beamer.errors import InputError, nearest
from beamer.ordering.aalo import Aalo
from beamer.ordering.base import Nothing, Order, Ordering, Tier
from beamer.ordering.beamer import Beamer
from beamer.ordering.beamer_search import BeamerSearch
from beamer.ordering.beamer_stage import BeamerStage
from beamer.ordering.fair import Fair
from beamer.ordering.fifo import Fifo
from beamer.ordering.fifo_lm import FifoLm
from beamer.ordering.lcf import Lcf
from beamer.ordering.ncf import Ncf
from beamer.ordering.scf import Scf
from beamer.ordering.sebf import Sebf
from beamer.ordering.sincronia import Sincronia
from beamer.ordering.sincronia_event import SincroniaEvent
from beamer.ordering.sincronia_offline import SincroniaOffline

__all__ = ["ORDERINGS", "Nothing", "Order", "Ordering", "Tier", "ordering"]

_POLICIES: tuple[type[Ordering[Any]], ...] = (
    Fair,
    Fifo,
    FifoLm,
    Scf,
    Ncf,
    Lcf,
    Sebf,
    Aalo,
    Sincronia,
    SincroniaOffline,
    SincroniaEvent,
    Beamer,
    BeamerStage,
    BeamerSearch,
)
ORDERINGS: dict[str, type[Ordering[Any]]] = {policy.name: policy for policy in _POLICIES}


def ordering(name: str) -> Ordering[Any]:
    """Return the policy that is registered under `name`. Raises `InputError` with the nearest name if there is none."""
    if name not in ORDERINGS:
        raise InputError("policy", name, nearest(name, ORDERINGS))
    return ORDERINGS[name]()
