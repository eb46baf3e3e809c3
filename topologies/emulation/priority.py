"""How the processes of a run share the machine's processors, among themselves and with everybody else's.

What has processors of its own in a real cluster has priority: the switches and the controller, then agents, which share their
hosts' with trainers, then these. The controller has the most of its session, where it would else wait for all agents in turn;
the switches have a session of their own.
"""

import contextlib
import os
from pathlib import Path

SWITCHES_NICE = -15
CONTROLLER_NICE = -19
AGENTS_NICE = -10  # The session that controllers, agents and trainers have together has this value, too.


def prefer_session(leader: int, nice: int) -> None:
    """Give the session that process `leader` leads this nice value among all sessions; do nothing if it leads none.

    A kernel with CONFIG_SCHED_AUTOGROUP shares processors between sessions first, so that a process's nice value counts within
    its session alone: a busy loop in another one, of whatever nice value, would take half a processor from the switches.
    """
    if os.getsid(leader) == leader:
        with contextlib.suppress(FileNotFoundError):  # a kernel without such groups goes by the processes' nice values
            Path(f"/proc/{leader}/autogroup").write_text(str(nice))
