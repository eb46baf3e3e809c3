"""How the processes of a run share the machine's processors, among themselves and with everybody else's.

What has processors of its own in a real cluster has priority: the switches, then controller and agents, then trainers.
"""

import contextlib
import os
from pathlib import Path

SWITCHES_NICE = -15
CONTROL_NICE = -10  # of controller and agents


def prefer_session(leader: int, nice: int) -> None:
    """Give the session that process `leader` leads this nice value among all sessions; do nothing if it leads none.

    A kernel with CONFIG_SCHED_AUTOGROUP shares processors between sessions first, so that a process's nice value counts within
    its session alone: a busy loop in another one, of whatever nice value, would take half a processor from the switches.
    """
    if os.getsid(leader) == leader:
        with contextlib.suppress(FileNotFoundError):  # a kernel without such groups goes by the processes' nice values
            Path(f"/proc/{leader}/autogroup").write_text(str(nice))
