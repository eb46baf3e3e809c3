"""One job of the engine: its record, what its supervisors report, and the steps from what is to what the record wants."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.monitor import NodeMonitor
from beamer.engines.local.record import RUN_STATE, LastRun, Record
from beamer.engines.local.spec import LocalCluster
from beamer.engines.local.states import PHASE_AFTER, Phase, RanksState
from beamer.engines.local.supervisor.control import Unreachable
from beamer.engines.local.supervisor.messages import (
    End,
    FreePort,
    GetPort,
    GetStatus,
    Kill,
    Launch,
    Refused,
    Resume,
    Status,
    Stop,
    SupervisorAnswer,
    SupervisorRequest,
    Suspend,
    kind_of,
)
from beamer.engines.local.supervisor.progress import Progress
from beamer.errors import EngineError
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.model import Costs, Report, Speed

POLL_S, MOST_POLL_S = 0.004, 0.1
REPORT_S = 5.0
SMOOTHING = 0.3
"""The weight of the newest measured cost."""

NEVER = 1 << 60
"""Reports that are known already where none are wanted."""
LEAST_TIMEOUT_S = 0.05
"""Of a request, however little of its caller's time is left."""


AnswerT = TypeVar("AnswerT", bound=SupervisorAnswer)


class Busy(EngineError):
    """A job that another call has locked, or has stopped meanwhile."""


class LocalJob:
    """A job. record: kept in `directory`. monitor: of nodes. group: the kind of process group on them.

    Everything but `locked` is for a caller that has locked the job.
    """

    def __init__(self, record: Record, directory: Path, cluster: LocalCluster, monitor: NodeMonitor, group: str) -> None:
        self.record = record
        self.directory = directory
        self.suspended = False
        self.forgotten = False
        self.costs = self._delivered = Costs()
        self.error = ""
        self._cluster = cluster
        self._monitor = monitor
        self._group = group
        self._lock = threading.RLock()
        self._collected: dict[str, int] = {}
        self._measured: tuple[int, float] = (0, 0.0)
        self._last: Report | None = None

    @contextmanager
    def locked(self, call: str, timeout_s: float) -> Iterator[float]:
        """Lock the job for a call; yield when its time is over, monotonic time."""
        until = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=max(timeout_s, 0.0)):
            raise Busy(f"{self.record.job}: {call}: another call has not ended for {timeout_s:.3g} s ({self.record.phase})")
        try:
            if self.forgotten:
                raise Busy(f"{self.record.job}: {call}: it has just been stopped")
            yield until
        finally:
            self._lock.release()

    def set(self, **values: Any) -> None:
        """Change the record, before anything is done about it. Raises `EngineError` where it cannot be written."""
        record = replace(self.record, **values)
        try:
            record.save(self.directory / "job")
        except OSError as error:
            raise EngineError(f"{record.job}: {self.directory}/job cannot be written: {error}") from error
        self.record = record

    def relaunch(self, placement: Placement) -> None:
        """Record that the next run is to be launched."""
        before = self.record
        nodes = tuple(dict.fromkeys((*before.nodes, *(node for node, _ in placement.devices))))
        unlaunched = tuple(node for node in nodes if node in before.unlaunched or node not in before.nodes)
        self.set(
            phase=Phase.LAUNCHING, run=before.run + 1, placement=placement, nodes=nodes, unlaunched=unlaunched,
            next_placement=None, port=0,
        )  # fmt: skip
        self.suspended = False

    def forget(self) -> None:
        """Leave nothing but the checkpoint, what was printed, and what the next run of the job has to know."""
        progress = self.record.progress if self.record.phase is Phase.FINISHED else Progress()
        LastRun(self.record.run, progress).save(self.directory)
        (self.directory / "job").unlink(missing_ok=True)
        self.forgotten = True

    # Supervisors.

    def ask(self, node: str, request: SupervisorRequest, until: float) -> SupervisorAnswer:
        """Return a supervisor's answer. Raises `EngineError` if there is none or it refuses."""
        left = max(until - time.monotonic(), LEAST_TIMEOUT_S)
        where = f"{self.record.job}: {kind_of(request)} on {node}"
        if node not in self._cluster.node:
            raise EngineError(f"{where}: the node is no longer declared, the job may still run there")
        there = self._cluster.node[node]
        if not there.launcher.direct and (problem := self._monitor.problem(node)):
            raise EngineError(f"{where}: {problem}")
        try:
            answer = SupervisorClient(there, self.directory, self._group).ask(request, left)
        except Unreachable as error:
            raise EngineError(f"{where}: {error}") from error
        if isinstance(answer, Refused):
            raise EngineError(f"{where}: refused: {answer.reason}")
        return answer

    def ask_all(self, requests: Mapping[str, SupervisorRequest], until: float) -> dict[str, SupervisorAnswer]:
        """Return the answers of supervisors, by node; all are asked, at the same time, whatever one of them answers."""
        if len(requests) == 1:
            return {node: self.ask(node, request, until) for node, request in requests.items()}
        with ThreadPoolExecutor(max(len(requests), 1)) as pool:
            waiting = {node: pool.submit(self.ask, node, request, until) for node, request in requests.items()}
        return {node: future.result() for node, future in waiting.items()}

    def ask_run(self, request: SupervisorRequest, until: float) -> None:
        """Ask the same of all supervisors of the run."""
        self.ask_all(dict.fromkeys(self.record.ranks, request), until)

    def end_supervisors(self, until: float) -> None:
        """End the job's supervisors and what still runs under them; each forgets the job.

        Raises `EngineError` where one does not answer, save on nodes that no launch has been sent to.
        """
        end = End(forget=True, run=self.record.run)
        self.ask_all({node: end for node in self.record.nodes if node not in self.record.unlaunched}, until)
        for node in self.record.nodes:
            if node in self.record.unlaunched:
                with suppress(EngineError):
                    self.ask(node, end, until)

    def status(self, node: str, until: float, after: int = NEVER) -> Status:
        """Return a supervisor's status with the reports that come after so many."""
        return self._expect(Status, node, self.ask(node, GetStatus(after), until))

    def statuses(self, until: float) -> dict[str, Status]:
        """Return the statuses of the run's supervisors without reports."""
        answers = self.ask_all(dict.fromkeys(self.record.ranks, GetStatus(NEVER)), until)
        return {node: self._expect(Status, node, answer) for node, answer in answers.items()}

    def _expect(self, kind: type[AnswerT], node: str, answer: SupervisorAnswer) -> AnswerT:
        if not isinstance(answer, kind):
            raise EngineError(f"{self.record.job}: {node} answered {kind_of(answer)}, expected {kind.__name__}")
        return answer

    def freeze(self, suspend: bool, until: float) -> None:
        """Suspend or resume the run on all of its nodes, and measure what that took."""
        begun = time.monotonic()
        statuses = self.statuses(until)
        if self.record_end(statuses):
            return
        wanted = RanksState.SUSPENDED if suspend else RanksState.RUNNING
        asked = [node for node, status in statuses.items() if status.run.state not in (wanted, RanksState.FINISHED)]
        if asked:
            left = max(until - time.monotonic(), LEAST_TIMEOUT_S)
            try:
                self.ask_all(dict.fromkeys(asked, Suspend(left) if suspend else Resume(left)), until)
            except EngineError:
                if self.record_end(self.statuses(until)):  # it has ended meanwhile
                    return
                raise
            self._cost("suspend_s" if suspend else "resume_s", time.monotonic() - begun)
        self.suspended = suspend

    # Steps.

    def advance(self, call: str, until: float, *phases: Phase) -> None:
        """Take steps as long as the job is in one of these phases. Raises `EngineError` when the time is over."""
        pause = POLL_S
        while self.record.phase in phases:
            self.step(until)
            if self.record.phase in phases:
                if time.monotonic() > until:
                    raise EngineError(f"{self.record.job}: {call}: it is still in phase {self.record.phase}")
                time.sleep(pause)
                pause = min(pause * 1.5, MOST_POLL_S)

    def step(self, until: float) -> None:
        """Take the next step of a job in a transient phase."""
        if self.record.phase.is_transient:
            {Phase.LAUNCHING: self._launch, Phase.STOPPING: self._stop, Phase.KILLING: self._kill}[self.record.phase](until)
            self.error = ""

    def _launch(self, until: float) -> None:
        """Start the ranks on every node; a node that has been asked before answers without doing it again."""
        for node, index in self.record.placement.devices:
            if node not in self._cluster.node or index >= self._cluster.node[node].gpus:
                raise EngineError(f"{self.record.job}: launch: GPU {index} on {node} is no longer declared")
        first = self.record.placement.devices[0][0]
        if not self.record.port:
            port = self._expect(FreePort, first, self.ask(first, GetPort(), until)).port
            self.set(port=port, unlaunched=tuple(node for node in self.record.unlaunched if node not in self.record.ranks))
        record = self.record
        address = "127.0.0.1" if len(record.ranks) == 1 else self._cluster.node[first].address
        launch = Launch(
            record.run, record.spec, (), (), len(record.placement.devices), address, record.port, self._batch_size,
            record.progress, record.gap_s,
        )  # fmt: skip
        launches = {}
        for name, ranks in record.ranks.items():
            devices = tuple(self._cluster.node[name].device(index) for node, index in record.placement.devices if node == name)
            launches[name] = replace(launch, ranks=tuple(ranks), devices=devices)
        self.ask_all(launches, until)
        self.set(phase=Phase.LAUNCHED)

    def _stop(self, until: float) -> None:
        """Have the ranks stop, and when all are gone continue as planned."""
        self.ask_run(Stop(max(until - time.monotonic(), LEAST_TIMEOUT_S)), until)
        statuses = self.statuses(until)
        if self.record_end(statuses) or any(status.run.state.is_live for status in statuses.values()):
            return
        target, note = self.record.next_placement, _notes(statuses, "note")
        leader = self._leader(statuses)
        if leader is not None:
            gap_s = leader.run.tail_s + (leader.ended_s if target else 0.0)
            self.set(progress=leader.run.progress, gap_s=gap_s, note=note)
        if target is None:
            self.set(phase=Phase.PARKED)
            self.suspended = False
        else:
            self.relaunch(target)
            self._launch(until)

    def _kill(self, until: float) -> None:
        """Kill what is left of a run that cannot continue."""
        self.ask_run(Kill(), until)
        statuses = self.statuses(until)
        if not any(status.run.state.is_live for status in statuses.values()):
            leader = self._leader(statuses)
            self.set(
                phase=self.record.after_kill,
                gap_s=0.0,
                progress=leader.run.progress if leader else self.record.progress,
            )
            self.suspended = False

    def record_end(self, statuses: Mapping[str, Status]) -> bool:
        """Record that a run has ended by itself, on some node at least; return whether it has."""
        of_run = {node: status for node, status in statuses.items() if status.run.number == self.record.run}
        states = {status.run.state for status in of_run.values()}
        if RanksState.LOST in states:
            states -= {RanksState.FAILED}  # ranks that lose others to a lost supervisor fail, too
        after = {PHASE_AFTER[state] for state in states}
        if Phase.FAILED in after:
            self.set(phase=Phase.KILLING, after_kill=Phase.FAILED, note=_notes(of_run, "exit"))
        elif self.record.phase is Phase.STOPPING and after != {Phase.FINISHED}:
            return False  # however it came to its end, it continues as planned
        elif Phase.PARKED in after:
            self.set(phase=Phase.KILLING, after_kill=Phase.PARKED, note=_notes(of_run, "note"))
        elif len(of_run) == len(statuses) and after == {Phase.FINISHED}:
            leader = self._leader(statuses)
            self.set(phase=Phase.FINISHED, note="", progress=leader.run.progress if leader else self.record.progress)
        else:
            return False
        return True

    def refresh(self, call: str, until: float) -> None:
        """Take in what has become of a launched run since the record was written."""
        if self.record.phase is Phase.LAUNCHED:
            self.update(self.statuses(until))
        self.advance(call, until, Phase.KILLING)

    def update(self, statuses: Mapping[str, Status]) -> None:
        """Take in what a launched run does."""
        if not self.record_end(statuses):
            self.suspended = {status.run.state for status in statuses.values()} == {RanksState.SUSPENDED}

    def _leader(self, statuses: Mapping[str, Status]) -> Status | None:
        """Return the status of the node that knows most about the progress of the run, None if none has launched it."""
        of_run = [status for status in statuses.values() if status.run.number == self.record.run]
        return max(of_run, key=lambda status: status.run.progress.step, default=None)

    # Reports.

    def observe(self, now: float) -> Observed:
        """Return what is new. now: on the scheduler's clock."""
        until = time.monotonic() + REPORT_S
        statuses: dict[str, Status] = {}
        problem = self.error
        reports: list[Report] = []
        for node in self.record.nodes:
            try:
                statuses[node] = self._collect(node, now, until, reports)
            except EngineError as error:
                problem = problem or str(error)
        speeds = [speed for status in statuses.values() if (speed := self._speed(status)) is not None]
        if self.record.phase is Phase.LAUNCHED and set(self.record.ranks) <= set(statuses):
            self.update({node: statuses[node] for node in self.record.ranks})
        with suppress(EngineError):
            self.advance("report", until, Phase.KILLING)
            if self.record.phase is Phase.LAUNCHED and self._is_suspended_in_part(statuses):
                self.freeze(False, until)  # it computes nothing, and nobody else would resume it
        self._leave([node for node in statuses if node not in self.record.ranks], until)
        reports.sort(key=lambda report: (report.at_s, report.iteration))
        self._last = reports[-1] if reports else self._last
        costs = None if self.costs == self._delivered else self.costs
        self._delivered = self.costs
        return self.observed(tuple(reports), tuple(speeds[:1]), costs, problem)

    def _is_suspended_in_part(self, statuses: Mapping[str, Status]) -> bool:
        states = {status.run.state for node, status in statuses.items() if node in self.record.ranks}
        return states == {RanksState.SUSPENDED, RanksState.RUNNING}

    def _collect(self, node: str, now: float, until: float, reports: list[Report]) -> Status:
        """Return a node's status, and add all of its reports that are new to `reports`."""
        clock_s: float | None = None  # of the node, at the first answer: later ones must not change the order
        while True:
            status = self.status(node, until, self._collected.get(node, 0))
            clock_s = status.now_s if clock_s is None else clock_s
            reports += [Report(**{**vars(one), "at_s": now - max(clock_s - one.at_s, 0.0)}) for one in status.reports]
            self._collected[node] = status.count
            if not status.more:
                return status

    def observed(
        self, reports: tuple[Report, ...] = (), speeds: tuple[Speed, ...] = (), costs: Costs | None = None, problem: str = ""
    ) -> Observed:
        """Return the job's state as it is known, with what is new."""
        phase = self.record.phase
        state = RunState.SUSPENDED if phase is Phase.LAUNCHED and self.suspended else RUN_STATE[phase]
        placement = self.record.placement if state.has_processes else None
        if state.is_finished and not reports and self._last:
            reports = (self._last,)
        exit_ = "; ".join(filter(None, (self.record.note, problem)))
        return Observed(state, placement, reports, speeds, costs, exit_, self.record.spec.iterations)

    def _leave(self, nodes: Iterable[str], until: float) -> None:
        """End the supervisors on nodes that the job has left: all of their reports have been collected."""
        for node in nodes:
            with suppress(EngineError):  # the next report tries again
                self.ask(node, End(forget=True, run=self.record.run), until)
                self._collected.pop(node, None)
                self.set(nodes=tuple(one for one in self.record.nodes if one != node))

    @property
    def _batch_size(self) -> int:
        return self.record.placement.batch_size or self.record.spec.batch_size

    def _speed(self, status: Status) -> Speed | None:
        """Return the speed of a node's run if it is newly measured, and remember what its start took."""
        run, step_s, restart_s = status.run.number, status.run.iteration_s, status.run.restart_s
        if run != self.record.run or not step_s or self._measured == (run, step_s):
            return None
        if self._measured[0] != run and run > 1 and restart_s is not None:
            self._cost("restart_s", restart_s)
        self._measured = (run, step_s)
        return Speed(len(self.record.placement.devices), len(self.record.ranks), 0, self._batch_size, step_s)

    def _cost(self, name: str, seconds: float) -> None:
        before = getattr(self.costs, name)
        self.costs = replace(self.costs, **{name: (1 - SMOOTHING) * before + SMOOTHING * seconds if before else seconds})


def _notes(statuses: Mapping[str, Status], name: str) -> str:
    return "; ".join(f"{node}: {getattr(status.run, name)}" for node, status in statuses.items() if getattr(status.run, name))
