"""Whole agents with few capabilities, as root and as another user, beside workers that are somebody else's."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.network.protocol import Counters, WorkerId, Workers
from tests.netns.bench import Bench, eventually
from tests.netns.test_hostagent_attach import NOBODY, Trainer, lease_of, local, marked, marks, only_marked, settle
from tests.support.agent_doubles import agent_command

pytestmark = pytest.mark.netns

LEAST = ("net_admin", "sys_ptrace", "dac_read_search")
AGENT = 12345
"""A user without a name, as which an agent may run."""


@pytest.fixture
def agent_socket() -> Iterator[Path]:
    """Return a path that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="beamer-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "agent.sock"


def limited(uid: int, *capabilities: str) -> tuple[str, ...]:
    """Return what starts a command as user `uid` with these capabilities and no others."""
    kept = ",".join(("-all", *(f"+{name}" for name in capabilities)))
    if not uid:
        return ("setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}")
    user = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    bound = ",".join((kept, "+setuid", "+setgid"))  # setpriv still has to change the user
    return ("setpriv", *user, f"--bounding-set={bound}", f"--inh-caps={kept}", f"--ambient-caps={kept}", "--no-new-privs")


def somebody_elses(bench: Bench, agent_socket: Path) -> Trainer:
    """Start a worker that was another user's when its program began: /proc shows it as that user's."""
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    return Trainer(bench, agent_socket, rank=None, prefix=user)


def start(bench: Bench, at: Path, uid: int, *capabilities: str, expiry_s: float = 60) -> tuple["subprocess.Popen[str]", Path]:
    """Start an agent as user `uid`; return it with the file of what it logs."""
    log = at.with_suffix(".log")
    for directory in (bench.state.path, at.parent):
        os.chown(directory, uid, uid)
    redirected = ("sh", "-c", f'exec "$@" 2>{log}', "sh", *limited(uid, *capabilities))
    return bench.agent("--attach", str(at), prefix=redirected, expiry_s=expiry_s), log


@pytest.mark.parametrize("uid", [0, AGENT])
def test_an_agent_with_the_least_capabilities_does_all_of_its_work(bench: Bench, agent_socket: Path, uid: int) -> None:
    agent, log = start(bench, agent_socket, uid, *LEAST, expiry_s=3)
    attached = Trainer(bench, agent_socket, uid=NOBODY)
    other = somebody_elses(bench, agent_socket)
    workers = local(lease_of(bench, attached.pid).process), local(other.described(), job="s/other")
    assert bench.controller.applied(bench.assign(1, *workers)).error is None
    marked(bench, attached, other)
    assert len(bench.classes()) == 10
    other.tell("send 100000")
    bench.controller.wait(Counters, lambda m: any(w.sent_bytes >= 100_000 for w in m.workers))
    assert bench.controller.applied(bench.assign(2, workers[1])).changes == 1, "marks come off as well"
    assert only_marked(bench) == {other.port}
    assert "CAP_" not in log.read_text()
    assert "packets sent twice" not in log.read_text()
    assert "beamer_hold" in bench.here.run("nft", "list", "tables")
    agent.kill()
    agent.wait()
    eventually(lambda: not bench.classes())  # the guard that it has left may do so, too
    eventually(lambda: not bench.state.held("guard"))


def test_a_users_agent_removes_its_queues_when_told(bench: Bench, agent_socket: Path) -> None:
    agent, _ = start(bench, agent_socket, AGENT, *LEAST)
    assert bench.controller.applied(bench.assign(1)).error is None
    agent.terminate()
    assert agent.wait(10) == 0
    command = agent_command(sys.executable, "h1", "", str(bench.state.path.parent), "--remove")
    bench.here.run(*limited(AGENT, *LEAST), *command)
    assert not bench.classes()


@pytest.mark.parametrize(("absent", "named"), [("sys_ptrace", "CAP_SYS_PTRACE"), ("dac_read_search", "CAP_DAC_READ_SEARCH")])
def test_a_missing_capability_is_said_at_start_and_of_every_worker_that_it_keeps_unmarked(
    bench: Bench, agent_socket: Path, absent: str, named: str
) -> None:
    _, log = start(bench, agent_socket, 0, *(name for name in LEAST if name != absent))
    assert [line for line in log.read_text().splitlines() if f"no {named}: " in line and "WARNING" in line]
    own = Trainer(bench, agent_socket, rank=None, prefix=limited(0, *(name for name in LEAST if name != absent)))
    other = somebody_elses(bench, agent_socket)
    workers = local(own.described()), local(other.described(), job="s/other", rank=1)
    assert bench.controller.applied(bench.assign(1, *workers)).error is None
    seen = bench.controller.wait(Workers, lambda m: bool(m.refused))
    assert [worker for worker, _ in seen.refused] == [WorkerId(job="s/other", rank=1)]
    assert named in seen.refused[0][1]
    marked(bench, own)
    settle(bench)
    assert only_marked(bench) == {own.port}
    assert other.port in marks(bench)
    assert len(bench.classes()) == 10


@pytest.mark.parametrize("uid", [0, AGENT])
def test_an_agent_that_may_not_manage_queues_does_not_start(bench: Bench, agent_socket: Path, uid: int) -> None:
    os.chown(bench.state.path, uid, uid)
    prefix = limited(uid, *LEAST[1:])
    command = agent_command(sys.executable, "h1", bench.controller.url, str(bench.state.path.parent))
    agent = bench.here.popen(*prefix, *command, stderr=subprocess.PIPE)
    _, said = agent.communicate(timeout=20)
    assert agent.returncode == 2
    assert said.count("\n") == 1
    assert "CAP_NET_ADMIN" in said
    assert list(bench.state.path.iterdir()) == []
