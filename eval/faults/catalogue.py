"""Every fault by name, in the order in which the document has them."""

from collections.abc import Mapping

from eval.faults import failover, kills
from eval.faults.base import Fault

FAULTS: Mapping[str, Fault] = {fault.name: fault for module in (kills, failover) for fault in module.FAULTS}
