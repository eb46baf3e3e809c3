"""Controller and agents die mid-run: training continues, connections hold, what restarts changes nothing that still holds."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from beamer.network.fabric import Host
from beamer.workloads.scenario import Scenario
from eval.faults.observation import queue_changes, read_rules
from topologies.emulation.exchange import RunMeasurements
from topologies.emulation.supervisor import EmulatedRun

pytestmark = [pytest.mark.emulation, pytest.mark.alone]

DEAD_S = 2.0
REACHABLE_MS = 500
PORT = 9999
SERVER = f"""
import socketserver
socketserver.TCPServer(("", {PORT}), socketserver.BaseRequestHandler).serve_forever()
"""
CLIENT = f"""
import socket, sys
for address in sys.argv[1:]:
    socket.create_connection((address, {PORT}), 5).close()
"""


@pytest.mark.long
def test_controller_killed_mid_run(lasting_run: EmulatedRun, lasting: Scenario) -> None:
    run = lasting_run
    _begin(run, lasting)
    connections, rules = _connections(run, lasting), read_rules(run, lasting.fabric.switch)
    plan, jobs = _get(run, "/v1/plan"), _jobs(run)
    pace = _carried_in(run, lasting, DEAD_S)

    _kill(run, "beamer-controller")
    dead = _carried_in(run, lasting, DEAD_S)
    assert dead > pace / 2, "training slowed down with the controller dead"
    run.restart("beamer-controller")
    _await(lambda: _get(run, "/v1/plan")["installed_everywhere"])

    recovered = _jobs(run)
    assert recovered.keys() == jobs.keys()
    assert all(recovered[key]["done"] >= jobs[key]["done"] for key in jobs)
    assert {job["status"] for job in recovered.values()} == {"running"}, "the scenario is too short for this test"
    assert _get(run, "/v1/plan")["jobs"] == plan["jobs"]
    after = read_rules(run, lasting.fabric.switch)
    assert after.ages.keys() == rules.ages.keys() != set()
    assert rules.disturbed(after) == [], "rules were installed anew"
    broken = connections - _connections(run, lasting)
    assert len(broken) == 0, f"connections broke: {broken}"

    _assert_complete(run.finish_studies(150), lasting)


@pytest.mark.long
def test_agents_killed_mid_run(lasting_run: EmulatedRun, lasting: Scenario, tmp_path: Path) -> None:
    run = lasting_run
    switches = next(s.agent for s in lasting.fabric.switches if s.agent)
    _begin(run, lasting)
    connections, marks = _connections(run, lasting), _marks(run, lasting.fabric.host["h1"])
    sent = _class_bytes(run)
    assert any(mark != "0" for mark in marks.values())

    with queue_changes(run, "h1", tmp_path / "h1") as on_host, queue_changes(run, None, tmp_path / "switches") as on_switches:
        pace = _sent_in(run, "h1", DEAD_S)
        _kill(run, "agent-h1")
        _kill(run, f"agent-{switches}")
        assert _sent_in(run, "h1", DEAD_S) > pace / 2, "the host's traffic slowed down with the agents dead"
        for agent in ("h1", switches):
            run.restart(f"agent-{agent}")
        _await(lambda: _acknowledged(run, "h1") and _acknowledged(run, switches))
        kept = _class_bytes(run)
        assert all(kept[klass] >= count for klass, count in sent.items()), "a class was made anew"
        assert on_host() == [], "the restarted agent changed its host's queues"
        assert on_switches() == [], "the restarted agent changed the switches' queues"

    assert {job["status"] for job in _jobs(run).values()} == {"running"}, "the scenario is too short for this test"
    assert _marks(run, lasting.fabric.host["h1"]) == marks, "the restarted agent marked connections anew"
    assert not connections - _connections(run, lasting)
    _assert_complete(run.finish_studies(150), lasting)


def test_forwards_with_the_controller_dead_for_longer_than_the_neighbour_timeout(run: EmulatedRun, small: Scenario) -> None:
    for host in small.fabric.host:
        run.execute("sysctl", "-qw", f"net.ipv4.neigh.{host}-eth0.base_reachable_time_ms={REACHABLE_MS}", host=host)
        _forget(run, host)  # An address that was resolved before keeps its first time-out.
    with ExitStack() as servers:
        for host in small.fabric.host:
            servers.enter_context(_beside(run, host, sys.executable, "-c", SERVER))
        _await(lambda: all(f":{PORT} " in run.execute("ss", "-Hltn", host=host) for host in small.fabric.host))
        _connect_all(run, small)
        assert all(
            _neighbours(run, src.name).keys() == {d.ip for d in small.fabric.hosts if d != src} for src in small.fabric.hosts
        )
        _kill(run, "beamer-controller")
        _await(lambda: not any("REACHABLE" in _neighbours(run, host).values() for host in small.fabric.host))
        for host in small.fabric.host:
            _forget(run, host)
        _connect_all(run, small)
    for src, dst in permutations(small.fabric.hosts, 2):
        assert dst.ip in _neighbours(run, src.name)


def _begin(run: EmulatedRun, scenario: Scenario) -> None:
    """Start the studies and wait until all first stages train under a plan that is in force everywhere."""
    run.start_studies()
    _await(
        lambda: (
            len(jobs := _jobs(run)) == len(scenario.studies)
            and all(job["done"] >= 1 for job in jobs.values())
            and _get(run, "/v1/plan")["installed_everywhere"]
        ),
        60,
    )


def _await(condition: Callable[[], Any], patience_s: float = 40.0) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if condition():
                return
        except subprocess.CalledProcessError:  # a controller that is not there does not answer
            pass
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.2)


def _kill(run: EmulatedRun, part: str) -> None:
    os.kill(run.pid(part), signal.SIGKILL)


def _get(run: EmulatedRun, path: str) -> Any:
    """Ask the controller from inside the run's namespace."""
    code = f"from urllib.request import urlopen; print(urlopen('{run.parts['url']}{path}', timeout=5).read().decode())"
    return json.loads(run.execute(sys.executable, "-c", code))


def _jobs(run: EmulatedRun) -> dict[str, dict[str, Any]]:
    studies = _get(run, "/v1/studies")["studies"]
    return {trial["key"]: trial for study in studies for trial in study["trials"]}


def _acknowledged(run: EmulatedRun, agent: str) -> bool:
    plan = _get(run, "/v1/plan")
    return bool(plan["installed"]["agents"][agent] and plan["installed_everywhere"])


def _assert_complete(measured: RunMeasurements, scenario: Scenario) -> None:
    """Assert that every trial reached all its targets; a broken connection would have ended its trainer."""
    trials = [trial for study in measured.studies for trial in study["trials"]]
    targets = [target for trial in trials for target in trial["targets"]]
    assert len(targets) == sum(len(stage.jobs) for study in scenario.studies for stage in study.stages)
    assert all(target["reached_s"] is not None for target in targets)
    assert {attempt["reason"] for trial in trials for attempt in trial["attempts"]} == {"paused"}


def _connections(run: EmulatedRun, scenario: Scenario) -> set[tuple[str, str]]:
    """Return the two ends of every established data connection, as each host sees it, by `ss`."""
    found = set()
    for host in scenario.fabric.hosts:
        for line in run.execute("ss", "-Htn", "state", "established", host=host.name).splitlines():
            local, remote = line.split()[2:4]
            if local.startswith(host.ip):
                found.add((local, remote))
    assert found
    return found


def _marks(run: EmulatedRun, host: Host) -> dict[tuple[str, str], str]:
    """Return the class that each of the host's data connections is marked with."""
    found = {}
    for line in run.execute("ss", "-HtnO", "--tos", "state", "established", host=host.name).splitlines():
        local, remote = line.split()[2:4]
        if local.startswith(host.ip) and (mark := re.search(r"class_id:(\S+)", line)):
            found[local, remote] = mark[1]
    return found


def _carried_in(run: EmulatedRun, scenario: Scenario, seconds: float) -> float:
    """Return the bytes per second that all switches sent over `seconds` from now."""
    files = [
        f"/sys/class/net/{link.interface}/statistics/tx_bytes"
        for link in scenario.fabric.links
        if link.src in scenario.fabric.switch
    ]
    return _rate(lambda: sum(map(int, run.execute("cat", *files).split())), seconds)


def _sent_in(run: EmulatedRun, host: str, seconds: float) -> float:
    """Return the bytes per second that `host` sent over `seconds` from now."""
    command = ("ip", "-s", "-j", "link", "show", "dev", f"{host}-eth0")
    return _rate(lambda: int(json.loads(run.execute(*command, host=host))[0]["stats64"]["tx"]["bytes"]), seconds)


def _rate(read: Callable[[], int], seconds: float) -> float:
    first, began = read(), time.monotonic()
    time.sleep(seconds)
    return (read() - first) / (time.monotonic() - began)


@contextmanager
def _beside(run: EmulatedRun, host: str, *command: str) -> Iterator[None]:
    """Run `command` on `host` for as long as the block lasts."""
    process = subprocess.Popen([*run.enter(host), *command])
    try:
        yield
        assert process.poll() is None, f"{command[0]} ended early"
    finally:
        process.kill()
        process.wait()


def _class_bytes(run: EmulatedRun) -> dict[str, int]:
    """Return the bytes that each class of h1's port has sent since it was made."""
    text = run.execute("tc", "-s", "class", "show", "dev", "h1-eth0", host="h1")
    found = {klass: int(count) for klass, count in re.findall(r"class htb (\S+) .*?\n Sent (\d+) bytes", text)}
    assert any(found.values())
    return found


def _connect_all(run: EmulatedRun, scenario: Scenario) -> None:
    for host in scenario.fabric.hosts:
        run.execute(
            sys.executable, "-c", CLIENT, *(other.ip for other in scenario.fabric.hosts if other != host), host=host.name
        )


def _forget(run: EmulatedRun, host: str) -> None:
    run.execute("ip", "neigh", "flush", "dev", f"{host}-eth0", host=host)
    assert not _neighbours(run, host)


def _neighbours(run: EmulatedRun, host: str) -> dict[str, str]:
    """Return the state of every neighbour whose address `host` has resolved, by IP address."""
    entries = json.loads(run.execute("ip", "-j", "neigh", "show", "dev", f"{host}-eth0", host=host) or "[]")
    return {entry["dst"]: entry["state"][0] for entry in entries if "lladdr" in entry}
