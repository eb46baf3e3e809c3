"""A port that another program takes, after it was handed out and before rank 0 listens on it, costs a job nothing."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.engines.local import LaunchSpec, LocalNode
from beamer.engines.local.job import MAX_TAKEN_PORTS
from beamer.engines.local.record import load
from beamer.engines.local.supervisor.ports import KeptPort, is_taken
from beamer.gpu.engine import RunState
from beamer.testing.trainer import Options
from tests.processes.site import ONE_THREAD, Site, on, until
from tests.processes.test_local_engine import check_steps
from tests.support.checkout import ROOT

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
# Binds and connects until the kernel has no port left, and prints how many it had, none of them the one that is kept.
FEW_PORTS = """
import socket, subprocess
from pathlib import Path
from beamer.engines.local.supervisor.ports import KeptPort

Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40063")
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
kept = KeptPort()
kept.take()
server = socket.create_server(("127.0.0.1", 30000), backlog=100)

def plain(one):
    one.bind(("127.0.0.1", 0))

def reusing(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))

def connecting(one):
    one.connect(("127.0.0.1", 30000))

for ask in (plain, reusing, connecting):
    had = []
    while True:
        one = socket.socket()
        try:
            ask(one)
        except OSError:
            break
        had.append(one)
    assert kept.number not in [one.getsockname()[1] for one in had]
    print(len(had))
    for one in had:
        one.close()
"""
# Rank 0 as a server that does not set SO_REUSEADDR.
STERN = """
import json, os, socket
with socket.socket() as one:
    one.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
    one.listen()
    print(json.dumps({"iteration": 1, "loss": 0.5}))
"""
OWN_TROUBLE = """
import socket, sys
open(sys.argv[1], "a").write("x")
with socket.socket() as one, socket.socket() as other:
    one.bind(("127.0.0.1", 0))
    other.bind(one.getsockname())
"""


def waiting(site: Site, job: str, module: str, *arguments: str) -> tuple[Path, Path]:
    """Say that a job is a training program that waits for a file; return its trace and the file."""
    trace, go = site.root / f"{job}.trace", site.root / "go"
    command = (sys.executable, "-c", WAITING, str(go), module, "--trace", str(trace), *arguments)
    site.specs[job] = LaunchSpec(command, cwd=str(ROOT), env=ONE_THREAD, batch_size=64)
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


def test_a_port_is_kept_from_whoever_asks_for_any_and_not_from_rank_0() -> None:
    kept = KeptPort()
    first = kept.take()
    second = kept.take()
    assert kept.number == second
    with taken(second):  # as its rank 0 does
        assert is_taken(second)
    with pytest.raises(OSError, match="in use"), taken(second, reuse=False):
        pass
    assert not is_taken(second), "who keeps it does not listen"
    kept.release()
    assert kept.number == 0
    with taken(first, reuse=False), taken(second, reuse=False):
        pass


def test_the_kernel_gives_a_kept_port_to_nobody() -> None:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a network of its own, whose ports are few, needs root")
    done = subprocess.run(["unshare", "-n", sys.executable, "-c", FEW_PORTS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["63", "63", "63"], "all of 64 but the one that is kept"


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


def test_a_taken_port_of_a_job_on_two_nodes(site: Site) -> None:
    site.nodes = (LocalNode("one", 1), LocalNode("two", 1))
    trace, go = waiting(site, "job", "beamer.testing.trainer", "--iterations", "40")
    engine = site.engine()
    engine.start("job", on("one", "two"), PATIENCE_S)
    first = port_of(site)
    with taken(first):
        Path(f"{go}-1").touch()  # rank 1 meets the other program, and waits for it to speak
        time.sleep(0.2)
        go.touch()
        seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    assert port_of(site) != first
    assert check_steps(trace, Options(iterations=40)) == [2] * 40


def test_another_program_that_hangs_up_on_rank_1_is_recognised(site: Site) -> None:
    trace, go = waiting(site, "job", "beamer.testing.trainer", "--iterations", "40")
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"), PATIENCE_S)
    first = port_of(site)
    with taken(first) as other:
        Path(f"{go}-1").touch()
        other.accept()[0].close()  # rank 1 fails before rank 0 has tried to listen
        until(lambda: site.see(engine, "job") and port_of(site) not in (0, first), "another port")
        go.touch()
        seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    assert f"another program has port {first}" not in seen.exit, "what became of it is of no interest at its end"
    assert check_steps(trace, Options(iterations=40)) == [2] * 40


def test_a_rank_0_that_cannot_have_a_kept_port_is_given_another(site: Site) -> None:
    site.program("job", STERN)
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    assert seen.launch == 2


def test_a_program_that_has_trouble_with_a_port_of_its_own_fails_in_the_end(site: Site) -> None:
    starts = site.root / "starts"
    site.program("job", OWN_TROUBLE)
    site.specs["job"] = replace(site.specs["job"], command=(*site.specs["job"].command, str(starts)))
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FAILED
    assert "in use" in seen.exit
    assert len(starts.read_text()) == MAX_TAKEN_PORTS + 1


def test_a_port_that_is_taken_after_training_has_begun_is_none_of_it(site: Site) -> None:
    site.program("job", 'print(\'{"iteration": 1, "loss": 1}\', flush=True)\nraise OSError("Address already in use")')
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    seen = site.until_state(engine, "job", RunState.FAILED)
    assert seen.launch == 1


def test_a_job_that_loses_its_port_while_it_is_suspended_waits_for_its_gpus(site: Site, group: str) -> None:
    trace, go = waiting(site, "job", "beamer.testing.trainer", "--iterations", "40")
    engine = site.engine()
    place = on("localhost", "localhost")
    engine.start("job", place, PATIENCE_S)
    first = port_of(site)
    engine.suspend("job")
    with taken(first):
        os.kill(site.ranks()[0], signal.SIGKILL)
        site.until_state(engine, "job", RunState.PARKED)
        engine.start("job", place)  # in the process group that was frozen when the run died
        go.touch()
        seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    assert check_steps(trace, Options(iterations=40)) == [2] * 40
