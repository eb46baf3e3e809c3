"""A port that another program takes, after it was handed out and before rank 0 listens on it, costs a job nothing."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamer.engines.local import LaunchSpec
from beamer.engines.local.record import load
from beamer.gpu.engine import RunState
from beamer.testing.trainer import Options
from tests.processes.site import ONE_THREAD, Site, on
from tests.processes.test_local_engine import check_steps

# A program that waits for a file before it trains: rank 0 listens, and the others connect, when a test lets them.
WAITING = """
import os, runpy, sys, time
go, module = sys.argv[1:3]
sys.argv = [module, *sys.argv[3:]]
while not os.path.exists(f"{go}-{os.environ['RANK']}") and not os.path.exists(go):
    time.sleep(0.005)
runpy.run_module(module, run_name="__main__")
"""
PATIENCE_S = 60.0


def waiting(site: Site, job: str, module: str, *arguments: str) -> tuple[Path, Path]:
    """Say that a job is a training program that waits for a file; return its trace and the file."""
    trace, go = site.root / f"{job}.trace", site.root / "go"
    command = (sys.executable, "-c", WAITING, str(go), module, "--trace", str(trace), *arguments)
    site.specs[job] = LaunchSpec(command, cwd=str(Path(__file__).parents[2]), env=ONE_THREAD, batch_size=64)
    return trace, go


def port_of(site: Site) -> int:
    (record,) = (load(path) for path in site.root.glob("jobs/*/job"))
    assert record is not None
    return record.port


@contextmanager
def taken(port: int, reuse: bool = True) -> Iterator[socket.socket]:
    """Listen on a port as another program does."""
    with socket.socket() as other:
        if reuse:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", port))
        other.listen()
        yield other


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_taken_port_is_replaced_by_another(site: Site, ranks: int) -> None:
    trace, go = waiting(site, "job", "beamer.testing.trainer", "--iterations", "40")
    engine = site.engine()
    engine.start("job", on(*["localhost"] * ranks), PATIENCE_S)
    first = port_of(site)
    with taken(first):
        go.touch()
        seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    assert port_of(site) != first
    assert check_steps(trace, Options(iterations=40)) == [ranks] * 40
