"""The GPU scheduler: an engine's reports become events, events wake who decides, whose decision is journaled, then carried out.

The simulator and the live system run this one; they differ in the engine and in the clock.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import nan

from beamer.errors import EngineError, InputError
from beamer.gpu.decider import Decider, Upcoming
from beamer.gpu.devices import Devices
from beamer.gpu.engine import Engine, Observed, Placement, RunState
from beamer.gpu.events import NodesSeen, RanksSeen, ReportRefused, RunFailed, RunFinished, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.limits import RunLimits
from beamer.gpu.model import Grant, Report
from beamer.gpu.reconcile import Action, Call, actions
from beamer.studies.events import Event, TrialEnded
from beamer.studies.model import TrialStatus
from beamer.studies.tracker import Tracker
from beamer.studies.wakes import Wakes

AWAKENING = Wakes.GPUS | Wakes.GPUS_PACE  # A scheduler decides after both at its next step.
NO_LIMITS = RunLimits()
AHEAD = 8  # So many jobs for each GPU are started ahead at most: each keeps memory of its node.
AHEAD_EVERY_S = 0.25  # Who comes next is asked no more often.
ROUNDS = 8  # A step makes so many rounds of calls, as every job may have to leave its GPUs before another comes.

log = logging.getLogger("beamer.gpu")


class Scheduler:
    """Keep decisions carried out on an engine. seen: what was observed of its jobs last.

    tracker: as its journal left it, with `ledger` among its ledgers. decider: makes them, from these two. write: makes an event
    durable, before it takes effect. limits: of trials' runs. applied: called with every event that has been applied. is_over:
    whether nothing is decided or started any more, asked whenever the engine has been looked at.
    """

    def __init__(
        self,
        tracker: Tracker,
        ledger: GpuLedger,
        decider: Decider,
        engine: Engine,
        write: Callable[[Event], None],
        limits: RunLimits = NO_LIMITS,
        applied: Callable[[Event], None] = lambda event: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.tracker = tracker
        self.ledger = ledger
        self.engine = engine
        self.limits = limits
        self._write = write
        self._applied = applied
        self._is_over = is_over
        self.seen: Mapping[str, Observed] = {}
        self._decider = decider
        self._wake_s: float | None = None
        self._awake = True
        self._prepares = engine.prepares and decider.looks_ahead
        self._next_ahead_s = 0.0
        self._upcoming: tuple[object, Upcoming] | None = None
        self._logged: dict[str, str] = {}
        self._last_refused: set[str] = set()  # jobs whose latest report was refused, though perhaps in an earlier step

    def take(self, event: Event) -> bool:
        """Journal and apply an event that changes anything, and say whether it did. Raises `InputError` as `Tracker.check`.

        One from before the latest known happens now: the clock was set back.
        """
        event = replace(event, at_s=max(event.at_s, self.tracker.now_s))
        if not self.tracker.check(event):
            return False
        self._write(event)
        self.tracker.apply(event)
        self._applied(event)
        self._awake = self._awake or bool(event.wakes & AWAKENING)
        return True

    def step(self, now: float) -> float | None:
        """Take in what the engine sees, decide if anything has changed or it is time, and make the calls that are due.

        Returns when to step again if nothing happens: when the policy wants to be asked again, or at once where something
        happened meanwhile; None: not at all.
        """
        now = max(now, self.tracker.now_s)
        self.take(NodesSeen(now, self.engine.nodes()))
        seen = self._observe(now)
        is_time = self._wake_s is not None and now >= self._wake_s
        if not self._is_over() and (self._awake or is_time or self._decider.is_due):
            self._awake = False
            if self._prepares:
                ahead = {key: one.placement for key, one in seen.items() if one.state.is_ahead}
                self._decider.prepared = {key: placement.devices for key, placement in ahead.items() if placement}
            self._wake_s = self._decider.decide(now, self.take)
        self._carry_out(seen, now)
        self._start_ahead(now)
        return now if self._awake else self._wake_s

    def watch(self, now: float) -> Mapping[str, Observed]:
        """Take in what the engine sees and have it forget what has ended, decide nothing, and return what was seen."""
        seen = self._observe(now)
        for key, one in seen.items():
            if one.state.is_finished or key in self.ledger.ended or self._has_failed(key, one):
                self._perform(Action(Call.STOP, key))
        return seen

    def _observe(self, now: float) -> Mapping[str, Observed]:
        seen = self.seen = self.engine.report()
        for key, one in seen.items():
            if self.ledger.job(key):
                self._record(key, one, now)
        return seen

    def _has_failed(self, key: str, seen: Observed) -> bool:
        """Say whether it is known that what is seen of a job has failed."""
        return 0 < seen.launch <= self.ledger.failed_launch(key)

    def _record(self, key: str, seen: Observed, now: float) -> None:
        """Take in what is new about a job that has not ended: reports, and what has become of its run."""
        ended_s = max((now, *(report.at_s for report in seen.reports)))  # The run may have ended since this step began.
        if not self._has_failed(key, seen):
            self._take_reports(key, seen, now)
            if seen.processes is not None:
                self.take(RanksSeen(now, key, dict(seen.processes)))
            is_failed = seen.state is RunState.FAILED
            reason = seen.exit if is_failed else self.limits.exceeded(seen)
            self._log_remark(key, reason or seen.exit, bool(reason))
            if not (is_failed or reason):
                if seen.state is RunState.FINISHED:
                    if key in self._last_refused:
                        self._take_unknown_loss(key, seen, ended_s)
                    self._take_finish(key, seen, ended_s)
                return
            self.take(RunFailed(ended_s, key, seen.launch, reason))
        if len(self.ledger.failures(key)) > self.limits.retries:
            self.take(TrialEnded(ended_s, key, TrialStatus.FAILED))

    def _take_reports(self, key: str, seen: Observed, now: float) -> None:
        """Take in what a job reports, and keep in mind whether the last of its reports was refused."""
        refused = seen.refused
        for report in seen.reports:
            try:
                self.take(TrialReported(now, key, report.in_range))
                self._last_refused.discard(key)
            except InputError as error:
                refused = refused or str(error)
                self._last_refused.add(key)
        if seen.speeds or seen.costs:
            self.take(TrialReported(now, key, None, seen.speeds, seen.costs))
        if refused:
            self.take(ReportRefused(now, key, refused))

    def _take_unknown_loss(self, key: str, seen: Observed, ended_s: float) -> None:
        """Take in that the loss at a run's end is not known: the one before is not that of the end."""
        job = self.ledger.job(key)
        assert job, "it has not ended"
        service_s = job.reports[-1].service_s if job.reports else 0.0
        self.take(TrialReported(ended_s, key, Report(ended_s, float(seen.target or job.request.iterations), nan, service_s)))

    def _take_finish(self, key: str, seen: Observed, ended_s: float) -> None:
        job = self.ledger.job(key)
        assert job, "it has not ended"
        self.take(RunFinished(ended_s, key, seen.target or job.request.iterations))
        if self.ledger.is_complete(key):
            self.take(TrialEnded(ended_s, key, TrialStatus.FINISHED))

    def _log_remark(self, key: str, remark: str, is_failed: bool) -> None:
        """Log once why a job failed, or what it lost."""
        if remark and self._logged.get(key) != remark:
            self._logged[key] = remark
            log.warning("%s failed: %s" if is_failed else "%s: %s", key, remark)

    def revoke(self, now: float) -> None:
        """Take their GPUs from all jobs, which do not run any more, so that no time on GPUs is counted for them."""
        if self.ledger.granted:
            self._decider.revoke(max(now, self.tracker.now_s), self.take)

    def _carry_out(self, seen: Mapping[str, Observed], now: float) -> None:
        stuck: set[str] = set()  # The next step tries these jobs again.
        for _ in range(ROUNDS):
            failed = {key: self.ledger.failed_launch(key) for key in seen}
            due = actions(self._wanted(), self.ledger.live_jobs, seen, stuck, failed, self._prepares)
            if self._is_over():
                due = tuple(action for action in due if action.call is Call.STOP)
            if not due:
                return
            stuck.update(action.job for action in due if not self._perform(action))
            seen = self._observe(now)

    def _start_ahead(self, now: float) -> None:
        """Start jobs ahead that come next, as far as the engine has processors and memory for them."""
        if not self._prepares or self._is_over() or now < self._next_ahead_s:
            return
        self._next_ahead_s = now + AHEAD_EVERY_S
        ahead = frozenset(key for key, one in self.seen.items() if one.state.is_ahead)
        if len(ahead) >= AHEAD * sum(node.gpus for node in self.ledger.cluster.nodes):
            return
        next_ones = self._comes_next(ahead, now)
        for key, (grant, devices) in list(next_ones.items()):
            one, placement = self.seen.get(key), _placement(grant, devices)
            if one is not None and (one.state.has_processes or one.state.is_finished):
                continue
            if not self.engine.may_prepare(placement):
                return
            if not self._perform(Action(Call.PREPARE, key, placement)):
                del next_ones[key]  # It is tried again when something has changed.

    def _comes_next(self, ahead: frozenset[str], now: float) -> Upcoming:
        """Return who comes next after the jobs in `ahead`; the decider is asked again when others wait or nodes change."""
        waiting = frozenset(job.key for job in self.ledger.submitted(self.tracker)) - self.ledger.granted.keys()
        asked = ahead, waiting, self.ledger.cluster
        if self._upcoming is None or self._upcoming[0] != asked:
            self._upcoming = asked, self._decider.upcoming(now, ahead)
        return self._upcoming[1]

    def _perform(self, action: Action) -> bool:
        try:
            action.perform(self.engine)
        except EngineError as error:
            log.warning("%s %s: %s", action.call.value, action.job, error)
            return False
        return True

    def _wanted(self) -> Mapping[str, Placement]:
        devices = self.ledger.devices
        return {key: _placement(grant, devices[key]) for key, grant in self.ledger.granted.items()}


def _placement(grant: Grant, devices: Devices) -> Placement:
    servers = tuple(node for node, count in grant.servers for _ in range(count))
    return Placement(devices, servers, grant.batch_size)
