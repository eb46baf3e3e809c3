"""Fakes for those who test the controller or build on it: switches that exist in memory only."""

from collections.abc import Callable, Sequence

from controller.openflow.reports import PairCount, SwitchConnected, SwitchEvent, SwitchInstalled, SwitchLost
from controller.openflow.rules import JobRules


class SwitchesInMemory:
    """Switches that record what is installed and, while `acknowledging`, acknowledge it at once.

    installed: every generation with its rules, oldest first. pairs: what `counters` returns.
    """

    def __init__(self, names: Sequence[str], on_event: Callable[[SwitchEvent], None]) -> None:
        self.names = tuple(names)
        self.acknowledging = True
        self.installed: list[tuple[int, tuple[JobRules, ...]]] = []
        self.pairs: tuple[PairCount, ...] = ()
        self._on_event = on_event

    async def start(self) -> None:
        """Let every switch connect."""
        for name in self.names:
            self._on_event(SwitchConnected(name))

    async def stop(self) -> None:
        """Do nothing: the record stays."""

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        """Record the rules and acknowledge them."""
        self.installed.append((generation, tuple(jobs)))
        if self.acknowledging:
            self.acknowledge()

    def acknowledge(self, generation: int | None = None) -> None:
        """Acknowledge a generation (default: the latest) on every switch."""
        generation = self.installed[-1][0] if generation is None else generation
        for name in self.names:
            self._on_event(SwitchInstalled(name, generation, 0, 0.0))

    def lose(self, name: str) -> None:
        """Lose a switch's connection."""
        self._on_event(SwitchLost(name))

    async def counters(self) -> tuple[PairCount, ...]:
        """Return `pairs`."""
        return self.pairs
