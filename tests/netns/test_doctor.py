"""`beamer doctor` on a host and on a machine with switches, each with real faults that are fixed by what it says."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import beamer.cli
from controller.identity.authority import Authority, KeyFiles, Subject
from tests.netns.lab import Lab
from tests.support.commands import run_here
from tests.support.namespaces import (
    Namespace,
    add_namespace,
    entered,
    namespace_prefix,
    remove_abandoned_namespaces,
)

pytestmark = pytest.mark.netns

DAY = timedelta(days=1)
LARGE, SMALL = 1500, 1400
HERE, THERE = "10.77.0.1", "10.77.0.2"


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, Namespace]]:
    """Two hosts at a bridge in the middle, each with interface `data`; return one host and the middle."""
    remove_abandoned_namespaces()
    prefix = namespace_prefix()
    here, middle, there = (Namespace(prefix + name) for name in ("a", "m", "b"))
    with ExitStack() as stack:
        for space in (here, middle, there):
            add_namespace(space.name)
            stack.callback(subprocess.run, ["ip", "netns", "del", space.name], check=False, capture_output=True)
        middle.run("ip", "link", "add", "br0", "type", "bridge")
        for space, port, address in ((here, "p1", HERE), (there, "p2", THERE)):
            middle.run("ip", "link", "add", port, "type", "veth", "peer", "name", "data", "netns", space.name)
            middle.run("ip", "link", "set", port, "master", "br0", "up")
            space.run("ip", "address", "add", f"{address}/24", "dev", "data")
            space.run("ip", "link", "set", "data", "up")
        middle.run("ip", "link", "set", "br0", "up")
        yield here, middle


def examined(namespace: str, code: int, *arguments: str, env: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return what the command finds in a network namespace, by check."""
    with entered(namespace):
        done = run_here(beamer.cli.main, "doctor", *arguments, "--json", env={**os.environ, **env})
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        found.setdefault(check["check"], []).append(check)
    return found


def verdicts(found: dict[str, list[dict[str, Any]]], *checks: str) -> dict[str, str]:
    """Return the verdicts of checks, those of one joined."""
    return {check: ", ".join(one["verdict"] for one in found[check]) for check in checks}


def agent_files(directory: Path, ends: datetime) -> tuple[KeyFiles, list[str]]:
    """Return the certificate of an agent, and the options that name its files."""
    authority = Authority.load(directory) if (directory / "ca.pem").exists() else Authority.make(directory, ends - 400 * DAY)
    files = authority.issue(Subject("agent-h1", ("spiffe://beamer/agent/h1",)), ends - 365 * DAY, ends)
    named = {"--ca": authority.certificate, "--cert": files.certificate, "--key": files.key}
    return files, [part for option, path in named.items() for part in (option, str(path))]


def test_a_hosts_faults_are_named_and_gone_once_they_are_fixed_as_it_says(
    spaces: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    here, middle = spaces
    here.run("ip", "link", "set", "lo", "up")
    files, options = agent_files(tmp_path, datetime.now(UTC) - DAY)
    here.run("tc", "qdisc", "add", "dev", "data", "root", "handle", "7:", "pfifo")
    middle.run("ip", "link", "set", "p2", "mtu", str(SMALL))
    command = [
        "host",
        "--name",
        "h1",
        "--interface",
        "data",
        "--peer",
        THERE,
        "--attach",
        str(tmp_path / "agent.sock"),
        *options,
    ]
    env = {"BEAMER_URL": "https://127.0.0.1:8657"}
    faulty = ("root qdisc", "path", "certificates", "controller", "agent")

    found = examined(here.name, 1, *command, env=env)
    assert verdicts(found, *faulty) == {**dict.fromkeys(faulty, "fault"), "certificates": "ok, fault"}
    sound = ("queues", "nftables", "capabilities")
    assert verdicts(found, *sound) == dict.fromkeys(sound, "ok")
    assert found["offloads"][0]["fix"].startswith("ethtool -K data tx off")
    assert "root queueing discipline of another program (pfifo 7:)" in found["root qdisc"][0]["found"]
    assert found["path"][0]["found"] == (f"packets of {LARGE} bytes do not pass from data to {THERE}, and those of {SMALL} do")
    assert f"{files.certificate} (--cert) has expired" in found["certificates"][1]["found"]
    assert "nothing listens there" in found["controller"][0]["found"]

    here.run(*found["root qdisc"][0]["fix"].partition(",")[0].split())
    here.run(*found["path"][0]["fix"].partition(", or: ")[2].partition(" on all hosts")[0].split())
    agent_files(tmp_path, datetime.now(UTC) + 90 * DAY)
    fixed = examined(here.name, 1, *command, env=env)
    assert verdicts(fixed, *faulty) == {
        "root qdisc": "ok",
        "path": "ok",
        "certificates": "ok, ok",
        "controller": "fault",
        "agent": "fault",
    }


def test_a_switchs_faults_are_named_and_gone_once_they_are_fixed_as_it_says(lab: Lab, tmp_path: Path) -> None:
    lab.run("ovs-vsctl", "set-fail-mode", "l1", "standalone", "--", "set", "bridge", "l1", "protocols=OpenFlow10")
    lab.run("ip", "link", "set", "l1-eth1", "txqueuelen", "0", "mtu", str(SMALL))
    command = ["switch", "--bridge", "l1", "--attach", str(tmp_path / "agent.sock")]

    found = examined(lab.prefix, 1, *command, env=lab.env)
    faulty = ("fail mode", "protocols", "MTU", "controllers", "buffers")
    assert verdicts(found, *faulty, "daemons", "datapath id", "datapath") == {
        **dict.fromkeys(faulty, "fault"),
        **dict.fromkeys(("daemons", "datapath id", "datapath"), "ok"),
    }
    assert "fault" in [one["verdict"] for one in found["queue length"]]
    for check in ("fail mode", "protocols", "MTU", "queue length"):
        for one in found[check]:
            if one["verdict"] == "fault":
                lab.run(*one["fix"].partition(",")[0].split())
    fixed = examined(lab.prefix, 1, *command, env=lab.env)
    assert verdicts(fixed, "fail mode", "protocols", "MTU") == dict.fromkeys(("fail mode", "protocols", "MTU"), "ok")
    assert {one["verdict"] for one in fixed["queue length"]} == {"ok"}
    with entered(lab.prefix):
        refused = run_here(beamer.cli.main, "doctor", "switch", "--bridge", "l11", env={**os.environ, **lab.env})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--bridge: got 'l11', expected one of l1, l2" in refused.stderr
