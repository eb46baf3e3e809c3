"""Jobs in other network namespaces and behind a remote shell."""

import getpass
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.engines.local import Launcher, LocalNode, MininetHost, NetworkNamespace, Ssh
from beamer.errors import EngineError
from beamer.gpu.engine import RunState
from beamer.testing.trainer import Options
from tests.processes.site import Site, on, read, until
from tests.processes.test_local_engine import check_steps
from tests.support.namespaces import cabled_namespaces

SSHD = Path("/usr/sbin/sshd")
SSHD_EMPTY = Path("/run/sshd")  # in which it confines itself; its service makes it


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Return two namespaces with a cable between them: 10.77.0.1 and 10.77.0.2."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    with cabled_namespaces("a", "b") as (one, two):
        yield one.name, two.name


def lives_across(site: Site, launchers: tuple[Launcher, Launcher], addresses: tuple[str, str]) -> None:
    """Let a job live on two nodes, through every call."""
    site.nodes = tuple(
        LocalNode(name, 2, launcher=launcher, address=address)
        for name, launcher, address in zip(("one", "two"), launchers, addresses, strict=True)
    )
    trace = site.trainer("job", 400, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    assert [node.name for node in engine.nodes()] == ["one", "two"]
    engine.start("job", on("one", "two"))
    at = site.until_step(engine, "job")
    engine.suspend("job")
    assert site.see(engine, "job").state is RunState.SUSPENDED
    engine.resume("job")
    site.hold("job", 200)
    site.until_step(engine, "job", beyond=at + 5)
    engine.resize("job", on("one", "two", "two"))
    site.release("job")
    site.until_state(engine, "job", RunState.FINISHED)
    assert sorted(set(check_steps(trace, Options(iterations=400)))) == [2, 3]


def test_in_network_namespaces(site: Site, namespaces: tuple[str, str]) -> None:
    launchers = (NetworkNamespace(namespaces[0]), NetworkNamespace(namespaces[1]))
    lives_across(site, launchers, ("10.77.0.1", "10.77.0.2"))


def test_in_mininet_hosts(site: Site, namespaces: tuple[str, str]) -> None:
    if not shutil.which("mnexec"):
        pytest.skip("mnexec is not installed")
    shells = [subprocess.Popen(["ip", "netns", "exec", name, "sleep", "1000"]) for name in namespaces]
    try:
        until(lambda: all(b"sleep" in read(shell.pid, "comm") for shell in shells), "both namespaces to be entered")
        lives_across(site, (MininetHost(shells[0].pid), MininetHost(shells[1].pid)), ("10.77.0.1", "10.77.0.2"))
    finally:
        for shell in shells:
            shell.kill()
            shell.wait()


def stub(directory: Path) -> Path:
    """Return a program that takes ssh's arguments; it reaches the hosts that are files beside it."""
    program = directory / "stub-ssh"
    program.write_text(
        '#!/bin/sh\n[ "$1 $2" = "-o BatchMode=yes" ] && [ -e "$(dirname "$0")/$3" ] || exit 255\nexec sh -c "$4"\n'
    )
    program.chmod(0o755)
    return program


def test_through_a_remote_shell(site: Site) -> None:
    launcher = Ssh("elsewhere", program=str(stub(site.root)))
    (site.root / "elsewhere").touch()
    site.nodes = (
        LocalNode("one", 2),
        LocalNode("two", 2, launcher=launcher, root=str(site.root / "of two"), python=sys.executable),
    )
    trace = site.trainer("job", 400, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("two", "one"))
    at = site.until_step(engine, "job")
    assert list(site.root.glob("of two/*/two/state")), "the supervisor keeps its files there"
    engine.suspend("job")
    engine.resume("job")
    site.hold("job", 200)
    site.until_step(engine, "job", beyond=at)
    engine.resize("job", on("two"))
    site.release("job")
    site.until_state(engine, "job", RunState.FINISHED)
    assert sorted(set(check_steps(trace, Options(iterations=400)))) == [1, 2]


def test_a_node_that_cannot_be_reached(site: Site) -> None:
    site.nodes = (LocalNode("one", 1), LocalNode("two", 1, launcher=Ssh("nowhere", program=str(stub(site.root)))))
    site.trainer("job", 100)
    engine = site.engine()
    assert [node.name for node in engine.nodes()] == ["one"]
    with pytest.raises(EngineError, match=r"job: start: node two does not respond: .*exited with 255"):
        engine.start("job", on("two"))
    assert "job" not in engine.report(), "nothing is recorded"
    (site.root / "nowhere").touch()
    until(lambda: "two" in [node.name for node in engine.nodes()], "the node to come up")
    engine.start("job", on("two"))
    site.until_state(engine, "job", RunState.FINISHED)


def test_a_node_that_falls_silent_is_asked_seldom_and_comes_back(site: Site) -> None:
    program, silent, calls = stub(site.root), site.root / "silent", site.root / "calls"
    program.write_text(f'#!/bin/sh\necho "$4" >> {calls}\n[ -e {silent} ] && exec sleep 60\nexec sh -c "$4"\n')
    site.nodes = (LocalNode("one", 1), LocalNode("two", 1, launcher=Ssh("two", program=str(program)), python=sys.executable))
    site.trainer("job", 10**6, "--pause-s", "0.01")
    engine = site.engine()
    engine.start("job", on("two"))
    at = site.until_step(engine, "job")
    silent.touch()
    until(lambda: [node.name for node in engine.nodes()] == ["one"], "the node to be missed")
    known_s, before = time.monotonic(), calls.read_text().splitlines()
    for _ in range(10):
        assert "timed out" in site.see(engine, "job").exit
        with pytest.raises(EngineError, match=r"job: status on two: .*timed out"):
            engine.suspend("job")
    made = calls.read_text().splitlines()[len(before) :]
    assert set(made) <= {"true"}, "nothing is asked of it but whether it is there"
    assert len(made) <= 1 + (time.monotonic() - known_s) / 2.0
    silent.unlink()
    site.until_step(engine, "job", beyond=at)
    assert [node.name for node in engine.nodes()] == ["one", "two"]
    assert site.see(engine, "job").exit == ""


@pytest.fixture
def sshd(own_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Return ssh's options for an sshd of our own on a high port of the loopback interface."""
    if not SSHD.exists() or not shutil.which("ssh-keygen"):
        pytest.skip(f"{SSHD} is not installed")
    if os.geteuid() == 0 and not SSHD_EMPTY.is_dir():
        pytest.skip(f"sshd has never been started here: it needs {SSHD_EMPTY}")
    directory = tmp_path_factory.mktemp("sshd")  # not the site's, in which no process may be left
    for name in ("host", "user"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name))
    (directory / "keys").write_text((directory / "user.pub").read_text())
    settings = (
        f"HostKey={directory}/host", f"AuthorizedKeysFile={directory}/keys", f"PidFile={directory}/pid", "StrictModes=no",
        "UsePAM=no", "PermitRootLogin=yes", "ListenAddress=127.0.0.1",
    )  # fmt: skip
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", "-p", str(own_port), *(f"-o{one}" for one in settings)])
    options = (
        "-p",
        str(own_port),
        "-i",
        str(directory / "user"),
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    )
    try:
        command = Ssh(f"{getpass.getuser()}@127.0.0.1", options).wrap(("true",))
        until(lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0 or time.sleep(0.1), "sshd")
        yield options
    finally:
        server.terminate()
        server.wait()


def test_over_ssh(sshd: tuple[str, ...], site: Site) -> None:  # in this order: the site ends its jobs over ssh
    launcher = Ssh(f"{getpass.getuser()}@127.0.0.1", sshd)
    lives_across(site, (launcher, launcher), ("127.0.0.1", "127.0.0.1"))
