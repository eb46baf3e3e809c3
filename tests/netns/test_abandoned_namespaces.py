"""What a killed test run leaves: the next one removes its namespaces and ends what runs in them, and touches no other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.netns.bench import eventually
from tests.support.namespaces import cabled_namespaces

pytestmark = pytest.mark.netns

MAKE = """
from tests.support.namespaces import cabled_namespaces
with cabled_namespaces("a", "b") as spaces:
    sleeping = spaces[0].popen("sleep", "600")
    print(sleeping.pid, *(space.name for space in spaces), flush=True)
    input()
"""


def test_namespaces_of_a_killed_run_are_removed_by_the_next_one() -> None:
    with cabled_namespaces("a", "b") as ours:
        with subprocess.Popen([sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            sleeping, *names = run.stdout.readline().split()
            with cabled_namespaces("a", "b"):
                assert all(Path("/run/netns", name).exists() for name in names), "its run goes on"
            run.kill()
        assert all(Path("/run/netns", name).exists() for name in names)
        with cabled_namespaces("a", "b"):
            assert not any(Path("/run/netns", name).exists() for name in names)
        eventually(lambda: not Path("/proc", sleeping, "exe").exists())
        assert all(Path("/run/netns", space.name).exists() for space in ours)
