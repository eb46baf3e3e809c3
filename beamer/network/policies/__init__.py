"""Network policies: one per file, each registered here under its name; other packages add theirs by entry point."""

from typing import Any

from beamer.decision.registry import PolicyRegistry
from beamer.network.policies.aalo import Aalo
from beamer.network.policies.beamer import Beamer
from beamer.network.policies.beamer_plan import BeamerPlan
from beamer.network.policies.beamer_stage import BeamerStage
from beamer.network.policies.fair import Fair
from beamer.network.policies.fifo import Fifo
from beamer.network.policies.fifo_lm import FifoLm
from beamer.network.policies.lcf import Lcf
from beamer.network.policies.ncf import Ncf
from beamer.network.policies.scf import Scf
from beamer.network.policies.sebf import Sebf
from beamer.network.policies.sincronia import Sincronia
from beamer.network.policies.sincronia_event import SincroniaEvent
from beamer.network.policies.sincronia_offline import SincroniaOffline
from beamer.network.policy import NetworkPolicy, Order, Tier

__all__ = ["NETWORK_POLICIES", "NetworkPolicy", "Order", "Tier", "network_policy"]

_POLICIES: tuple[type[NetworkPolicy[Any]], ...] = (
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
    BeamerPlan,
)
NETWORK_POLICIES: PolicyRegistry[NetworkPolicy[Any]] = PolicyRegistry("beamer.network_policies", NetworkPolicy, _POLICIES)  # type: ignore[type-abstract]


def network_policy(name: str, **parameters: Any) -> NetworkPolicy[Any]:
    """Return the policy of that name. Raises `InputError` for a name or a parameter that does not exist."""
    return NETWORK_POLICIES.make(name, **parameters)
