"""The command as a child process: started as it would be without Beamer, given the signals that it would get, ended as it ends.

It stays in the process group of `beamer run`, as under env and time: the terminal's signals, job control and pipelines reach it
as they would reach it alone. What the terminal, or anybody else, sends to the group has reached the command already, and is not
sent again. What is sent to `beamer run` alone is passed on. timeout and tini make a group of their own instead; behind a pager,
say, that group would take the terminal's keyboard away from the other programs of the pipeline.

All signals are blocked and taken one by one, so that none is lost, and each with its sender.
"""

import errno
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from beamer.run.witness import GroupWitness

STOPS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a trial by the will of whoever sent them."""
STOPPED_S = 120.0
"""Seconds after such a signal in which an end is taken for its effect: launchers wait for their workers."""
PASSED_ON = (*STOPS, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
TAKEN = (*PASSED_ON, signal.SIGTSTP, signal.SIGWINCH, signal.SIGCHLD)
_SET_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores these signals; a program expects them as they were.
_SHELL = "/bin/sh"  # For a script that does not say what runs it, as under env and shells.
_KERNEL = 0  # A signal's code is above this where the kernel has sent it: for the terminal, say (sigaction(2), si_code).
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # As of env and shells.


class NotStarted(Exception):
    """The command cannot be started; `code` is the exit code that says so."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"{command}: {error.strerror}")
        self.code = NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE


@dataclass(frozen=True)
class Ended:
    """How the command has ended. status: as waitpid(2) has it. was_stopped: whether a signal of `STOPS` came shortly before."""

    status: int
    was_stopped: bool = False

    @property
    def is_killed(self) -> bool:
        """Whether it has ended by the will of whoever sent a signal, to this process or to the command itself."""
        return self.was_stopped or (os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) in STOPS)

    @property
    def is_success(self) -> bool:
        """Whether it has exited with 0."""
        return self.status == 0

    def leave(self) -> NoReturn:
        """End this process as the command has ended: with its exit code, or by the same signal, which shells see."""
        code = os.waitstatus_to_exitcode(self.status)
        if code >= 0:
            sys.exit(code)
        if sys.stdout is not None:  # It may have been closed.
            sys.stdout.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The command's own core file is the one that tells something.
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        os._exit(128 - code)  # The first process of a container is not killed by its own signals.


def block_signals() -> set[int]:
    """Have the signals wait until they are taken, and return which were blocked before, for the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Where it is ignored, ended children leave no exit code.
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)}


class ChildCommand:
    """The command as it runs. pid: its process id."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], blocked: set[int], descriptors: Mapping[int, int]
    ) -> None:
        """Start it. Raises `NotStarted`.

        blocked: signals that whoever started this process has blocked. descriptors: what the command has in place of this
        process's own, by number.
        """
        self._witness = GroupWitness()
        actions = [(os.POSIX_SPAWN_DUP2, own, number) for number, own in descriptors.items()]

        def start(program: str, *arguments: str) -> int:
            return os.posix_spawnp(
                program, (program, *arguments), environment,
                file_actions=actions, setsigmask=blocked, setsigdef=_SET_BY_PYTHON,
            )  # fmt: skip

        early = _ending_signal(blocked)
        if early is not None:
            Ended(early).leave()
        try:
            try:
                self.pid = start(*command)
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                self.pid = start(_SHELL, _found(command[0]), *command[1:])
        except OSError as error:
            raise NotStarted(command[0], error) from error
        # The command may not have been there yet when these came. To one that has just begun, twice is no harm.
        self._unsure = signal.sigpending()

    def wait(self, resized: Callable[[], None] | None = None) -> Ended:
        """Wait until it has ended, and pass signals on meanwhile.

        resized: is called when the terminal has another size, before the command is told.
        """
        stopped_s = -math.inf
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return Ended(status, time.monotonic() - stopped_s < STOPPED_S)
            arrived = signal.sigwaitinfo(TAKEN)
            number, from_kernel = arrived.si_signo, arrived.si_code > _KERNEL
            if number in STOPS:
                stopped_s = time.monotonic()
            if number == signal.SIGTSTP:
                self._stop(from_kernel)
            elif number == signal.SIGWINCH and resized is not None:
                resized()  # The terminal has told the command of the change before it could see it.
                os.kill(self.pid, number)
            elif number != signal.SIGCHLD and not self._has_had(number, from_kernel):
                os.kill(self.pid, number)  # It has not been waited for, so that its id is no other process's.

    def _has_had(self, number: int, from_kernel: bool) -> bool:
        """Return whether the command has been sent a signal that this process has taken."""
        is_seen = self._witness.has_seen(number)  # Its mark is cleared in any case.
        if number in self._unsure:
            self._unsure.discard(number)
            return False
        return is_seen or from_kernel

    def _stop(self, from_kernel: bool) -> None:
        """Stop the command, unless the terminal has, and this process as it would stop by itself."""
        if not self._has_had(signal.SIGTSTP, from_kernel):
            os.kill(self.pid, signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})  # This process stops here until it is continued.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def is_told_to_end() -> bool:
    """Return whether a signal waits, not taken yet, that would end a process which does nothing about signals."""
    return _ending_signal(()) is not None


def _ending_signal(blocked: Collection[int]) -> int | None:
    """Return a signal that waits and would have ended a command with these blocked, None if there is none."""
    waiting = [one for one in PASSED_ON if one != signal.SIGCONT and one in signal.sigpending() and one not in blocked]
    return next((one for one in waiting if signal.getsignal(one) is not signal.SIG_IGN), None)


def _found(program: str) -> str:
    """Return where a program is that exists."""
    import shutil  # It takes a while to import, and hardly any command needs it.

    return program if os.sep in program else shutil.which(program) or program
