"""From what every job was granted, and what the engine observes, to the calls that are due now.

Calls that free GPUs come first; a job waits until those that it was granted are free. What is left to do follows from the
engine's next report.

A job that has no processes yet takes seconds until it computes. On an engine that prepares, it is therefore started ahead, and
the job that has its GPUs goes on until it is ready, although they are granted to it no more.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from beamer.gpu.engine import Engine, Observed, Placement, RunState


class Call(StrEnum):
    """A call of an engine."""

    PREPARE = "prepare"
    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    RESIZE = "resize"
    PARK = "park"
    STOP = "stop"


@dataclass(frozen=True)
class Action:
    """A call for a job. placement: of `PREPARE`, `START` and `RESIZE`."""

    call: Call
    job: str
    placement: Placement | None = None

    def perform(self, engine: Engine) -> None:
        """Make the call. Raises `EngineError`."""
        match self.call:
            case Call.PREPARE:
                assert self.placement
                engine.prepare(self.job, self.placement)
            case Call.START:
                assert self.placement
                engine.start(self.job, self.placement)
            case Call.RESIZE | Call.PARK:
                engine.resize(self.job, self.placement)
            case Call.SUSPEND:
                engine.suspend(self.job)
            case Call.RESUME:
                engine.resume(self.job)
            case Call.STOP:
                engine.stop(self.job)


def actions(
    wanted: Mapping[str, Placement],
    live: Collection[str],
    observed: Mapping[str, Observed],
    stuck: Collection[str] = frozenset(),
    failed: Mapping[str, int] = MappingProxyType({}),
    prepares: bool = False,
) -> tuple[Action, ...]:
    """Return the calls that bring what is observed nearer to what is wanted and can be made at once.

    wanted: by job that was granted GPUs. live: jobs that have not ended; others that the engine knows are stopped, as are those
    whose processes have ended by themselves, and those whose launch has `failed` by now, so that they can be started anew.
    stuck: jobs that a call has just failed for: they are left alone, with the GPUs that they have, and delay no other job.
    prepares: whether the engine starts jobs ahead.
    """
    awaited = _awaited(wanted, live, observed, stuck) if prepares else frozenset()
    freeing: list[Action] = []
    busy: set[tuple[str, int]] = set()
    for key, seen in observed.items():
        if seen.state.is_computing and seen.placement:
            busy |= set(seen.placement.devices)
        if key in stuck:
            continue
        if key not in live or seen.state.is_finished or 0 < seen.launch <= failed.get(key, 0):
            freeing.append(Action(Call.STOP, key))
        elif (
            seen.state is RunState.RUNNING
            and seen.placement
            and key not in wanted
            and not awaited.issuperset(seen.placement.devices)
        ):
            freeing.append(Action(Call.SUSPEND, key))
    if freeing:
        return tuple(freeing)
    blocked: list[Action] = []
    due: list[Action] = []
    for key, placement in wanted.items():
        one = observed.get(key)
        state = one.state if one else RunState.PARKED
        held = one.placement if one else None
        if state is RunState.STOPPING or (state is RunState.RUNNING and held == placement) or key not in live or key in stuck:
            continue
        own = set(held.devices) if held and state is RunState.RUNNING else set()
        if busy.isdisjoint(set(placement.devices) - own):
            busy |= set(placement.devices)
            due.append(Action(_call(state, held, placement), key, placement))
        elif state is RunState.RUNNING:
            blocked.append(Action(Call.PARK, key))
        elif awaited.issuperset(placement.devices) and not (state.is_ahead and held == placement):
            due.append(Action(Call.PREPARE, key, placement))
    return tuple(due + blocked)


def _awaited(
    wanted: Mapping[str, Placement], live: Collection[str], observed: Mapping[str, Observed], stuck: Collection[str]
) -> frozenset[tuple[str, int]]:
    """Return the GPUs of jobs that would let them stand idle at first: they have no processes, or these are not ready yet."""
    found: set[tuple[str, int]] = set()
    for key, placement in wanted.items():
        one = observed.get(key)
        if key not in live or key in stuck:
            continue
        if one is None or not one.state.has_processes or (one.state.is_ahead and not _is_ready(one, placement)):
            found.update(placement.devices)
    return frozenset(found)


def _is_ready(seen: Observed, placement: Placement) -> bool:
    """Return whether a job that was started ahead can compute on these GPUs at once."""
    return seen.state is RunState.PREPARED and seen.placement == placement


def _call(state: RunState, held: Placement | None, placement: Placement) -> Call:
    if state is RunState.SUSPENDED:
        return Call.RESUME if held == placement else Call.RESIZE
    return Call.RESIZE if state is RunState.RUNNING else Call.START
