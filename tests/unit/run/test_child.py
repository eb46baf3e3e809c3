"""How the end of a command is taken, after signals that it survived for long."""

import signal
import subprocess
import sys

from beamer.run.child import Ended

SURVIVES = """
import os, signal, sys
from beamer.run import child
child.STOPPED_S = {stopped_s}
blocked = child.block_signals()
os.kill(os.getpid(), signal.SIGTERM)
blocked |= {{signal.SIGTERM}}
words = [sys.executable, "-c", "import time; time.sleep(1); raise SystemExit(3)"]
command = child.ChildCommand(words, os.environ, blocked, {{}})
ended = command.wait()
print(ended.is_killed, os.waitstatus_to_exitcode(ended.status))
"""


def survived(stopped_s: float) -> str:
    code = SURVIVES.format(stopped_s=stopped_s)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_an_end_long_after_a_signal_is_the_commands_own() -> None:
    assert survived(0.3) == "False 3\n"
    assert survived(60) == "True 3\n"


def test_a_signal_to_the_command_itself_kills_it() -> None:
    assert Ended(signal.SIGTERM).is_killed
    assert Ended(signal.SIGINT).is_killed
    assert not Ended(signal.SIGKILL).is_killed
    assert not Ended(3 << 8).is_killed
