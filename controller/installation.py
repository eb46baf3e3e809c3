"""Who has carried out which generation, and how long it took: the ledger of acknowledgements.

A generation is installed everywhere when every switch has answered its barrier and every agent its assignment; whoever has
nothing to change for a generation is up to date without being asked again.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

KEPT_SAMPLES = 10_000  # a bound on memory; a long-lived controller reports its latest


@dataclass
class _Party:
    """A switch or an agent.

    has: the generation in force there, 0 if not known. asked: the last that changed it. present: whether it is connected.
    """

    asked: int
    has: int = 0
    present: bool = False

    def answer(self, generation: int, wanted: int) -> None:
        # An answer to a request that has been replaced since counts only for itself.
        self.has = max(self.has, wanted if generation >= self.asked else generation)

    def want(self, generation: int, before: int, changed: bool) -> None:
        if changed:
            self.asked = generation
        elif self.has == before:
            self.has = generation


class Installation:
    """The generation that is wanted, and the one that each switch and agent has."""

    def __init__(self, switches: Iterable[str], agents: Iterable[str], generation: int) -> None:
        self.generation = generation
        self._switches = {name: _Party(generation) for name in sorted(switches)}
        self._agents = {name: _Party(generation) for name in sorted(agents)}
        self._waiting: list[tuple[int, float]] = []
        self._plan_ms: deque[float] = deque(maxlen=KEPT_SAMPLES)

    @property
    def switches(self) -> Mapping[str, int]:
        """The generation installed on each switch, 0 where not known."""
        return {name: party.has for name, party in self._switches.items()}

    @property
    def agents(self) -> Mapping[str, int]:
        """The generation in force on each agent, 0 where not known."""
        return {name: party.has for name, party in self._agents.items()}

    @property
    def plan_ms(self) -> Sequence[float]:
        """Milliseconds from each stage event that changed the network to the change being installed everywhere."""
        return tuple(self._plan_ms)

    @property
    def everywhere(self) -> bool:
        """Whether the wanted generation runs on every switch and agent."""
        return self._floor() >= self.generation

    @property
    def on_switches(self) -> int:
        """The latest generation that runs on every connected switch."""
        return min((party.has for party in self._switches.values() if party.present), default=self.generation)

    def want(self, generation: int, switches: bool, agents: Collection[str], events_at_s: Iterable[float]) -> None:
        """Make `generation` the wanted one.

        switches: whether their rules change. agents: whose assignments change. events_at_s: when the stage events came in
        that caused it, in the seconds of `now` below; they count only if something changes.
        """
        before, self.generation = self.generation, generation
        for party in self._switches.values():
            party.want(generation, before, switches)
        for name, party in self._agents.items():
            party.want(generation, before, name in agents)
        if switches or agents:
            self._waiting += [(generation, at_s) for at_s in events_at_s]

    def switch_connected(self, switch: str) -> None:
        """Note that a switch can be reached; what it has is known when it answers."""
        self._switches[switch].present = True

    def switch_installed(self, switch: str, generation: int, now: float) -> None:
        """Note a switch's barrier reply to what it was last asked to change for `generation`."""
        self._switches[switch].answer(generation, self.generation)
        self._settle(now)

    def agent_applied(self, agent: str, generation: int, now: float) -> None:
        """Note an agent's acknowledgement of the assignment of `generation`."""
        self._agents[agent].answer(generation, self.generation)
        self._settle(now)

    def switch_lost(self, switch: str) -> None:
        """Forget what a switch had: it is known again when it answers again."""
        self._switches[switch].has = 0
        self._switches[switch].present = False

    def agent_lost(self, agent: str) -> None:
        """Forget what an agent had: it is known again when it answers again."""
        self._agents[agent].has = 0

    def _floor(self) -> int:
        parties = (*self._switches.values(), *self._agents.values())
        return min((party.has for party in parties), default=self.generation)

    def _settle(self, now: float) -> None:
        floor = self._floor()
        self._plan_ms.extend(1000 * (now - at_s) for generation, at_s in self._waiting if generation <= floor)
        self._waiting = [entry for entry in self._waiting if entry[0] > floor]
