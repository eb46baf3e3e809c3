"""Every fault by name, in the order in which the document has them."""

from collections.abc import Mapping

from eval.faults import kills
from eval.faults.base import Fault

FAULTS: Mapping[str, Fault] = {fault.name: fault for module in (kills,) for fault in module.FAULTS}
