"""Where the time from an event to its installed plan goes: when each generation has passed which phase.

    event -> decide -> targets -> journal -> rules -> barriers -> agents

A phase ends where the next one begins, so that the phases of an event add up to its whole time.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

PHASE_SAMPLES = 10_000  # the latest ones: a bound on memory
_SCHEDSTAT = Path("/proc/self/schedstat")


class PlanPhase(StrEnum):
    """A part of the time from an event to its installed plan."""

    EVENT = "event"
    """Until a decision begins: events of one burst are waited for, and the decision before."""
    DECIDE = "decide"
    """The running jobs as columns, and the policy."""
    TARGETS = "targets"
    """The plan as rules and assignments."""
    JOURNAL = "journal"
    """Until the plan is durable."""
    RULES = "rules"
    """What changes on each switch."""
    BARRIERS = "barriers"
    """Until the last connected switch has acknowledged."""
    AGENTS = "agents"
    """Until the last agent has acknowledged."""


@dataclass(frozen=True)
class DecisionTimes:
    """When a decision was made.

    begun_s, decided_s: its beginning and its end, Unix seconds. waited_s: for how long the event loop had waited for a
    processor by its beginning, None where that is not known.
    """

    begun_s: float
    decided_s: float
    waited_s: float | None = None


@dataclass(frozen=True)
class EventPhases:
    """An event's time by phase.

    ms: milliseconds. waited_ms: of all phases but the first, what the controller's event loop waited for a processor, if known.
    """

    ms: Mapping[PlanPhase, float]
    waited_ms: float | None = None


@dataclass
class _Pending:
    """A generation that is not installed everywhere yet, and when it passed which phase."""

    generation: int
    events_at_s: Sequence[float]
    waited_s: float | None
    ends: dict[PlanPhase, float]

    def phases(self, event_at_s: float, waited_s: float | None) -> EventPhases:
        ms, before = {}, event_at_s
        for phase in PlanPhase:  # One that was passed earlier than the one before it, or not at all, has taken no time.
            end = max(before, self.ends.get(phase, before))
            ms[phase], before = 1000 * (end - before), end
        waited_ms = None if waited_s is None or self.waited_s is None else 1000 * (waited_s - self.waited_s)
        return EventPhases(MappingProxyType(ms), waited_ms)


class PhaseRecord:
    """The phases of the latest events whose plans are installed everywhere.

    events: how many have called for a decision, whatever came of it.
    """

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque(maxlen=PHASE_SAMPLES)
        self._installed: deque[EventPhases] = deque(maxlen=PHASE_SAMPLES)
        self.events = 0

    @property
    def installed(self) -> Sequence[EventPhases]:
        """The phases of each of the latest events."""
        return tuple(self._installed)

    def samples(self) -> dict[str, list[float]]:
        """Return milliseconds by phase, and as `processor` those of waiting for one, of which some may not be known."""
        found: dict[str, list[float]] = {phase.value: [one.ms[phase] for one in self._installed] for phase in PlanPhase}
        return found | {"processor": [one.waited_ms for one in self._installed if one.waited_ms is not None]}

    def call(self) -> None:
        """Take in that an event calls for a decision."""
        self.events += 1

    @property
    def is_pending(self) -> bool:
        """Whether a generation is not installed everywhere yet."""
        return bool(self._pending)

    def want(self, generation: int, events_at_s: Sequence[float], times: DecisionTimes, now: float) -> None:
        """Take in that events have led to a generation, whose targets are known by now."""
        ends = {PlanPhase.EVENT: times.begun_s, PlanPhase.DECIDE: times.decided_s, PlanPhase.TARGETS: now}
        self._pending.append(_Pending(generation, events_at_s, times.waited_s, ends))

    def reach(self, phase: PlanPhase, generation: int, now: float) -> None:
        """Take in that all generations up to this one have passed a phase by now."""
        for pending in reversed(self._pending):
            if pending.generation <= generation:
                if phase in pending.ends:
                    return  # All before it have passed it, too.
                pending.ends[phase] = now

    def install(self, generation: int, now: float, waited_s: float | None) -> None:
        """Take in that all generations up to this one are installed everywhere. waited_s: as of `DecisionTimes`, by now."""
        self.reach(PlanPhase.AGENTS, generation, now)
        while self._pending and self._pending[0].generation <= generation:
            pending = self._pending.popleft()
            self._installed.extend(pending.phases(at_s, waited_s) for at_s in pending.events_at_s)


def loop_waited_s() -> float | None:
    """Return for how long this process's first thread has waited for a processor so far, None where that is not known."""
    with suppress(OSError, ValueError):
        running, waiting, _ = _SCHEDSTAT.read_text().split()
        if int(running):
            return int(waiting) / 1e9
    return None
