"""Watches over what runs: ends attempts whose workers are gone, and leaves out of account what nothing is heard of."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from beamer.errors import InputError, PlatformError
from beamer.network.protocol import Workers
from beamer.studies.events import AttemptEnded, Event, FellSilent, MemberLeft, WorkerAttached
from beamer.studies.tracker import Tracker
from beamer.studies.wakes import Wakes
from controller.event_loop.wake_timer import WakeTimer
from controller.limited_log import LimitedLog
from controller.liveness.leases import Leases, Unattached
from controller.liveness.members import Members
from controller.liveness.silence import Silence

GRACE_S = 10.0  # an agent or a controller that is started again is back within about 2 s, and its clients' leases with it
SILENCE_S = 900.0  # Steps of training and evaluations usually take less.
_SOON_S = 0.002  # changes of one burst are taken together
# The timer rests so many times as long as a check took: a tenth of the time suffices, as nothing missing is urgent.
_PAUSE = 9.0
_RETRY_S = 1.0  # A check is made again so long after the journal could not be written.


@dataclass(frozen=True)
class WatchOptions:
    """For how long something may be missing."""

    grace_s: float = GRACE_S
    """Seconds for which a worker's process may be missing before its attempt ends."""
    silence_s: float = SILENCE_S
    """Seconds without a word of a study, a stage or a trial before it is left out of account; 0: for ever."""

    def __post_init__(self) -> None:
        """Raise `InputError` for what no time can be.

        Without any grace a worker that detaches, whose agent notices a moment later, would be attached again.
        """
        if not (math.isfinite(self.grace_s) and self.grace_s > 0):
            raise InputError("--grace", self.grace_s, "seconds, above 0")
        if not (math.isfinite(self.silence_s) and self.silence_s >= 0):
            raise InputError("--silence", self.silence_s, "seconds, at least 0")


class Watch:
    """What follows from what is not there, given to `record` as events when it is due.

    tracker: which `record` keeps. leases: that have taken in what the tracker has. clock: Unix time in seconds.
    """

    def __init__(
        self,
        tracker: Tracker,
        leases: Leases,
        record: Callable[[Event], bool],
        clock: Callable[[], float],
        options: WatchOptions,
    ) -> None:
        self._tracker = tracker
        self._record = record
        self._clock = clock
        self._leases = leases
        self._silence, self.members = Silence(options.silence_s, clock()), Members(clock())
        self._options = options
        self._alarm = WakeTimer(self._check, _PAUSE)
        self._log_limited = LimitedLog()
        self._logged: set[Unattached] = set()
        # Messages of events that `record` refused at the last check; refused leases are not among them.
        self._refused: set[str] = set()

    def start(self) -> None:
        """Begin to watch: whatever is missing now has its whole grace."""
        self._alarm.within(_SOON_S)

    def stop(self) -> None:
        """Watch no longer."""
        self._alarm.cancel()

    def unattached(self) -> list[Unattached]:
        """Return the processes that are not taken for workers, and why."""
        return self._leases.unattached(self._tracker)

    def hear(self, event: Event) -> None:
        """Take in that somebody has said this, even if it is a repeat."""
        now = self._clock()
        self._silence.hear(event, now)
        self.members.hear(event, now)

    def take_in(self, event: Event) -> None:
        """Take in an event that was applied."""
        self._leases.take_in(event, self._tracker)
        self._silence.take_in(event, self._tracker)
        if Wakes.LEASES in event.wakes:
            self._alarm.within(_SOON_S)

    def report(self, agent: str, message: Workers) -> None:
        """Take in an agent's leases, and what it misses."""
        self._leases.report(agent, message)
        self._alarm.within(_SOON_S)

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone, and with it all knowledge of its leases."""
        self._leases.forget(agent)
        self._alarm.within(_SOON_S)

    def _check(self) -> None:
        now = self._clock()
        refused: set[str] = set()
        try:
            for event in self._leases.due(self._tracker, now):
                self._take(event, refused)
            for event in self.members.due(self._tracker, now, self._leases.held):
                self._take(event, refused)
            for silence in self._silence.due(self._tracker, now, self._leases.held):
                self._take(silence, refused)
        except PlatformError as error:
            self._log_limited.error("the journal does not take what has ended", None, reason=str(error))
            self._alarm.within(_RETRY_S)
            return
        for message in sorted(refused - self._refused):
            self._log_limited.error("what follows from what is missing is refused", None, message, reason=message)
        self._refused = refused
        unattached = set(self.unattached())
        for found in sorted(unattached - self._logged, key=repr):
            what = {"trial": found.trial, "rank": found.rank, "agent": found.agent, "reason": found.reason}
            self._log_limited.warning("not attached", found.agent, found, **what)
        self._logged = unattached
        for next_s in (self._leases.next_s, self.members.next_s, self._silence.next_s):
            if next_s is not None:
                self._alarm.within(max(next_s - now, _SOON_S))

    def _take(self, event: Event, refused: set[str]) -> None:
        """Record an event and log it; one that is refused, which becomes one of `refused`, does not keep the others back."""
        try:
            if self._record(event):
                self._log(event)
        except InputError as error:
            if isinstance(event, WorkerAttached):
                self._leases.refuse(event, str(error))
            else:
                refused.add(str(error))

    def _log(self, event: Event) -> None:
        match event:
            case AttemptEnded(trial=key, attempt=attempt, reason=reason):
                self._log_limited.warning(
                    "its workers are gone, the attempt ends",
                    None,
                    key,
                    trial=key,
                    attempt=attempt,
                    reason=reason.value,
                    grace_s=self._options.grace_s,
                )
            case MemberLeft(study=study, member=member):
                what_now = "a member of a study is gone: nothing was heard of it for its lease"
                self._log_limited.warning(what_now, None, (study, member), study=study, member=member)
            case FellSilent(study=study, stage=stage, trial=trial):
                what = {"trial": trial} if trial else {"stage": stage} if stage else {}
                released = "its class" if trial else "its place in the order"
                self._log_limited.warning(
                    "nothing was heard of it: left out of account until it is heard of again",
                    None,
                    (study, stage, trial),
                    study=study,
                    **what,
                    silence_s=self._options.silence_s,
                    released=released,
                )
