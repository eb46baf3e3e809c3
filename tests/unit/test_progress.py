"""That a command is at work is shown on a terminal alone, and leaves nothing behind."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import beamer.cli
from tests.support.checkout import ROOT
from tests.support.commands import run_here

PROGRAM = """
import time
from beamer.progress import work
with work("counting [red]sheep[/red]", 2) as shown:
    print("printed meanwhile")
    for part in "ab":
        shown.begin(f"sheep {part}")
        time.sleep(0.4)
        shown.advance()
"""


def on_terminal(*command: str) -> tuple[str, str]:
    """Run a command whose errors alone are a terminal's; return what came out, and what the terminal was sent."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT, env=environment)
    os.close(theirs)
    read = b""
    try:
        while part := os.read(ours, 1 << 16):
            read += part
    except OSError:  # The command has ended.
        pass
    finally:
        out, _ = process.communicate(timeout=120)
        os.close(ours)
    assert process.returncode == 0
    return out.decode(), read.decode()


def test_a_terminal_sees_each_part_and_the_output_is_left_alone() -> None:
    out, seen = on_terminal("-c", PROGRAM)
    assert out == "printed meanwhile\n"
    for words in ("sheep a", "sheep b", "1/2"):
        assert words in seen
    assert "\x1b[?25h" in seen, "the cursor is shown again"


def test_nothing_is_shown_where_errors_are_kept() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("printed meanwhile\n", "")


def test_a_simulation_shows_its_policies_on_a_terminal_and_prints_what_it_always_has(tmp_path: Path) -> None:
    arguments = ("simulate", str(ROOT / "examples" / "scenario.yaml"), "--policies", "fair,beamer")
    out, seen = on_terminal("-m", "beamer.cli", *arguments)
    assert "simulating" in seen
    done = run_here(beamer.cli.main, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Under beamer a stage takes" in out
    assert done.stdout.split() == out.split()
