"""Controller and agents die mid-run: training goes on, connections hold, and what restarts changes nothing that still holds."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import permutations
from typing import Any

import pytest

from beamer.scenario import Scenario
from topologies.emulation.supervisor import EmulatedRun

pytestmark = pytest.mark.emulation


def _get(run: EmulatedRun, path: str) -> Any:
    """Ask the controller from inside the run's namespace."""
    code = f"import httpx; print(httpx.get('{run.parts['url']}{path}', timeout=5).text)"
    return json.loads(run.execute(sys.executable, "-c", code))


def _progress(run: EmulatedRun) -> dict[str, int]:
    return {
        job["key"]: job["done"]
        for study in _get(run, "/v1/studies")["studies"]
        for stage in study["stages"]
        for job in stage["jobs"]
    }


def _connections(run: EmulatedRun, scenario: Scenario) -> set[tuple[str, str]]:
    """Return all established data connections, both ends, by `ss`."""
    found = set()
    for host in scenario.fabric.host:
        for line in run.execute("ss", "-Htn", "state", "established", host=host).splitlines():
            local, remote = line.split()[2:4]
            if local.startswith("10.77.") and remote.startswith("10.77."):
                found.add((local, remote))
    return found


def _rules(run: EmulatedRun, scenario: Scenario) -> dict[str, set[str]]:
    """Return every switch's rules with their age, so that a rule made anew is told from one that stayed."""
    rules = {}
    for switch in scenario.fabric.switch:
        text = run.execute("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", switch)
        rules[switch] = {line.strip() for line in text.splitlines() if "table=" in line or "priority" in line}
    return rules


def _kill(run: EmulatedRun, part: str) -> None:
    os.kill(run.pid(part), signal.SIGKILL)


def _await(condition: Any, patience_s: float = 15.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


def test_controller_killed_mid_run(run: EmulatedRun, small: Scenario) -> None:
    run.start_studies()
    _await(lambda: len(_get(run, "/v1/plan")["jobs"]) == 4 and min(_progress(run).values()) >= 1)
    before = _connections(run, small)
    studies, plan = _get(run, "/v1/studies"), _get(run, "/v1/plan")
    assert before
    _kill(run, "beamer-controller")
    bytes_before = _carried(run, small)
    time.sleep(1.0)
    assert _carried(run, small) > bytes_before, "training stopped with the controller"
    rules = _rules(run, small)
    run.restart("beamer-controller")
    _await(lambda: _answers(run))
    again = _get(run, "/v1/studies")
    assert [s["name"] for s in again["studies"]] == [s["name"] for s in studies["studies"]]
    known = {job["key"] for study in studies["studies"] for stage in study["stages"] for job in stage["jobs"]}
    assert known <= {job["key"] for study in again["studies"] for stage in study["stages"] for job in stage["jobs"]}
    assert _get(run, "/v1/plan")["generation"] >= plan["generation"]
    gone = {switch: rules[switch] - left for switch, left in _rules(run, small).items()}
    static = {
        switch: {rule for rule in lost if "metadata" not in rule and "tp_src" not in rule} for switch, lost in gone.items()
    }
    assert not any(static.values()), "rules that still held were replaced"
    run.finish_studies(120)
    logs = [run.log(f"trainers-{host}") for host in small.fabric.host]
    assert not any("Traceback" in log for log in logs), "a connection broke"


def test_a_restarted_controller_installs_the_same_plan_without_a_change(run: EmulatedRun, small: Scenario) -> None:
    plan = _get(run, "/v1/plan")
    rules = _ages(run, small)
    _kill(run, "beamer-controller")
    run.restart("beamer-controller")
    _await(lambda: _answers(run) and _get(run, "/v1/plan")["installed_everywhere"])
    assert _get(run, "/v1/plan")["jobs"] == plan["jobs"]
    later = _ages(run, small)
    for switch, ages in rules.items():
        assert later[switch].keys() == ages.keys()
        assert all(later[switch][rule] > age for rule, age in ages.items()), "a rule was installed anew"


def test_agent_killed_mid_run(run: EmulatedRun, small: Scenario) -> None:
    run.start_studies()
    _await(lambda: len(_get(run, "/v1/plan")["jobs"]) == 4 and min(_progress(run).values()) >= 1)
    tree = _tree(run)
    _kill(run, "agent-h1")
    sent = _carried(run, small)
    time.sleep(0.5)
    assert _carried(run, small) > sent, "the host's traffic stopped with its agent"
    assert _tree(run) == tree
    run.restart("agent-h1")
    run.finish_studies(120)
    assert not any("Traceback" in run.log(f"trainers-{host}") for host in small.fabric.host)
    assert _tree(run) == tree


def test_a_restarted_agent_reconciles_with_zero_changes(run: EmulatedRun) -> None:
    tree = _tree(run)
    _kill(run, "agent-h1")
    run.restart("agent-h1")
    _await(lambda: re.search(r"applied.*changes.{0,8}\b0\b", run.log("agent-h1").rpartition("start")[2]) is not None)
    assert _tree(run) == tree


def test_forwards_with_the_controller_dead_for_longer_than_the_neighbour_timeout(run: EmulatedRun, small: Scenario) -> None:
    _kill(run, "beamer-controller")
    time.sleep(2)
    for host in small.fabric.host:
        run.execute("ip", "neigh", "flush", "dev", f"{host}-eth0", host=host)
        assert "10.77." not in run.execute("ip", "neigh", "show", "dev", f"{host}-eth0", host=host)
    for src, dst in permutations(small.fabric.hosts, 2):
        run.execute("ping", "-c", "1", "-W", "2", dst.ip, host=src.name)
        assert dst.mac in run.execute("ip", "neigh", "show", "dev", f"{src.name}-eth0", host=src.name)


def _answers(run: EmulatedRun) -> bool:
    try:
        return bool(_get(run, "/v1/health")["status"] == "ok")
    except (subprocess.CalledProcessError, KeyError):
        return False


def _carried(run: EmulatedRun, scenario: Scenario) -> int:
    return sum(
        int(run.execute("cat", f"/sys/class/net/{link.interface}/statistics/tx_bytes"))
        for link in scenario.fabric.links
        if link.src in scenario.fabric.switch
    )


def _tree(run: EmulatedRun) -> str:
    return run.execute("tc", "class", "show", "dev", "h1-eth0", host="h1")


def _ages(run: EmulatedRun, scenario: Scenario) -> dict[str, dict[str, float]]:
    """Return the age in seconds of every rule of every switch."""
    ages: dict[str, dict[str, float]] = {}
    for switch in scenario.fabric.switch:
        text = run.execute("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch)
        ages[switch] = {}
        for line in text.splitlines():
            if found := re.search(r"duration=([0-9.]+)s", line):
                rule = re.sub(r"(duration|n_packets|n_bytes|idle_age|hard_age|reset_counts)=[^,]*,? ?", "", line)
                ages[switch][rule] = float(found[1])
    return ages
