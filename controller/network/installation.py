"""Which generation is installed on each switch and agent, and how long that took, from their acknowledgements.

A generation is installed everywhere when every switch has answered its barrier and every agent its assignment; one for which
a generation changes nothing is up to date without a further request.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.network.phases import DecisionTimes, PhaseRecord, PlanPhase

LATENCY_SAMPLES = 10_000  # the latest ones: a bound on memory


@dataclass
class _Element:
    """A switch or an agent.

    installed: the generation in force there, 0 if not known. requested: the last that changed it. connected: switches only.
    able: whether a switch can hold rules at all.
    """

    requested: int
    installed: int = 0
    connected: bool = False
    able: bool = True

    def acknowledge(self, generation: int, wanted: int) -> None:
        # An acknowledgement of a request that has been replaced since counts only for itself.
        self.installed = max(self.installed, wanted if generation >= self.requested else generation)

    def want(self, generation: int, before: int, changed: bool) -> None:
        if changed:
            self.requested = generation
        elif self.installed == before:
            self.installed = generation


class Installation:
    """The generation that is wanted, and the one that each switch and agent has.

    waited_s: returns for how long the event loop has waited for a processor so far, None where that is not known.
    """

    def __init__(
        self,
        switches: Iterable[str],
        agents: Iterable[str],
        generation: int,
        waited_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.generation = generation
        self.phases = PhaseRecord()
        self._waited_s = waited_s
        self._switches = {name: _Element(generation) for name in sorted(switches)}
        self._agents = {name: _Element(generation) for name in sorted(agents)}
        self._waiting: deque[tuple[int, float]] = deque(maxlen=LATENCY_SAMPLES)
        self._recorded = generation  # Latencies of generations up to this one are recorded.
        self._plan_ms: deque[float] = deque(maxlen=LATENCY_SAMPLES)

    @property
    def switches(self) -> Mapping[str, int]:
        """The generation installed on each switch, 0 where not known."""
        return {name: element.installed for name, element in self._switches.items()}

    @property
    def agents(self) -> Mapping[str, int]:
        """The generation in force on each agent, 0 where not known."""
        return {name: element.installed for name, element in self._agents.items()}

    @property
    def connected_switches(self) -> Sequence[str]:
        """The names of the switches that are connected."""
        return [name for name, element in self._switches.items() if element.connected]

    @property
    def plan_ms(self) -> Sequence[float]:
        """Milliseconds from each stage event that changed the network to the change being installed everywhere."""
        return tuple(self._plan_ms)

    @property
    def everywhere(self) -> bool:
        """Whether the wanted generation runs on every switch and agent."""
        return self._floor() >= self.generation

    def is_on(self, agents: Iterable[str]) -> bool:
        """Say whether the wanted generation runs on every connected switch and on these agents."""
        installed = [self.on_switches, *(self._agents[name].installed for name in agents)]
        return min(installed) >= self.generation

    @property
    def on_switches(self) -> int:
        """The latest generation that runs on every connected switch that can hold rules: nobody has to wait for any other."""
        held = (element.installed for element in self._switches.values() if element.connected and element.able)
        return min(held, default=self.generation)

    def want(
        self,
        generation: int,
        switches: bool,
        agents: Collection[str],
        events_at_s: Sequence[float],
        times: DecisionTimes | None = None,
        now: float = 0.0,
    ) -> None:
        """Make `generation` the wanted one.

        switches: whether their rules change. agents: whose assignments change. events_at_s: when the stage events came in
        that caused it, in the seconds of `now` below; they count only if something changes. times: of the decision, if one was
        made, whose targets are known by `now`.
        """
        before, self.generation = self.generation, generation
        for element in self._switches.values():
            element.want(generation, before, switches)
        for name, element in self._agents.items():
            element.want(generation, before, name in agents)
        if switches or agents:
            self._waiting.extend((generation, at_s) for at_s in events_at_s)
            if times is not None and events_at_s:
                self.phases.want(generation, events_at_s, times, now)

    def switch_connected(self, switch: str) -> None:
        """Note that a switch is connected; what is installed there is known when it acknowledges."""
        self._switches[switch].connected = True

    def switch_able(self, switch: str, able: bool) -> None:
        """Note whether a switch can hold rules at all; one that cannot has no generation."""
        self._switches[switch].able = able
        if not able:
            self._switches[switch].installed = 0

    def switch_changes(self, switch: str) -> None:
        """Note that a switch is to hold what it has in another form; what is installed is known when it acknowledges that."""
        self._switches[switch].installed = 0

    def switch_installed(self, switch: str, generation: int, now: float) -> None:
        """Note a switch's barrier reply to its latest changes for `generation`."""
        self._switches[switch].acknowledge(generation, self.generation)
        self._record_latencies(now)

    def agent_applied(self, agent: str, generation: int, now: float) -> None:
        """Note an agent's acknowledgement of the assignment of `generation`."""
        self._agents[agent].acknowledge(generation, self.generation)
        self._record_latencies(now)

    def switch_lost(self, switch: str) -> None:
        """Note that a switch is gone; what is installed there is known again when it acknowledges again."""
        self._switches[switch].installed = 0
        self._switches[switch].connected = False

    def agent_lost(self, agent: str) -> None:
        """Note that an agent is gone; what is in force there is known again when it acknowledges again."""
        self._agents[agent].installed = 0

    def _floor(self) -> int:
        elements = (*self._switches.values(), *self._agents.values())
        return min((element.installed for element in elements), default=self.generation)

    def _record_latencies(self, now: float) -> None:
        self.phases.reach(PlanPhase.BARRIERS, self.on_switches, now)
        floor = self._floor()
        if floor <= self._recorded:
            return
        self._recorded = floor
        if self.phases.is_pending:
            self.phases.install(floor, now, self._waited_s())
        self._plan_ms.extend(1000 * (now - at_s) for generation, at_s in self._waiting if generation <= floor)
        while self._waiting and self._waiting[0][0] <= floor:
            self._waiting.popleft()
