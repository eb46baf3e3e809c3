"""Pipes of ranks that have ended, into which their children still write."""

import io
import os
import subprocess
import time

from beamer.engines.local.supervisor.ranks import MAX_READ_BYTES, Rank

PROGRAM = f"(sleep 0.1; head -c {3 * MAX_READ_BYTES} /dev/zero | tr '\\0' '\\n') &"


def test_what_children_print_after_a_ranks_end_is_read_to_its_end() -> None:
    """A pipe that is left unread wakes the supervisor again and again, and blocks the child."""
    process = subprocess.Popen(["sh", "-c", PROGRAM], stdout=subprocess.PIPE)
    rank = Rank(0, process)
    process.wait()
    rank.has_ended = True
    assert process.stdout is not None
    pipe, log = process.stdout.fileno(), io.BytesIO()
    until_s = time.monotonic() + 60
    while rank.read(pipe, lambda line: None, log, time.monotonic() + 0.1):
        assert time.monotonic() < until_s
        os.sched_yield()
    assert log.tell() == 3 * MAX_READ_BYTES
    rank.close()
