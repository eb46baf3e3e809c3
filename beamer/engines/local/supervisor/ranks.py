"""The ranks of one run on a node, as child processes of the supervisor."""

import ctypes
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from beamer.engines.local.supervisor.groups import Group
from beamer.engines.local.supervisor.messages import Launch

LAST_LINES = 12
LONGEST_LINE = 1 << 16
MOST_READ = 1 << 20
"""Bytes that are taken from a pipe at a time: a program that never stops printing must not have its supervisor to itself."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Let the orphans among this process' descendants become its children, so that none escapes it."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Rank:
    """A rank: its process and what it prints, as lines."""

    def __init__(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        self.number = number
        self.process = process
        self.pidfd = os.pidfd_open(process.pid)
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._rest: dict[int, bytes] = {}
        self.pipes: dict[int, bool] = {}
        for pipe, is_error in ((process.stdout, False), (process.stderr, True)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self.pipes[pipe.fileno()] = is_error

    def read(self, pipe: int, line: Callable[[str], None], log: BinaryIO) -> bool:
        """Take what a pipe holds, but no more than `MOST_READ`, line by line; return whether more may come.

        Lines end with a line feed, or a carriage return; of one that is too long the end counts.
        """
        taken = 0
        while taken < MOST_READ:
            try:
                data = os.read(pipe, 65536)
            except BlockingIOError:
                return True
            taken += len(data)
            with suppress(OSError):  # a full disk is no reason to end the job
                log.write(data)
            *lines, rest = re.split(rb"[\r\n]", self._rest.get(pipe, b"") + data)
            if not data and rest:
                lines.append(rest)
            self._rest[pipe] = rest[-LONGEST_LINE:]
            for text in (one.decode("utf-8", "replace") for one in lines if one):
                if self.pipes[pipe] and text.strip():
                    self.last_lines.append(text)
                line(text)
            if not data:
                return False
        return True

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
    except ValueError:  # real-time signals have none
        return f"signal {number}"


def start(launch: Launch, directory: Path, group: Group, locks: Sequence[int], checkpoint: Path) -> list[Rank]:
    """Start the ranks that a launch puts on this node. locks: descriptors that the ranks inherit.

    Raises `OSError`, `ValueError` or `SubprocessError` where the command cannot be run: none of them runs then.
    """
    supervisor = os.getpid()

    def enter() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it died before the call
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGHUP):  # the supervisor ignores them, which would be inherited
            signal.signal(number, signal.SIG_DFL)
        group.enter()

    ranks: list[Rank] = []
    mark, value = group.mark.split("=", 1)
    for local, number in enumerate(launch.ranks):
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "RANK": str(number),
            "WORLD_SIZE": str(launch.world_size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(len(launch.ranks)),
            "MASTER_ADDR": launch.master_addr,
            "MASTER_PORT": str(launch.master_port),
            "CUDA_VISIBLE_DEVICES": ",".join(launch.devices),
            "BEAMER_CHECKPOINT": str(checkpoint),
            "BEAMER_BATCH_SIZE": str(launch.batch_size),
            **dict(launch.spec.env),
            mark: value,
        }
        try:
            process = subprocess.Popen(
                launch.spec.command, cwd=launch.spec.cwd or directory, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=enter,
                pass_fds=tuple(locks),
            )  # fmt: skip
            ranks.append(Rank(number, process))
        except (OSError, ValueError, subprocess.SubprocessError):
            group.kill(1.0)
            for rank in ranks:
                rank.process.wait()
                rank.close()
            raise
    return ranks
