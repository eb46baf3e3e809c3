"""The ranks of one run on a node, as child processes of the supervisor."""

import ctypes
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from beamer.engines.local.supervisor.groups import Group
from beamer.engines.local.supervisor.lines import PrintedLine
from beamer.engines.local.supervisor.messages import Launch
from beamer.engines.local.supervisor.output_lines import OutputLines
from beamer.engines.local.supervisor.warm.run import WarmRun
from beamer.errors import shortened

LAST_LINES = 12
MAX_LINE_CHARACTERS = 4096
"""Characters of each of the last lines."""
MAX_READ_BYTES = 1 << 20
"""Bytes that are taken from a pipe at a time: a program that never stops printing must not have its supervisor to itself."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class RankProcess(Protocol):
    """A rank's process, as `subprocess.Popen` has it."""

    pid: int
    returncode: Any
    """The exit code, None as long as it runs."""
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code."""


class Rank:
    """A rank: its process and what it prints, as lines."""

    def __init__(self, number: int, process: RankProcess) -> None:
        self.number = number
        self.process = process
        self.pidfd = os.pidfd_open(process.pid)
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)  # the last lines of standard error
        self.last_printed: deque[str] = deque(maxlen=LAST_LINES)
        self.has_ended = False
        self._lines: dict[int, OutputLines] = {}
        # These pipes were empty after the rank's end, however much other processes write into them later.
        self._read_out: set[int] = set()
        self._left = MAX_READ_BYTES  # So many bytes are still read after the rank's end.
        self.pipes: dict[int, bool] = {}
        for pipe, is_error in ((process.stdout, False), (process.stderr, True)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self.pipes[pipe.fileno()] = is_error
                self._lines[pipe.fileno()] = OutputLines()

    @property
    def waiting(self) -> list[int]:
        """The pipes to read from although nothing comes: lines are left, or after its end what it has written."""
        return [pipe for pipe in self.pipes if self._lines[pipe] or (self.has_ended and pipe not in self._read_out)]

    def read(self, pipe: int, line: Callable[[PrintedLine], None], log: BinaryIO, until_s: float) -> bool:
        """Take what a pipe holds, but no more than `MAX_READ_BYTES`, line by line; return whether more may come.

        Lines end as `OutputLines` says. until_s: monotonic time, after which the next call goes on with what it has read; one
        line is taken anyway.
        """
        lines = self._lines[pipe]
        taken = 0
        while True:
            while (one := lines.take()) is not None:
                self._keep(one.text, self.pipes[pipe])
                line(one)
                if lines and time.monotonic() >= until_s:
                    return True
            if taken >= MAX_READ_BYTES or (taken and time.monotonic() >= until_s):
                return True
            try:
                data = os.read(pipe, 65536) if self._left > 0 or pipe in self._read_out else None
            except BlockingIOError:
                data = None
            if data is None:
                if self.has_ended:
                    self._read_out.add(pipe)
                return True
            if not data and not lines.finish():  # The last line may have had no end.
                return False
            taken += len(data)
            self._left -= len(data) if self.has_ended else 0
            with suppress(OSError):  # A full disk is no reason to end the job.
                log.write(data)
            lines.add(data)

    def _keep(self, text: str, is_error: bool) -> None:
        if text.strip():
            kept = shortened(text, MAX_LINE_CHARACTERS)
            self.last_printed.append(kept)
            if is_error:
                self.last_lines.append(kept)

    def signal(self, number: int) -> None:
        """Send a signal to this process, if it is still there."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def describe_exit(self) -> str:
        """Return how the process ended, and the last lines that it wrote to its standard error."""
        code = self.process.returncode
        how = f"exited with code {code}" if code >= 0 else f"was killed by {_name(-code)}"
        return "\n".join((f"rank {self.number} {how}", *self.last_lines))

    def close(self) -> None:
        """Close the descriptors of the process, which has ended."""
        os.close(self.pidfd)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Real-time signals have no name.
        return f"signal {number}"


def environment(launch: Launch, mark: str, checkpoint: Path) -> dict[str, str]:
    """Return the variables that all ranks of a launch on this node have."""
    name, value = mark.split("=", 1)
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "WORLD_SIZE": str(launch.world_size),
        "LOCAL_WORLD_SIZE": str(len(launch.ranks)),
        "MASTER_ADDR": launch.master_addr,
        "MASTER_PORT": str(launch.master_port),
        "CUDA_VISIBLE_DEVICES": ",".join(launch.devices),
        "BEAMER_CHECKPOINT": str(checkpoint),
        "BEAMER_BATCH_SIZE": str(launch.batch_size),
        **dict(launch.spec.env),
        name: value,
    }


def own_variables(launch: Launch, local: int) -> dict[str, str]:
    """Return the variables of one rank alone, save those that the job has itself. local: its number on this node."""
    numbers = {"RANK": str(launch.ranks[local]), "LOCAL_RANK": str(local)}
    return {name: value for name, value in numbers.items() if name not in dict(launch.spec.env)}


def fork(launch: Launch, directory: Path, group: Group, locks: Sequence[int], checkpoint: Path) -> WarmRun:
    """Have a fork server make the ranks that a launch puts on this node. Raises `OSError` where it cannot be asked."""
    variables = {number: own_variables(launch, local) for local, number in enumerate(launch.ranks)}
    return WarmRun(launch.spec, directory, environment(launch, group.mark, checkpoint), variables, group.mark, locks)


def start(launch: Launch, directory: Path, group: Group, locks: Sequence[int], checkpoint: Path) -> list[Rank]:
    """Start the ranks that a launch puts on this node. locks: descriptors that the ranks inherit.

    Raises `OSError`, `ValueError` or `SubprocessError` where the command cannot be run: none of them runs then.
    """
    supervisor = os.getpid()

    def enter() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # The supervisor died before the call.
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGHUP):  # The rank would inherit that the supervisor ignores these signals.
            signal.signal(number, signal.SIG_DFL)
        group.enter()

    ranks: list[Rank] = []
    common = environment(launch, group.mark, checkpoint)
    for local, number in enumerate(launch.ranks):
        try:
            process = subprocess.Popen(
                launch.spec.command, cwd=launch.spec.cwd or directory, env={**common, **own_variables(launch, local)},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                preexec_fn=enter, pass_fds=tuple(locks),
            )  # fmt: skip
            ranks.append(Rank(number, process))
        except (OSError, ValueError, subprocess.SubprocessError):
            group.kill(1.0)
            for rank in ranks:
                rank.process.wait()
                rank.close()
            raise
    return ranks
