"""One job of the engine: its record, what its supervisors report, and the steps from what is to what the record wants."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from beamer.engines.local.costs import differ
from beamer.engines.local.monitor import NodeMonitor
from beamer.engines.local.move_times import MoveTimes
from beamer.engines.local.record import RUN_STATE, LastRun, Record
from beamer.engines.local.run_end import RunStatuses
from beamer.engines.local.spec import LocalCluster
from beamer.engines.local.states import MemoryPlace, Phase, RanksState
from beamer.engines.local.supervisor.devices import says_out_of_memory
from beamer.engines.local.supervisor.messages import (
    End,
    FreePort,
    GetPort,
    Kill,
    Launch,
    MemoryStatus,
    Resume,
    RunStatus,
    Status,
    Stop,
    Suspend,
)
from beamer.engines.local.supervisor.processes import descendants
from beamer.engines.local.supervisors import Supervisors, left_s
from beamer.errors import EngineError
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.model import Costs, Report, Speed
from beamer.studies.model import Process

POLL_S, MAX_POLL_S = 0.004, 0.1
REPORT_S = 5.0
SMOOTHING = 0.3
"""The weight of the newest measured cost."""

MAX_TAKEN_PORTS = 10
"""In a row, after which a run that cannot have its port has failed: a program may mean another port than rank 0's."""
MAX_CROWDED = 5
"""Launches without memory beside suspended jobs, after which a job without memory has failed: others take it, too."""
PARK_SHARE = 0.5
"""Of the time-out of collectives, for which a job may be suspended: a rank may have waited in one before that, and waits for
the slowest after it."""


class Busy(EngineError):
    """A job that another call has locked, or has stopped meanwhile."""


class OtherJobs(Protocol):
    """What a job has to know of the engine's others. offloads, restores: what moves of GPU memory take there."""

    offloads: MoveTimes
    restores: MoveTimes

    def have_memory_beside(self, job: "LocalJob") -> bool:
        """Return whether suspended ones have memory on a job's GPUs."""

    def are_on_host(self) -> bool:
        """Return whether the memory of one is on the host, so that a GPU changes hands by moves."""


class LocalJob:
    """A job. record: kept in `directory`. monitor: of nodes. group: the kind of process group on them. others: what is
    to be known of the engine's other jobs.

    Everything but `locked` is for a caller that has locked the job.
    """

    def __init__(
        self,
        record: Record,
        directory: Path,
        cluster: LocalCluster,
        monitor: NodeMonitor,
        group: str,
        others: "OtherJobs",
    ) -> None:
        self.record = record
        self.directory = directory
        self.suspended = False
        self.offloads = False
        """Whether its GPU memory is moved to the host while it is suspended."""
        self.moves_always = False
        """Whether that is so whenever it is suspended."""
        self.refusal = ""
        """Why that cannot be done, for as long as it is suspended or, where `never_offloads`, at all."""
        self.never_offloads = False
        self.gpu_bytes = 0
        """Bytes that it held last on each of its GPUs, at most; 0: not known."""
        self.suspended_s = 0.0
        """When it was suspended last, monotonic time."""
        self.forgotten = False
        self.costs = self._delivered = Costs()
        self.error = ""
        self.supervisors = Supervisors(lambda: self.record, directory, cluster, monitor, group)
        self._cluster = cluster
        self._others = others
        self._lock = threading.RLock()
        self._collected: dict[str, int] = {}
        self._measured: tuple[int, float] = (0, 0.0)
        self._last: Report | None = None
        self._seen = RunStatuses(record.run, {})
        self._refused = ""
        self._memory: dict[str, MemoryStatus] = {}
        self._moved_s: dict[str, float] = {}
        self._processes: dict[str, Process] = {}

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

    def relaunch(self, placement: Placement, taken_ports: int = 0, note: str = "", held: bool = False) -> None:
        """Record that the next run is to be launched. taken_ports: of those before it, in a row. note, held: as of `Record`."""
        before = self.record
        nodes = tuple(dict.fromkeys((*before.nodes, *(node for node, _ in placement.devices))))
        unlaunched = tuple(node for node in nodes if node in before.unlaunched or node not in before.nodes)
        self.set(
            phase=Phase.LAUNCHING, run=before.run + 1, placement=placement, nodes=nodes, unlaunched=unlaunched,
            next_placement=None, port=0, taken_ports=taken_ports, note=note or before.note, held=held, moved_from=None,
        )  # fmt: skip
        self.suspended = False

    def forget(self) -> None:
        """Leave nothing but the checkpoint, what was printed, and what the next run of the job has to know."""
        leader = self._seen.leader
        made = [self.record.progress, *([leader.run.progress] if leader else [])]
        LastRun(self.record.run, max(made, key=lambda progress: progress.step)).save(self.directory)
        (self.directory / "job").unlink(missing_ok=True)
        self.forgotten = True

    # Steps.

    def freeze(self, suspend: bool, until: float, onto: Placement | None = None) -> None:
        """Suspend or resume the run on all of its nodes, and measure what that took.

        onto: the GPUs of its nodes that its memory is brought back onto from the host, None: those of its placement.
        """
        begun = time.monotonic()
        statuses = self.supervisors.statuses(until)
        self.update(statuses)
        if self.record.phase is not Phase.LAUNCHED:
            return
        if onto is not None and onto != self.record.placement:
            self.set(placement=onto, moved_from=self.record.moved_from or self.record.placement)
        elif not suspend and self._is_refused_there(statuses):
            return
        wanted = RanksState.SUSPENDED if suspend else RanksState.RUNNING
        settled = (wanted, RanksState.FINISHED)
        asked = [
            node
            for node, status in statuses.items()
            if status.run.state not in settled or (suspend and self._is_to_be_moved(status.run))
        ]
        if asked:
            left = left_s(until)
            park_after_s = self._park_after_s(statuses)
            requests = {
                node: Suspend(left, park_after_s, self.offloads) if suspend else Resume(left, self._moved_onto(node))
                for node in asked
            }
            try:
                self.supervisors.ask_all(requests, until)
            except EngineError:
                self.update(self.supervisors.statuses(until))
                if self.record.phase is not Phase.LAUNCHED:  # The run has ended meanwhile, or leaves its GPUs by itself.
                    return
                raise
            if not self.offloads and all(one.place is MemoryPlace.GPU for one in self._memory.values()):
                self._cost("suspend_s" if suspend else "resume_s", time.monotonic() - begun)
        self.suspended = suspend
        if suspend:
            self.suspended_s = begun

    def _moved_onto(self, node: str) -> tuple[str, ...]:
        """Return the GPUs of a node that memory is to be brought back onto from the host, (): those that it came from."""
        is_moved = self.record.moved_from is not None and self._memory[node].place is MemoryPlace.HOST
        return self._devices("resume", node) if is_moved else ()

    def _devices(self, call: str, node: str) -> tuple[str, ...]:
        """Return what CUDA_VISIBLE_DEVICES calls the GPUs of the job on a node, in order of ranks. Raises `EngineError`."""
        indices = [index for name, index in self.record.placement.devices if name == node]
        there = self._cluster.node.get(node)
        if there is None or max(indices) >= there.gpus:
            raise EngineError(f"{self.record.job}: {call}: GPU {max(indices)} on {node} is no longer declared")
        return tuple(map(there.device, indices))

    def _is_refused_there(self, statuses: Mapping[str, Status]) -> bool:
        """Have a job start from its checkpoint whose memory the driver has refused to bring back onto other GPUs.

        Where these had no memory left, it is tried again, as it is on the GPUs that it came from.
        """
        before, there = self.record.moved_from, self.record.placement
        moves = [one.run.memory for one in statuses.values() if one.run.memory.place is MemoryPlace.HOST]
        refusals = [one.refusal for one in moves if one.refusal and not says_out_of_memory(one.refusal)]
        if before is None or not refusals:
            return False
        self.refusal = refusals[0]
        self.set(phase=Phase.STOPPING, placement=before, moved_from=None, next_placement=there)
        return True

    def tree(self, node: str) -> list[int]:
        """Return the processes below those that the job has on a node, which is this machine."""
        process = self._processes.get(node)
        return [process.pid, *descendants(process.pid)] if process else []

    @property
    def places(self) -> frozenset[MemoryPlace]:
        """Where the memory of its ranks is, as far as their supervisors have said."""
        return frozenset(self._memory[one].place if one in self._memory else MemoryPlace.GPU for one in self.record.ranks)

    def _is_to_be_moved(self, run: RunStatus) -> bool:
        """Return whether the memory of a suspended run is on its way back, or is to be on the host and is not."""
        place = run.memory.place
        return run.state is RanksState.SUSPENDED and (
            place is MemoryPlace.TO_GPU or (self.offloads and place is MemoryPlace.GPU)
        )

    @property
    def is_ahead(self) -> bool:
        """Whether its ranks were started ahead, or will be, and have not been let go."""
        return self.record.held and self.record.phase in (Phase.LAUNCHING, Phase.LAUNCHED)

    def let_go(self, call: str, until: float) -> None:
        """Have ranks that were started ahead go on."""
        self.advance(call, until, Phase.LAUNCHING)
        statuses = self.supervisors.statuses(until)
        self.update(statuses)
        if self.is_ahead:
            held = [node for node, status in statuses.items() if status.run.held]
            self.supervisors.ask_all(dict.fromkeys(held, Resume(left_s(until))), until)
            self.set(held=False)
            self.suspended = False

    def drop(self, call: str, until: float, placement: Placement | None = None, held: bool = False) -> None:
        """End ranks that were started ahead, so that the job is parked; what they have computed is saved.

        placement: where the job is to run instead, or to be held. Where a node of before does not answer and is none of these,
        it is to be launched there at once: ranks that are held, or soon will be, disturb nobody until they can be ended.
        """
        try:
            self.advance(call, until, Phase.LAUNCHING)
            statuses = self.supervisors.statuses(until)
        except EngineError:
            if placement is None or not self.record.ranks.keys().isdisjoint(node for node, _ in placement.devices):
                raise
            self.relaunch(placement, held=held)
            return
        self.update(statuses)
        if not self.is_ahead:
            return
        leader, gap_s = RunStatuses(self.record.run, statuses).leader, self.record.gap_s
        if leader is not None and leader.run.progress.step > self.record.progress.step:
            self.set(phase=Phase.STOPPING, next_placement=None, held=False)
            self.advance(call, until, Phase.STOPPING, Phase.KILLING)
        else:
            self.set(phase=Phase.KILLING, after_kill=Phase.PARKED, held=False)
            self.advance(call, until, Phase.KILLING)
            self.set(gap_s=gap_s)

    def _hold_rest(self, statuses: Mapping[str, Status], until: float) -> None:
        """Have the ranks of all nodes held where those of one are: the others print nothing, and wait for them."""
        starting = [node for node in self.record.ranks if statuses[node].run.state is RanksState.RUNNING]
        request = Suspend(left_s(until), self._longest_suspension_s)
        self.supervisors.ask_all(dict.fromkeys(starting, request), until)

    def _park_after_s(self, statuses: Mapping[str, Status]) -> float | None:
        """Return for how long the job may be suspended before its ranks give each other up, None: for ever."""
        leader, longest_s = RunStatuses(self.record.run, statuses).leader, self._longest_suspension_s
        return None if leader is None or longest_s is None else max(longest_s - leader.run.paused_s, 0.0)

    @property
    def _longest_suspension_s(self) -> float | None:
        timeout_s = self.record.spec.collective_timeout_s
        return PARK_SHARE * timeout_s if timeout_s and len(self.record.placement.devices) > 1 else None

    def advance(self, call: str, until: float, *phases: Phase) -> None:
        """Take steps as long as the job is in one of these phases. Raises `EngineError` when the time is over."""
        pause = POLL_S
        while self.record.phase in phases:
            self.step(until)
            if self.record.phase in phases:
                if time.monotonic() > until:
                    raise EngineError(f"{self.record.job}: {call}: it is still in phase {self.record.phase}")
                time.sleep(pause)
                pause = min(pause * 1.5, MAX_POLL_S)

    def step(self, until: float) -> None:
        """Take the next step of a job in a transient phase."""
        if self.record.phase.is_transient:
            {Phase.LAUNCHING: self._launch, Phase.STOPPING: self._stop, Phase.KILLING: self._kill}[self.record.phase](until)
            self.error = ""

    def _launch(self, until: float) -> None:
        """Start the ranks on every node; a node that has been asked before answers without doing it again."""
        devices = {node: self._devices("launch", node) for node in self.record.ranks}
        first = self.record.placement.devices[0][0]
        if not self.record.port:
            # A program without SO_REUSEADDR cannot have a port that is kept.
            keep = GetPort(keep=self.record.taken_ports % 2 == 0)
            port = self.supervisors.expect(FreePort, first, self.supervisors.ask(first, keep, until)).port
            self.set(port=port, unlaunched=tuple(node for node in self.record.unlaunched if node not in self.record.ranks))
        record = self.record
        address = "127.0.0.1" if len(record.ranks) == 1 else self._cluster.node[first].address
        launch = Launch(
            record.run, record.spec, (), (), len(record.placement.devices), address, record.port, self._batch_size,
            record.progress, record.gap_s, record.ran_s, record.quiet_s, record.held, self._longest_suspension_s,
        )  # fmt: skip
        launches = {}
        for name, ranks in record.ranks.items():
            launches[name] = replace(launch, ranks=tuple(ranks), devices=devices[name])
        self.supervisors.ask_all(launches, until)
        self.set(phase=Phase.LAUNCHED)

    def _stop(self, until: float) -> None:
        """Have the ranks stop, and when all are gone continue as planned."""
        self.supervisors.ask_run(Stop(left_s(until)), until)
        statuses = self.supervisors.statuses(until)
        found = RunStatuses(self.record.run, statuses)
        if self.record_end(statuses):
            return
        if found.is_live:
            if found.is_orphaned:
                self.supervisors.ask_run(Kill(), until)
            return
        target, leader = self.record.next_placement, found.leader
        if leader is not None:
            gap_s = leader.run.tail_s + (leader.ended_s if target else 0.0)
            self.set(
                progress=leader.run.progress, gap_s=gap_s, note=found.notes("note"), ran_s=found.ran_s, quiet_s=found.quiet_s
            )
        if target is None:
            self.set(phase=Phase.PARKED)
            self.suspended = False
        else:
            self.relaunch(target)
            self._launch(until)

    def _kill(self, until: float) -> None:
        """Kill what is left of a run that cannot continue."""
        self.supervisors.ask_run(Kill(), until)
        found = RunStatuses(self.record.run, self.supervisors.statuses(until))
        if found.is_live:
            return
        leader, taken = found.leader, self.record.taken_ports
        progress = leader.run.progress if leader else self.record.progress
        known = {"gap_s": 0.0, "progress": progress, "ran_s": found.ran_s, "quiet_s": found.quiet_s}
        if self.record.after_kill is Phase.FAILED and found.is_port_taken and taken < MAX_TAKEN_PORTS:
            note = f"another program has port {self.record.port}, at which rank 0 was to listen: launched again with another"
            if self.suspended:  # Other jobs have its GPUs.
                self.set(phase=Phase.PARKED, note=note, **known)
            else:
                self.set(**known)
                self.relaunch(self.record.placement, taken + 1, note, self.record.held)
                self._launch(until)
        elif self.record.after_kill is Phase.FAILED and found.is_out_of_memory and self._may_have_room():
            note = "its GPUs had no memory left beside suspended trials: these make room, and it is launched again"
            self.set(phase=Phase.PARKED, note=note, crowded=self.record.crowded + 1, **known)
        else:
            self.set(phase=self.record.after_kill, **known)
        self.suspended = False

    def _may_have_room(self) -> bool:
        return self.record.crowded < MAX_CROWDED and self._others.have_memory_beside(self)

    def record_end(self, statuses: Mapping[str, Status]) -> bool:
        """Record that a run has ended by itself, on some node at least; return whether it has."""
        found = RunStatuses(self.record.run, statuses)
        ended = found.end(self.record.phase is Phase.STOPPING)
        if ended is None:
            return False
        phase, note = ended
        if phase is Phase.FINISHED:
            leader = found.leader
            self.set(phase=phase, note=note, progress=leader.run.progress if leader else self.record.progress)
        else:
            self.set(phase=Phase.KILLING, after_kill=phase, note=note)
        return True

    def refresh(self, call: str, until: float) -> None:
        """Take in what has become of a launched run since the record was written."""
        if self.record.phase is Phase.LAUNCHED:
            self.update(self.supervisors.statuses(until))
        self.advance(call, until, Phase.KILLING)

    def update(self, statuses: Mapping[str, Status]) -> None:
        """Take in what a launched run does; one that stops by itself, on some node at least, is to be parked."""
        if self.record_end(statuses):
            return
        states = {status.run.state for status in statuses.values()}
        if RanksState.STOPPING in states:
            self.set(phase=Phase.STOPPING, next_placement=None)
        self._memory = {node: status.run.memory for node, status in statuses.items()}
        if self.record.moved_from is not None and self.places == {MemoryPlace.GPU}:
            self.set(moved_from=None)
        is_resumed = any(one.place is MemoryPlace.TO_GPU for one in self._memory.values())
        self.suspended = states == {RanksState.SUSPENDED} and not is_resumed
        found = RunStatuses(self.record.run, statuses).of_run.values()
        if self.record.held and any(not status.run.held for status in found):
            # It was let go, and that was not written down or did not reach all nodes; a supervisor of version 1 holds nothing.
            self.set(held=False)

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
        self._processes |= {node: Process(one.pid, one.start, one.namespace) for node, one in statuses.items()}
        self._refused = self._refused or RunStatuses(self.record.run, statuses).refused
        speeds = [speed for status in statuses.values() if (speed := self._speed(status)) is not None]
        if self.record.phase is Phase.LAUNCHED and set(self.record.ranks) <= set(statuses):
            self._seen = RunStatuses(self.record.run, {node: statuses[node] for node in self.record.ranks})
            self.update(self._seen.by_node)
            self._measure_moves(self._seen.of_run)
        with suppress(EngineError):
            self.advance("report", until, Phase.KILLING)
            if self.record.phase is Phase.LAUNCHED and self._is_suspended_in_part(statuses):
                if self.is_ahead:
                    self._hold_rest(statuses, until)
                else:
                    self.freeze(False, until)  # The suspended part computes nothing, and nobody else would resume it.
            elif self.record.phase is Phase.LAUNCHED and self.suspended and self.offloads and not self.record.held:
                self._see_to_memory(statuses, until)
        self._leave([node for node in statuses if node not in self.record.ranks], until)
        reports.sort(key=lambda report: (report.at_s, report.iteration))
        self._last = reports[-1] if reports else self._last
        now_costs = self._present_costs
        costs = now_costs if differ(now_costs, self._delivered) else None
        self._delivered = costs or self._delivered
        return self.observed(tuple(reports), tuple(speeds[:1]), costs, problem)

    def _see_to_memory(self, statuses: Mapping[str, Status], until: float) -> None:
        """Have a suspended job's memory moved to the host, or park the job where that is refused."""
        left = [one for node, one in statuses.items() if node in self.record.ranks and self._is_to_be_moved(one.run)]
        if not left:
            return
        old = "the job's supervisor is of an older version: it is replaced when the job is launched anew"
        refusals = [one.run.memory.refusal or ("" if one.offloads else old) for one in left]
        self.refusal = next(filter(None, refusals), "")
        self.never_offloads = any(one.run.memory.permanent for one in left)
        if self.refusal:
            self.set(phase=Phase.STOPPING, next_placement=None)
        else:  # An engine before this one has not come to it.
            self.freeze(True, until)

    def _measure_moves(self, statuses: Mapping[str, Status]) -> None:
        """Remember what moving the job's memory took: on several nodes the longest counts."""
        for name, times in (("offload_s", self._others.offloads), ("restore_s", self._others.restores)):
            took_s = max((getattr(one.run.memory, name) for one in statuses.values()), default=0.0)
            if took_s and self._moved_s.get(name) != took_s:
                self._moved_s[name] = took_s
                times.add(took_s, self._moved_bytes)

    def _is_suspended_in_part(self, statuses: Mapping[str, Status]) -> bool:
        states = {status.run.state for node, status in statuses.items() if node in self.record.ranks}
        return states == {RanksState.SUSPENDED, RanksState.RUNNING}

    def _collect(self, node: str, now: float, until: float, reports: list[Report]) -> Status:
        """Return a node's status, and add all of its reports that are new to `reports`."""
        # The node's clock is taken at the first answer only, as later ones must not change the order.
        clock_s: float | None = None
        while True:
            status = self.supervisors.status(node, until, self._collected.get(node, 0))
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
        is_frozen = phase is Phase.LAUNCHED and self.suspended
        state = RunState.SUSPENDED if is_frozen else RUN_STATE[phase]
        if is_frozen and not self.is_ahead and self.is_leaving:
            state = RunState.STOPPING
        if self.is_ahead:
            state = RunState.PREPARED if is_frozen else RunState.PREPARING
        placement = self.record.placement if state.has_processes else None
        if state.is_finished and not reports and self._last:
            reports = (self._last,)
        exit_ = "; ".join(filter(None, (self.record.note, problem)))
        is_seen = phase is Phase.LAUNCHED and self._seen.number == self.record.run
        seen = self._seen if is_seen else RunStatuses(self.record.run, {})
        return Observed(
            state, placement, reports, speeds, costs, exit_, self.record.spec.iterations, self.record.run, seen.ran_s,
            seen.quiet_s, self._refused,
            {node: self._processes[node] for node in self.record.ranks if is_seen and node in self._processes} or None,
        )  # fmt: skip

    @property
    def is_leaving(self) -> bool:
        """Whether a suspended job's memory is still to leave its GPUs, or on its way."""
        return self.places != {MemoryPlace.HOST} and (self.offloads or MemoryPlace.TO_HOST in self.places)

    def _leave(self, nodes: Iterable[str], until: float) -> None:
        """End the supervisors on nodes that the job has left: all of their reports have been collected."""
        for node in nodes:
            with suppress(EngineError):  # The next report tries again.
                self.supervisors.ask(node, End(forget=True, run=self.record.run), until)
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

    @property
    def _present_costs(self) -> Costs:
        """What a change of its GPUs takes now: a parked job has no memory left to be resumed from.

        While memory is moved, the job's own leaves its GPUs, too, or other memory leaves them for it. What is still there need
        not be brought back.
        """
        if self.record.phase is Phase.PARKED and self.costs.restart_s:
            return replace(self.costs, resume_s=self.costs.restart_s)
        if self.moves_always or MemoryPlace.HOST in self.places or self._others.are_on_host():
            offload_s, restore_s = (
                times.expected_s(self._moved_bytes) for times in (self._others.offloads, self._others.restores)
            )
            is_there = self.suspended and not self.is_leaving and self.places == {MemoryPlace.GPU}
            resume_s = self.costs.resume_s if is_there else restore_s or self.costs.resume_s
            return replace(self.costs, suspend_s=offload_s or self.costs.suspend_s, resume_s=resume_s)
        return self.costs

    @property
    def _moved_bytes(self) -> int:
        """What is moved on the node with the most of its ranks, one after the other, in bytes; 0: not known."""
        return self.gpu_bytes * max(map(len, self.record.ranks.values()), default=0)

    def _cost(self, name: str, seconds: float) -> None:
        before = getattr(self.costs, name)
        self.costs = replace(self.costs, **{name: (1 - SMOOTHING) * before + SMOOTHING * seconds if before else seconds})
