"""What a supervisor does: the life of a job on a node, from requests and from what its ranks do.

One thread, one loop: no step of a job's life can overtake another.
"""

import hashlib
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from beamer.engines.local import groups, ranks, store
from beamer.engines.local.progress import Entry, Meter, Progress, parse, parser
from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import RanksState

ORPHANED_S = 2.0
"""How long ranks that are to stop get once one has died of the stop signal: without it they reach no common boundary."""
SAVE_S = 1.0
LOOK_S = 5.0
"""How often a supervisor sees whether its directory is still there."""
PAGE = 5000
"""Reports in an answer, which is to be there soon however many there are."""
KILL_S = 5.0


def mark(directory: Path) -> str:
    """Return what the environment of every rank of a directory holds."""
    return f"BEAMER_RANKS_OF={directory}"


class Refused(Exception):  # an answer, not a mishap
    """A request that cannot be carried out; the message says why."""


class Supervisor:
    """Serves one directory. locks: descriptors that ranks inherit."""

    def __init__(self, directory: Path, kind: str, locks: list[int]) -> None:
        self.directory = directory
        self._locks = locks
        self._mark = mark(directory)
        recorded = store.read_json(directory / "state") or {}
        self.state = RanksState(recorded.get("state", RanksState.IDLE))
        self.run: int = recorded.get("run", 0)
        self.note: str = recorded.get("note", "")
        self.exit: str = recorded.get("exit", "")
        self.tail_s: float = recorded.get("tail_s", 0.0)
        self._progress = Progress(**recorded.get("progress", {}))
        self._restart_s: float | None = recorded.get("restart_s")
        self._iteration_s: float = recorded.get("iteration_s", 0.0)
        self._entries: list[Entry] = list(_entries(directory / "reports"))
        self._spec = LaunchSpec(("true",))
        self._pattern = parser("")
        self._meter: Meter | None = None
        self._ranks: list[ranks.Rank] = []
        self._running: list[ranks.Rank] = []
        self._until: float | None = None
        self._ended_s = time.monotonic()
        self._suspended_s = 0.0
        self._before: tuple[int, int] | None = None
        self._unsaved = False
        self._saved_s = 0.0
        self._ending = self._leaving = False
        self._log: BinaryIO = open(directory / "output", "ab", buffering=0)  # noqa: SIM115  # open as long as this lives
        self._reports = open(directory / "reports", "a", buffering=1)  # noqa: SIM115
        self._selector = selectors.DefaultSelector()
        self._clear(recorded.get("group"))
        self._group = self._made(kind)
        self._server = store.listen(directory)

    def _clear(self, group: list[str] | None) -> None:
        """Kill what a supervisor before this one has left."""
        if group is not None:
            left = groups.reopen(group[0], group[1], self._mark)
            left.kill(KILL_S)
            left.close()
        if self.state.is_live:
            self.note = f"its supervisor died while it was {self.state}; it goes on from its last checkpoint"
            self.state = RanksState.LOST

    def _made(self, kind: str) -> groups.Group:
        name = "beamer-" + hashlib.sha256(str(self.directory).encode()).hexdigest()[:12]
        for one, path in groups.candidates(name, kind):
            group = groups.reopen(one, path, self._mark)
            self._group = group
            self._save()  # before it exists, so that it is removed whatever happens
            with suppress(OSError):
                group.open()
                return group
        raise SystemExit(f"no process group of kind {kind!r} can be made here")

    def serve(self, word: socket.socket) -> None:
        """Serve until told to end, by a request, or by `word`: then the ranks stop at an iteration boundary first.

        It ends, and its ranks with it, when its directory has been removed, as nobody can reach it any more.
        """
        self._selector.register(self._server, selectors.EVENT_READ, self._answer)
        self._selector.register(word, selectors.EVENT_READ, lambda: self._leave(word))
        while not self._ending:
            ready = self._selector.select(self._patience())
            if not self._has_directory():
                self._abandon()
                return
            for key, _ in ready:
                if callable(key.data):
                    key.data()
                elif key.data in self._ranks:  # an event before this one may have ended the run
                    self._read(key.data, key.fd) if key.fd in key.data.pipes else self._exited(key.data)
            if self._until is not None and time.monotonic() >= self._until:
                self._too_late()
            if self._unsaved and self._patience() == 0.0:
                self._save()
        self._close()
        self._server.close()
        (self.directory / "control").unlink(missing_ok=True)

    def _has_directory(self) -> bool:
        """Say whether the directory is the one that was locked, not gone and perhaps made anew."""
        try:
            return os.path.samestat(os.fstat(self._locks[0]), os.stat(self.directory / "ranks"))
        except FileNotFoundError:
            return False

    def _abandon(self) -> None:
        if not self.directory.exists():  # else the group and the mark are those of whoever has made it anew
            self._group.kill(KILL_S)
            self._group.close()

    def _leave(self, word: socket.socket) -> None:
        word.recv(1)
        self._leaving = True
        if self.state.is_live:
            self.do_stop({"timeout_s": KILL_S})
        else:
            self._ending = True

    def _patience(self) -> float:
        now = time.monotonic()
        times = (self._until, self._saved_s + SAVE_S if self._unsaved else None, now + LOOK_S)
        return max(min(at for at in times if at is not None) - now, 0.0)

    # Requests.

    def _answer(self) -> None:
        with suppress(OSError):  # who has asked may be gone
            client, _ = self._server.accept()
            with client:
                client.settimeout(1.0)
                with client.makefile("rwb") as stream:
                    line = stream.readline()
                    if line:
                        stream.write(json.dumps(self._reply(line)).encode() + b"\n")

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            act = getattr(self, f"do_{request['call']}", None)
            if act is None:
                raise Refused(f"no such call: {request['call']}")
            return {"ok": True, **(act(request) or {})}
        except Refused as refusal:
            return {"ok": False, "why": str(refusal), "state": self.state, "run": self.run}
        except (ValueError, KeyError, TypeError, OSError) as error:
            return {"ok": False, "why": f"{type(error).__name__}: {error}", "state": self.state, "run": self.run}

    def do_status(self, request: dict[str, Any]) -> dict[str, Any]:
        """Say where the job stands; `after`: how many reports are known already. Of the others come `PAGE` at most."""
        now = time.monotonic()
        first = request.get("after", 0)
        entries = self._entries[first : first + PAGE]
        count = min(first, len(self._entries)) + len(entries)
        return {
            "run": self.run, "state": self.state, "note": self.note, "exit": self.exit,
            "now_s": now, "reports": [vars(entry) for entry in entries],
            "count": count, "more": count < len(self._entries), "progress": asdict(self._progress),
            "iteration_s": self._iteration_s, "restart_s": self._restart_s, "tail_s": self.tail_s,
            "ended_s": now - self._ended_s, "group": self._group.kind, "pid": os.getpid(),
        }  # fmt: skip

    def do_port(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a port that is free now."""
        with socket.socket() as one:
            one.bind(("", 0))
            return {"port": one.getsockname()[1]}

    def do_launch(self, request: dict[str, Any]) -> None:
        """Start the ranks of a run; a run that was launched before is left as it is."""
        over = request["run"] < self.run or (request["run"] == self.run and self.state is RanksState.FORGOTTEN)
        if request["run"] == self.run and not over:
            return
        if over:
            self._ending = not self.state.is_live  # who has asked late may have started this supervisor
            raise Refused(f"run {request['run']} is over, this is run {self.run}")
        if self.state.is_live:
            raise Refused(f"run {self.run} is still {self.state}")
        if self._group.members() and not self._group.kill(KILL_S):
            raise Refused(f"processes of run {self.run} do not die: {self._group.members()}")
        self._spec = LaunchSpec.from_json(request["spec"])
        self._pattern = parser(self._spec.progress)
        self._progress = Progress(**request["progress"])
        self._restart_s, self._iteration_s, self.tail_s = None, 0.0, 0.0
        self.run, self.state, self.note, self.exit = request["run"], RanksState.RUNNING, "", ""
        self._write()  # a supervisor that dies from here on leaves a run to be cleared
        scale = request["batch_size"] / self._spec.batch_size
        now = time.monotonic()
        self._meter = Meter(
            self._progress, now, scale, self._spec.batch_size, self._spec.every, request["gap_s"], self._spec.iterations
        )
        try:
            self._ranks = ranks.start(self._spec, request, self.directory, self._group, self._locks, self._checkpoint)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.exit = f"{self._spec.command[0]} cannot be started: {error}"
            self._set(RanksState.FAILED)
            return
        self._running = list(self._ranks)
        for rank in self._ranks:
            for source in (rank.pidfd, *rank.pipes):
                self._selector.register(source, selectors.EVENT_READ, rank)

    def do_suspend(self, request: dict[str, Any]) -> None:
        """Freeze the ranks and return when they stand."""
        if self.state is RanksState.SUSPENDED:
            return
        if self.state is not RanksState.RUNNING:
            raise Refused(f"it is {self.state}")
        if not self._group.freeze(request["timeout_s"]):
            self._group.thaw(request["timeout_s"])
            raise Refused(f"it does not stand still within {request['timeout_s']} s")
        self._suspended_s = time.monotonic()
        self._set(RanksState.SUSPENDED)

    def do_resume(self, request: dict[str, Any]) -> None:
        """Let the ranks go on."""
        if self.state is RanksState.RUNNING:
            return
        if self.state is not RanksState.SUSPENDED:
            raise Refused(f"it is {self.state}")
        if not self._group.thaw(request["timeout_s"]):
            raise Refused(f"it does not go on within {request['timeout_s']} s")
        if self._meter:
            self._meter.stand(time.monotonic() - self._suspended_s)
        self._set(RanksState.RUNNING)

    def do_stop(self, request: dict[str, Any]) -> None:
        """Tell the ranks to stop at an iteration boundary; they are watched until they have."""
        if not self.state.is_live or self.state is RanksState.STOPPING:
            return
        if self.state is RanksState.SUSPENDED:
            self.do_resume(request)
        self._before = _signature(self._checkpoint)
        self._until = time.monotonic() + self._spec.grace_s
        self._set(RanksState.STOPPING)
        for rank in self._running:
            rank.signal(self._spec.stop_signal)

    def do_checkpoint(self, request: dict[str, Any]) -> None:
        """Tell the ranks to write a checkpoint and go on."""
        if self.state is not RanksState.RUNNING:
            raise Refused(f"it is {self.state}")
        for rank in self._running:
            rank.signal(self._spec.checkpoint_signal)

    def do_kill(self, request: dict[str, Any]) -> None:
        """Kill the ranks at once; what came after their last checkpoint is lost."""
        if self.state.is_live:
            self._kill(request.get("why", "killed"), RanksState.STOPPED)

    def do_end(self, request: dict[str, Any]) -> None:
        """Kill what runs and end the supervisor; `forget`: the reports, too, and take no launch up to `run` any more."""
        self.do_kill(request)
        if not self._group.kill(KILL_S):
            raise Refused(f"processes do not die: {self._group.members()}")
        if request.get("forget"):
            self.run, self.state = max(self.run, request.get("run", 0)), RanksState.FORGOTTEN
            (self.directory / "reports").unlink(missing_ok=True)
        self._close()
        self._ending = True

    def _close(self) -> None:
        """Leave no group behind, and no word of one."""
        self._group.close()
        self._save(group=False)

    # What ranks do.

    @property
    def _checkpoint(self) -> Path:
        return Path(self._spec.checkpoint) if self._spec.checkpoint else self.directory / "checkpoint"

    def _read(self, rank: ranks.Rank, pipe: int) -> None:
        if not rank.read(pipe, self._line, self._log):
            self._selector.unregister(pipe)
            del rank.pipes[pipe]

    def _line(self, text: str) -> None:
        line = parse(text, self._pattern)
        if line is None or self._meter is None:
            return
        entry = self._meter.line(line, time.monotonic())
        self._progress = self._meter.progress
        self._restart_s, self._iteration_s = self._meter.restart_s, self._meter.iteration_s
        if entry is not None:
            self._entries.append(entry)
            with suppress(OSError):  # a full disk is no reason to end the job
                self._reports.write(json.dumps(vars(entry)) + "\n")
        self._unsaved = True

    def _exited(self, rank: ranks.Rank) -> None:
        rank.process.wait()
        self._selector.unregister(rank.pidfd)
        self._running.remove(rank)
        for pipe in list(rank.pipes):
            self._read(rank, pipe)
        if self.state is RanksState.STOPPING:
            if rank.process.returncode == -self._spec.stop_signal and self._until is not None:
                self._until = min(self._until, time.monotonic() + ORPHANED_S)
            if not self._running:
                self._stopped()
        elif rank.process.returncode:
            self._kill(rank.died(), RanksState.FAILED)
        elif not self._running:
            self._end_run(RanksState.FINISHED)

    def _stopped(self) -> None:
        codes = sorted({rank.process.returncode for rank in self._ranks})
        reached = self._spec.iterations and self._progress.done >= self._spec.iterations
        if codes == [0] and (reached or self._spec.stopped_code != 0):
            self._end_run(RanksState.FINISHED)
            return
        if codes != [self._spec.stopped_code]:
            self.note = f"its ranks exited with {codes} when told to stop: it goes on from its last checkpoint"
        elif _signature(self._checkpoint) == self._before:
            self.note = f"it stopped without writing {self._checkpoint}: it goes on from the one before"
        self._end_run(RanksState.STOPPED)

    def _too_late(self) -> None:
        done = f"it had done {self._progress.done:g} iterations and goes on from its last checkpoint"
        self._kill(f"killed: it reached no iteration boundary within {self._spec.grace_s:g} s; {done}", RanksState.STOPPED)

    def _kill(self, why: str, state: RanksState) -> None:
        self._group.kill(KILL_S)
        for rank in self._running:
            with suppress(subprocess.TimeoutExpired):
                rank.process.wait(KILL_S)
        if state is RanksState.FAILED:
            self.exit = why
        else:
            self.note = why
        self._end_run(state)

    def _end_run(self, state: RanksState) -> None:
        """Leave nothing of a run behind, children of its ranks included."""
        self._group.kill(KILL_S)
        for rank in self._ranks:
            for source in (rank.pidfd, *rank.pipes):
                with suppress(KeyError):
                    self._selector.unregister(source)
            rank.close()
        if self._meter and self._meter.last_s is not None:
            self.tail_s = time.monotonic() - self._meter.last_s
        self._ranks, self._running, self._until, self._meter = [], [], None, None
        self._ended_s = time.monotonic()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # orphans that were adopted
                pass
        self._ending = self._leaving
        self._set(state)

    def _set(self, state: RanksState) -> None:
        self.state = state
        self._save()

    def _save(self, group: bool = True) -> None:
        """Write the state, or try again soon: a full disk is no reason to end the job."""
        try:
            self._write(group)
        except OSError as error:
            self._unsaved = True
            with suppress(OSError):  # the log may be on the same disk
                print(f"{self.directory}/state cannot be written: {error}", file=sys.stderr)

    def _write(self, group: bool = True) -> None:
        self._unsaved = False
        self._saved_s = time.monotonic()
        store.write_json(
            self.directory / "state",
            {
                "run": self.run, "state": self.state, "note": self.note, "exit": self.exit, "tail_s": self.tail_s,
                "progress": asdict(self._progress), "restart_s": self._restart_s, "iteration_s": self._iteration_s,
                "group": [self._group.kind, self._group.path] if group else None,
            },
        )  # fmt: skip


def _entries(path: Path) -> "list[Entry]":
    entries = []
    with suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with suppress(ValueError, TypeError):  # the last line of one that was killed
                entries.append(Entry(**json.loads(line)))
    return entries


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
