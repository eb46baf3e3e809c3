"""The supervisor's loop over real ranks, in the orders in which their events may be seen."""

import subprocess
import sys
import time
from pathlib import Path

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import RanksState
from beamer.engines.local.supervisor import control
from beamer.engines.local.supervisor.messages import Accepted, End, GetStatus, Launch, Status

PATIENCE_S = 30.0
# Rank 0 ends at once, after a line; rank 1 when rank 0 has been gone for a while.
COMMAND = ("sh", "-c", 'echo rank $RANK; [ "$RANK" = 0 ] || sleep 1')
# A supervisor that sees all events of a rank at once, its end before what it wrote.
ENDS_FIRST = """
import selectors, sys, time
from beamer.engines.local.supervisor import __main__ as program
from beamer.engines.local.supervisor.ranks import Rank

class EndsFirst(selectors.EpollSelector):
    def select(self, timeout=None):
        ready = super().select(timeout)
        if any(isinstance(key.data, Rank) for key, _ in ready):
            time.sleep(0.3)  # for the rest of what the rank does
            ready = super().select(0)
        return sorted(ready, key=lambda event: not (isinstance(event[0].data, Rank) and event[0].fd == event[0].data.pidfd))

selectors.DefaultSelector = EndsFirst
program.main([sys.argv[1], "--group", "signals", "--foreground"])
"""


def test_a_rank_whose_end_is_seen_before_its_last_lines_ends_no_other(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDS_FIRST, str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + PATIENCE_S
            while not (tmp_path / "control").exists():
                assert time.monotonic() < until
                time.sleep(0.02)
            launch = Launch(1, LaunchSpec(COMMAND), (0, 1), ("", ""), 2, "127.0.0.1", 4711, 1)
            assert isinstance(control.ask(tmp_path, launch, PATIENCE_S), Accepted)
            while True:
                assert process.poll() is None, process.communicate()[1]
                status = control.ask(tmp_path, GetStatus(), PATIENCE_S)
                assert isinstance(status, Status)
                if not status.run.state.is_live:
                    break
                time.sleep(0.05)
            assert status.run.state is RanksState.FINISHED, status.run
            assert isinstance(control.ask(tmp_path, End(), PATIENCE_S), Accepted)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
