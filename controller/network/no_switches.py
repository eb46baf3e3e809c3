"""In the place of a driver of switches where none speaks OpenFlow: hosts order what they send, and mark it for switches.

Switches that rank by codepoints keep the order by themselves, as their own configuration says; nothing of it can be read back.
"""

from collections.abc import Callable, Sequence

from controller.openflow.reports import PairCount, SwitchEvent
from controller.openflow.rules import JobRules
from controller.openflow.terms import Terms


class NoSwitches:
    """Leads no switch, and counts nothing."""

    names: Sequence[str] = ()

    def lead(self, on_event: Callable[[SwitchEvent], None], terms: Terms) -> None:
        """Report nothing."""

    async def start(self) -> None:
        """Listen for nobody."""

    async def stop(self) -> None:
        """Leave nothing, as there is nothing."""

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        """Install nothing."""

    async def counters(self) -> tuple[PairCount, ...]:
        """Return that nothing was counted."""
        return ()
