"""Every fault by name, in the order in which the document has them."""

from collections.abc import Mapping

from eval.faults import clock, emulated, failover, garbage, journals, kills, reconnects, upgrade
from eval.faults.base import Fault

_MODULES = (kills, failover, emulated, upgrade, journals, clock, reconnects, garbage)

FAULTS: Mapping[str, Fault] = {fault.name: fault for module in _MODULES for fault in module.FAULTS}
