"""The supervisor of a job on a node: it carries out requests and follows what the ranks do.

One thread, one loop: no two steps of a job's life can overtake each other.
"""

import hashlib
import os
import selectors
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import ORPHANED_S, MemoryPlace, RanksState
from beamer.engines.local.supervisor import groups, messages, processes, ranks, store
from beamer.engines.local.supervisor.devices import uses_gpu
from beamer.engines.local.supervisor.files import JobFiles, SavedState, load_state
from beamer.engines.local.supervisor.lines import PrintedLine
from beamer.engines.local.supervisor.memory import MOVE_S, MemoryMoves, MoveEnd
from beamer.engines.local.supervisor.messages import RunStatus, SupervisorAnswer, SupervisorRequest
from beamer.engines.local.supervisor.ports import KeptPort, free_port
from beamer.engines.local.supervisor.run_watch import RunWatch
from beamer.engines.local.supervisor.warm.run import WarmRun, WarmStartError
from beamer.errors import InputError
from beamer.log_limit import DIFFERENCES_AGAIN_S, MAX_DIFFERENCES, VariedLogLimit
from beamer.protocol_version import version_of_line

TURN_S = 0.1
"""How long lines are read before requests and signals are looked at again."""
CHECK_S = 5.0
"""How often a supervisor checks whether its directory is still there."""
PAGE = 5000
"""Reports in an answer, which is to be there soon however many there are."""
PARK_AGAIN_S = 1.0
"""Between two attempts to park ranks that do not thaw."""
LATER_S = 0.5
"""How much later ranks are killed whose memory is being moved when they should have stopped."""
KILL_S = 5.0
"""How long killed processes are waited for."""
LOOK_S = 0.05
"""Between two looks at what files ranks have opened that are to be held before they use a GPU."""
HOLD_S = 60.0
"""How long they may print nothing and open no GPU until they are held: a program that imports for longer is rare."""
FREEZE_S = 1.0
"""How long ranks that are to be held have to freeze, and how much later it is tried again where they do not."""


def mark(directory: Path) -> str:
    """Return what the environment of every rank of a directory holds."""
    return f"BEAMER_RANKS_OF={directory}"


class _Refusal(Exception):  # This exception is an answer, not a failure.
    """A request cannot be carried out; the message is the reason."""


class Supervisor:
    """Supervises the ranks of one directory. locks: descriptors that ranks inherit."""

    def __init__(self, directory: Path, kind: str, locks: list[int]) -> None:
        self.directory = directory
        saved = load_state(directory)
        self.run = saved.run
        self._locks = locks
        self._mark = mark(directory)
        self._files = JobFiles(directory)
        self._spec = LaunchSpec(("true",))
        self._watch: RunWatch | None = None
        self._port = KeptPort()
        self._park_by: float | None = None
        self._hold_by = self._look_s = 0.0
        self._park_after_s: float | None = None
        self._ranks: list[ranks.Rank] = []
        self._warm: WarmRun | None = None
        self._running: list[ranks.Rank] = []
        self._stop_by: float | None = None
        self._move_by = 0.0
        self._read_until_s = 0.0
        self._ended_s = time.monotonic()
        self._checkpoint_before: tuple[int, int] | None = None
        self._ends = self._ends_after_run = False
        # Unused fields of newer engines' requests are logged.
        self._unused = VariedLogLimit(MAX_DIFFERENCES, DIFFERENCES_AGAIN_S)
        self._selector = selectors.DefaultSelector()
        self._clear(saved.group)
        self._group = self._new_group(kind)
        self._identity = processes.identity()
        self._server = store.listen(directory)
        self._moves = MemoryMoves(self._group, self._selector, self._take_move)
        # What ranks are to do when their GPU memory is where it was to be.
        self._next = RanksState.SUSPENDED

    def _clear(self, group: tuple[str, str] | None) -> None:
        """Kill what a supervisor before this one has left."""
        if group is not None:
            left = groups.reopen(*group, self._mark)
            left.kill(KILL_S)
            left.close()
        if self.run.state.is_live:
            note = f"its supervisor died while it was {self.run.state}; it continues from its last checkpoint"
            self.run = replace(self.run, state=RanksState.LOST, note=note)

    def _new_group(self, kind: str) -> groups.Group:
        name = "beamer-" + hashlib.sha256(str(self.directory).encode()).hexdigest()[:12]
        for one, path in groups.candidates(name, kind):
            group = groups.reopen(one, path, self._mark)
            # The group is saved before it exists, so that it is removed whatever happens.
            self._files.save(SavedState(self.run, (one, path)))
            with suppress(OSError):
                group.open()
                return group
        raise SystemExit(f"no process group of kind {kind!r} can be made here")

    def serve(self, signals: socket.socket) -> None:
        """Serve until a request ends it, or a byte on `signals`: then the ranks stop at an iteration boundary first.

        It ends, and its ranks with it, when its directory has been removed, as nobody can reach it any more.
        """
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._selector.register(signals, selectors.EVENT_READ, lambda: self._terminate(signals))
        while not self._ends:
            ready = self._selector.select(self._timeout_s())
            if not self._has_directory():
                self._abandon()
                return
            self._read_until_s = time.monotonic() + TURN_S
            for key, _ in ready:
                if callable(key.data):
                    key.data()
                elif key.data in self._ranks:  # An earlier event may have ended the run.
                    self._take_event(key.data, key.fd)
            self._read_waiting()
            if self._stop_by is not None and time.monotonic() >= self._stop_by:
                self._kill_late()
            if self._park_by is not None and time.monotonic() >= self._park_by:
                self._park()
            if self._is_starting_ahead and self._is_to_be_held(time.monotonic()):
                self._hold()
            if self._moves.due_s is not None and time.monotonic() >= self._moves.due_s:
                self._moves.check(time.monotonic())
            if self._files.due_s is not None and time.monotonic() >= self._files.due_s:
                self._save()
        self._close()
        self._server.close()
        (self.directory / "control").unlink(missing_ok=True)

    def _timeout_s(self) -> float:
        if any(rank.waiting for rank in self._ranks):
            return 0.0
        now = time.monotonic()
        times = (
            self._stop_by,
            self._park_by,
            self._files.due_s,
            self._moves.due_s,
            now + (LOOK_S if self._is_starting_ahead else CHECK_S),
        )
        return max(min(at for at in times if at is not None) - now, 0.0)

    def _has_directory(self) -> bool:
        """Return whether the directory is the one that was locked, not gone and perhaps made anew."""
        try:
            return os.path.samestat(os.fstat(self._locks[0]), os.stat(self.directory / "ranks"))
        except FileNotFoundError:
            return False

    def _abandon(self) -> None:
        # Otherwise the group and the mark belong to the process that has made the directory anew.
        if not self.directory.exists():
            self._group.kill(KILL_S)
            self._group.close()

    def _terminate(self, signals: socket.socket) -> None:
        signals.recv(1)
        self._ends_after_run = True
        if self.run.state.is_live:
            self._stop(KILL_S)
        else:
            self._ends = True

    # Requests.

    def _accept(self) -> None:
        with suppress(OSError):  # The client may be gone.
            client, _ = self._server.accept()
            with client:
                client.settimeout(1.0)
                with client.makefile("rwb") as stream:
                    line = stream.readline()
                    if line:
                        answer = messages.encode(self._answer_line(line), version_of_line(line))
                        stream.write(answer.encode() + b"\n")

    def _answer_line(self, line: bytes) -> SupervisorAnswer:
        try:
            received = messages.read_request(line)
            if received.unused and self._unused.take("newer", received.unused):
                print(f"the engine speaks version {received.version}: {', '.join(received.unused)} is not used", flush=True)
            return self._answer(received.message)
        except (_Refusal, InputError) as error:
            return messages.Refused(str(error))
        except OSError as error:
            return messages.Refused(f"{type(error).__name__}: {error}")

    def _answer(self, request: SupervisorRequest) -> SupervisorAnswer:
        match request:
            case messages.GetStatus(after):
                return self._status(after)
            case messages.GetPort(keep):
                return messages.FreePort(self._port.take() if keep else free_port())
            case messages.Launch():
                self._launch(request)
            case messages.Suspend(timeout_s, park_after_s, offloads):
                self._suspend(timeout_s, park_after_s, offloads)
            case messages.Resume(timeout_s, devices):
                self._resume(timeout_s, devices)
            case messages.Stop(timeout_s):
                self._stop(timeout_s)
            case messages.Checkpoint():
                self._checkpoint()
            case messages.Kill():
                self._kill_live()
            case messages.End(forget, run):
                self._end(forget, run)
            case _:
                assert_never(request)
        return messages.Accepted()

    def _status(self, after: int) -> messages.Status:
        now = time.monotonic()
        reports = self._files.reports
        page = tuple(reports[after : after + PAGE])
        count = min(after, len(reports)) + len(page)
        more = count < len(reports)
        run = self._watch.status(self.run, now) if self._watch else self.run
        root = (os.getpid(), *self._identity) if self._warm is None or self._warm.parent is None else self._warm.parent
        run = replace(run, memory=self._moves.status)
        return messages.Status(run, now, now - self._ended_s, page, count, more, self._group.kind, *root, offloads=True)

    def _launch(self, request: messages.Launch) -> None:
        number, state = self.run.number, self.run.state
        if request.run < number or (request.run == number and state is RanksState.FORGOTTEN):
            self._ends = not state.is_live  # A late request may have started this supervisor.
            raise _Refusal(f"run {request.run} is over, this is run {number}")
        if request.run == number:
            return
        if state.is_live:
            raise _Refusal(f"run {number} is still {state}")
        if self._group.members() and not self._group.kill(KILL_S):
            raise _Refusal(f"processes of run {number} do not die: {self._group.members()}")
        # A run that died while it was frozen leaves its group frozen, and new ranks would freeze in it.
        if not self._group.thaw(KILL_S):
            raise _Refusal(f"the process group of run {number} does not thaw")
        run = RunStatus(request.run, RanksState.RUNNING, progress=request.progress, held=request.holds)
        self._files.write(self._with_group(run))  # A supervisor that dies from here on leaves a run to be cleared.
        self.run = run
        self._spec = spec = request.spec
        self._moves.launch(request.devices, dict(spec.env).get("CUDA_DEVICE_ORDER"))
        self._watch = RunWatch(request, time.monotonic())
        if self._port.number != self._watch.port:
            self._port.release()
        try:
            if spec.preload:
                self._warm = ranks.fork(request, self.directory, self._group, self._locks, self._checkpoint_path)
                self._selector.register(self._warm.connection, selectors.EVENT_READ, self._take_warm)
            else:
                self._follow(ranks.start(request, self.directory, self._group, self._locks, self._checkpoint_path))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._watch = None
            self._port.release()
            self._set(RanksState.FAILED, exit=f"{spec.command[0]} cannot be started: {error}")
            return
        self._hold_by, self._park_after_s = time.monotonic() + HOLD_S, request.park_after_s

    def _follow(self, started: list[ranks.Rank]) -> None:
        """Follow what ranks do."""
        self._ranks, self._running = started, list(started)
        for rank in started:
            for source in (rank.pidfd, *rank.pipes):
                self._selector.register(source, selectors.EVENT_READ, rank)

    def _take_warm(self) -> None:
        """Take in that ranks have been forked, have ended, or that there is nobody any more who forks them."""
        if self._warm is None:
            return
        try:
            if self._warm.take() and self._warm.parent:
                self._follow([ranks.Rank(number, process) for number, process in self._warm.processes.items()])
                self._group.adopt(self._warm.parent[0], [rank.process.pid for rank in self._ranks])
                self._release()
            elif self._warm.is_stale:
                self._selector.unregister(self._warm.connection)
                self._warm.connect()
                self._selector.register(self._warm.connection, selectors.EVENT_READ, self._take_warm)
        except (WarmStartError, OSError) as error:
            self._kill()
            if self.run.state is RanksState.STOPPING:
                self._end_run(RanksState.STOPPED, note=f"{error}: it continues from its last checkpoint")
            else:
                self._end_run(RanksState.FAILED, exit=str(error))

    def _release(self) -> None:
        """Let ranks go that have been forked, unless they are suspended before they have begun."""
        if self._warm and self._ranks and self.run.state is RanksState.RUNNING:
            self._warm.release()

    def _suspend(self, timeout_s: float, park_after_s: float | None, offloads: bool) -> None:
        if self.run.state is RanksState.SUSPENDED:
            self._next = RanksState.SUSPENDED
            if offloads and not self.run.held:
                self._moves.offload()
            return
        if self.run.state is not RanksState.RUNNING:
            raise _Refusal(f"it is {self.run.state}")
        if self.run.held:
            self._park_after_s, self._hold_by = park_after_s, 0.0
            self._hold()
            return
        if not offloads and not self._group.freeze(timeout_s):
            self._group.thaw(timeout_s)
            raise _Refusal(f"its processes are not frozen within {timeout_s:g} s")
        now = time.monotonic()
        if self._watch:
            self._watch.suspend(now)
        self._park_by = None if park_after_s is None else now + park_after_s
        self._next = RanksState.SUSPENDED
        self._set(RanksState.SUSPENDED)
        if offloads:
            self._moves.offload()

    def _resume(self, timeout_s: float, devices: tuple[str, ...] = ()) -> None:
        if self.run.state is RanksState.RUNNING:
            self._check_devices(devices)
            if self.run.held:
                self._let_go()
            return
        if self.run.state is not RanksState.SUSPENDED:
            raise _Refusal(f"it is {self.run.state}")
        self._check_devices(devices)
        if not self._moves.is_on_gpu:
            self._next = RanksState.RUNNING
            self._moves.bring_back(devices)
            return
        if not self._group.thaw(timeout_s):
            raise _Refusal(f"its processes are still frozen after {timeout_s:g} s")
        self._continue()

    def _check_devices(self, devices: tuple[str, ...]) -> None:
        """Refuse to resume ranks onto GPUs that their memory cannot be brought onto now. devices: as of `Resume`."""
        has = self._moves.devices
        if not devices or devices == has:
            return
        pairs = set(zip(has, devices, strict=False))
        if len(devices) != len(has) or not len(pairs) == len(set(has)) == len(set(devices)):
            raise _Refusal(f"it has GPUs {', '.join(has)}, which cannot become {', '.join(devices)}")
        if "CUDA_VISIBLE_DEVICES" in dict(self._spec.env):
            raise _Refusal(
                "its env sets CUDA_VISIBLE_DEVICES, so that its memory is not known to be on the GPUs that it was given"
            )
        if self._moves.status.place is not MemoryPlace.HOST:
            raise _Refusal(
                f"its memory is on GPUs {', '.join(has)}, or on its way: it is moved onto others from the host alone"
            )

    def _continue(self) -> None:
        """Take in that suspended ranks go on."""
        if self._watch:
            self._watch.resume(time.monotonic())
        self._park_by = None
        self._set(RanksState.RUNNING, held=False)
        self._release()

    def _take_move(self, end: MoveEnd) -> None:
        """Take in where the GPU memory of the ranks is now: in its place, where a move was refused, or lost."""
        if end is MoveEnd.LOST:
            state = RanksState.STOPPED
            note = f"{self._moves.status.refusal}: it continues from its last checkpoint"
            self._kill()
            self._end_run(state, note=note)
        elif end is MoveEnd.HOST:
            self._set(self.run.state)
        elif self._next is RanksState.RUNNING:
            self._continue()
        elif self._next is RanksState.STOPPING:
            self._continue()
            self._signal_stop()
        elif not self._freeze_again():  # The move was refused, or is not asked for any more.
            self._continue()
        else:
            self._set(RanksState.SUSPENDED)

    def _freeze_again(self) -> bool:
        """Freeze ranks whose memory has come back, and return whether they are frozen; else they go on."""
        with suppress(OSError):
            if self._group.freeze(FREEZE_S):
                return True
            self._group.thaw(FREEZE_S)
        return False

    def _let_go(self) -> None:
        """Not hold ranks any more that are on their way there; until now they had no GPU."""
        if self._watch:
            self._watch.hold(time.monotonic())
            self._watch.resume(time.monotonic())
        self._set(RanksState.RUNNING, held=False)

    @property
    def _is_starting_ahead(self) -> bool:
        """Whether ranks are on their way to where they are to be held."""
        return self.run.held and self.run.state is RanksState.RUNNING

    def _is_to_be_held(self, now: float) -> bool:
        """Say whether ranks have printed something, started for long enough, or, as far as it is time to look, opened a GPU."""
        if now >= self._hold_by:
            return True
        if now < self._look_s:
            return False
        self._look_s = now + LOOK_S
        return uses_gpu(rank.process.pid for rank in self._running)

    def _hold(self) -> None:
        """Freeze ranks that have started ahead, or try again soon where they do not freeze."""
        try:
            is_frozen = self._group.freeze(FREEZE_S) or not self._group.thaw(FREEZE_S)
        except OSError:
            is_frozen = False
        if not is_frozen:
            self._hold_by = time.monotonic() + FREEZE_S
            return
        now = time.monotonic()
        if self._watch:
            self._watch.hold(now)
        self._park_by = None if self._park_after_s is None else now + self._park_after_s
        self._set(RanksState.SUSPENDED)

    def _park(self) -> None:
        """Stop ranks that were suspended for as long as they may be, or try again soon where they do not thaw."""
        self._park_by = time.monotonic() + PARK_AGAIN_S
        with suppress(_Refusal, OSError):
            self._stop(KILL_S)

    def _stop(self, timeout_s: float) -> None:
        if not self.run.state.is_live or self.run.state is RanksState.STOPPING:
            return
        has_begun = not self._warm or self._warm.is_released
        if not has_begun or (self.run.held and not (self._watch and self._watch.has_computed)):  # There is nothing to save.
            self._kill()
            self._end_run(RanksState.STOPPED)
            return
        if not self._moves.is_on_gpu:
            self._park_by, self._next = None, RanksState.STOPPING
            self._stop_by = time.monotonic() + self._spec.grace_s
            self._move_by = time.monotonic() + MOVE_S
            self._set(RanksState.STOPPING)
            self._moves.bring_back(persists=True)
            return
        if self.run.state is RanksState.SUSPENDED:
            self._resume(timeout_s)
        self._signal_stop()

    def _signal_stop(self) -> None:
        self._checkpoint_before = _signature(self._checkpoint_path)
        self._stop_by = time.monotonic() + self._spec.grace_s
        self._set(RanksState.STOPPING)
        for rank in self._running:
            rank.signal(self._spec.stop_signal)

    def _checkpoint(self) -> None:
        if self.run.state is not RanksState.RUNNING:
            raise _Refusal(f"it is {self.run.state}")
        for rank in self._running:
            rank.signal(self._spec.checkpoint_signal)

    def _kill_live(self) -> None:
        if self.run.state.is_live:
            self._kill()
            self._end_run(RanksState.STOPPED, note="killed")

    def _end(self, forget: bool, run: int) -> None:
        self._kill_live()
        if not self._group.kill(KILL_S):
            raise _Refusal(f"processes do not die: {self._group.members()}")
        if forget:
            self.run = replace(self.run, number=max(self.run.number, run), state=RanksState.FORGOTTEN)
            self._files.remove_reports()
        self._close()
        self._ends = True

    def _close(self) -> None:
        """Remove the process group, from the saved state, too."""
        self._port.release()
        self._group.close()
        self._files.save(SavedState(self.run))

    # What ranks do.

    @property
    def _checkpoint_path(self) -> Path:
        return Path(self._spec.checkpoint) if self._spec.checkpoint else self.directory / "checkpoint"

    def _take_event(self, rank: ranks.Rank, descriptor: int) -> None:
        """Take in that a rank has written to a pipe, or has ended."""
        if descriptor == rank.pidfd:
            self._exited(rank)
            return
        if self._watch:
            self._watch.hear(time.monotonic())
        self._read(rank, descriptor)
        self._fail_if_slow()

    def _read(self, rank: ranks.Rank, pipe: int) -> None:
        if not rank.read(pipe, self._take_line, self._files.output, self._read_until_s):
            self._selector.unregister(pipe)
            del rank.pipes[pipe]
        elif not rank.pipes[pipe]:  # Packages print warnings to standard error while they are imported.
            self._hold_by = 0.0

    def _read_waiting(self) -> None:
        """Go on with lines that were left, and take in the ends of ranks of which none is left."""
        for rank in list(self._ranks):
            for pipe in rank.waiting:
                self._read(rank, pipe)
        self._fail_if_slow()
        for rank in list(self._running):
            if rank in self._running and rank.has_ended and not rank.waiting:  # An earlier end may have ended the run.
                self._take_exit(rank)

    def _fail_if_slow(self) -> None:
        """End a run whose pattern takes so long that nobody would be obeyed meanwhile."""
        if self._watch and self._watch.slow and self.run.state.is_live:
            self._kill()
            self._end_run(RanksState.FAILED, exit=self._watch.slow)

    def _take_line(self, line: PrintedLine) -> None:
        if self._watch is None:
            return
        now = time.monotonic()
        report = self._watch.line(line, now)
        if report is not None:
            self._files.add(report)
            self._hold_by = 0.0
        if self._watch.has_news:
            self.run = self._watch.status(self.run, now)
            self._files.outdate()

    def _exited(self, rank: ranks.Rank) -> None:
        """Take in that a process has ended, of which lines may be left to read."""
        rank.process.wait()
        rank.has_ended = True
        self._selector.unregister(rank.pidfd)
        if self._watch:
            self._watch.hear(time.monotonic())

    def _take_exit(self, rank: ranks.Rank) -> None:
        """Take in what the end of a rank means for the run."""
        self._running.remove(rank)
        if self.run.state is RanksState.STOPPING:
            if rank.process.returncode == -self._spec.stop_signal and self._stop_by is not None:
                self._stop_by = min(self._stop_by, time.monotonic() + ORPHANED_S)
                self.run = replace(self.run, died_stopping=True)
            if not self._running:
                self._stopped()
        elif rank.process.returncode == -signal.SIGSEGV and not self._moves.is_on_gpu:
            # A program that stands still does not fail by itself.
            note = f"rank {rank.number} was killed by SIGSEGV while its GPU memory was moved, or on the host"
            self._moves.give_up(note)
            self._kill()
            self._end_run(RanksState.STOPPED, note=f"{note}: it continues from its last checkpoint")
        elif rank.process.returncode:
            self._kill()
            self._end_run(RanksState.FAILED, exit=rank.describe_exit())
        elif not self._running:
            self._end_run(RanksState.FINISHED)

    def _stopped(self) -> None:
        codes = sorted({rank.process.returncode for rank in self._ranks})
        reached = self._spec.iterations and self.run.progress.done >= self._spec.iterations
        if codes == [0] and (reached or self._spec.stopped_code != 0):
            self._end_run(RanksState.FINISHED)
            return
        note = self.run.note
        if codes != [self._spec.stopped_code]:
            note = f"its ranks exited with {codes} when asked to stop: it continues from its last checkpoint"
        elif self._writes_checkpoint and _signature(self._checkpoint_path) == self._checkpoint_before:
            note = f"it stopped without writing {self._checkpoint_path}: it continues from the one before"
        self._end_run(RanksState.STOPPED, note=note)

    @property
    def _writes_checkpoint(self) -> bool:
        """Whether rank 0 was here: on other nodes ranks may end before it has written."""
        return any(rank.number == 0 for rank in self._ranks)

    def _kill_late(self) -> None:
        now = time.monotonic()
        if self._moves.is_under_way and now < self._move_by:
            self._stop_by = now + LATER_S  # It takes as long as it takes; what is waited for no longer is room.
            return
        done = f"it had done {self.run.progress.done:g} iterations and continues from its last checkpoint"
        why = f"it reached no iteration boundary within {self._spec.grace_s:g} s"
        if not self._moves.is_on_gpu:
            refusal = self._moves.status.refusal or "it took too long"
            why = f"its memory did not come back from the host to be saved within {self._spec.grace_s:g} s: {refusal}"
        self._kill()
        note = f"killed: {why}; {done}"
        self._end_run(RanksState.STOPPED, note=note)

    def _kill(self) -> None:
        self._group.kill(KILL_S)
        for rank in self._running:
            with suppress(subprocess.TimeoutExpired):
                rank.process.wait(KILL_S)

    def _end_run(self, state: RanksState, **details: Any) -> None:
        """Leave nothing of a run behind, children of its ranks included. details: fields of the run's status."""
        self._moves.close()
        self._group.kill(KILL_S)
        if self._watch:
            if self.run.held:
                self._watch.hold(time.monotonic())
            words = "\n".join(line for rank in self._ranks for line in rank.last_lines)
            self.run = self._watch.final(self.run, words, time.monotonic())
            if state is RanksState.FINISHED:
                self._take_end(self._watch)
        for rank in self._ranks:
            for source in (rank.pidfd, *rank.pipes):
                with suppress(KeyError):
                    self._selector.unregister(source)
            rank.close()
        if self._warm:
            with suppress(KeyError):
                self._selector.unregister(self._warm.connection)
            self._warm.close()
            self._group.adopt(0, ())
        self._ranks, self._running, self._stop_by, self._park_by, self._watch, self._warm = [], [], None, None, None, None
        self._port.release()
        self._ended_s = time.monotonic()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # The loop reaps adopted orphans.
                pass
        self._ends = self._ends_after_run
        self._set(state, held=False, **details)

    def _take_end(self, watch: RunWatch) -> None:
        """Take in what a run that has ended well did not report: a last line that was refused, or all of its lines."""
        if (report := watch.last_report(time.monotonic())) is not None:
            self._files.add(report)
        last = (line for rank in self._ranks for line in rank.last_printed)
        self.run = replace(self.run, unread=watch.unread(last))

    # What is saved.

    def _with_group(self, run: RunStatus) -> SavedState:
        return SavedState(run, (self._group.kind, self._group.path))

    def _set(self, state: RanksState, **details: Any) -> None:
        self.run = replace(self.run, state=state, memory=self._moves.status, **details)
        self._save()

    def _save(self) -> None:
        self._files.save(self._with_group(self.run))


def _signature(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is replaced or written, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
