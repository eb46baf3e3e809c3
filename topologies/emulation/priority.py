"""How the processes of a run share the machine's processors, among themselves and with everybody else's.

What has processors of its own in a real cluster has priority. Controller and trainers, which sleep where they would compute,
run for a millisecond at a time, and have real-time priorities where the machine grants any. With nice values a process that
wakes up waits for one that has just begun its time slice, and all processes of a session pay for the time that others of it
have had. Switches come next, before agents, by nice values: with either of them at a real-time priority, stages took longer.
A machine that grants no real-time priority, as many containers do, has nice values for all. Then the controller has the most
of its session, where it would else wait for all agents in turn, and the switches have a session of their own.
"""

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Priority:
    """A process's priority. real_time: among real-time ones, the highest first. nice: where the machine grants no such."""

    real_time: int
    nice: int

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs `command` with it."""
        real_time = ["chrt", "--rr", str(self.real_time)] if grants_real_time() else []
        return [*real_time, "nice", "-n", str(self.nice), *command]


SWITCHES_NICE = -15
AGENTS_NICE = -10  # The session that controllers, agents and trainers have together has this value, too.
CONTROLLER_PRIORITY = Priority(real_time=2, nice=-19)
TRAINER_PRIORITY = Priority(real_time=1, nice=0)


@cache
def grants_real_time() -> bool:
    """Say whether this process may have a real-time priority; it has the one that it had before afterwards."""
    if shutil.which("chrt") is None:
        return False
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(CONTROLLER_PRIORITY.real_time))
    except OSError:
        return False
    os.sched_setscheduler(0, policy, parameter)
    return True


def prefer_session(leader: int, nice: int) -> None:
    """Give the session that process `leader` leads this nice value among all sessions; do nothing if it leads none.

    A kernel with CONFIG_SCHED_AUTOGROUP shares processors between sessions first, so that a process's nice value counts within
    its session alone: a busy loop in another one, of whatever nice value, would take half a processor from the switches.
    """
    if os.getsid(leader) == leader:
        with contextlib.suppress(FileNotFoundError):  # a kernel without such groups goes by the processes' nice values
            Path(f"/proc/{leader}/autogroup").write_text(str(nice))
