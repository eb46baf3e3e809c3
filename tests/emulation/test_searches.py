"""Searches on real packets under a policy of each level: as simulated, and undisturbed by what is killed meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beamer.gpu.policies import gpu_policy
from beamer.network.policies import network_policy
from beamer.sim.joint import simulate_scenario
from beamer.workloads.joint import load
from tests.emulation.launches import LaunchMeter
from tests.emulation.leftovers import leftovers
from tests.emulation.repetition import RUNS, until_valid
from topologies.emulation.exchange import RunConfig
from topologies.emulation.searches import LAUNCH_S
from topologies.emulation.supervisor import EmulatedRun, emulated_run

SEARCHES = Path(__file__).parent / "searches.yaml"
RUN_PATIENCE_S = 300
KILLS = 12
TOLERANCE = 0.15

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(RUNS * RUN_PATIENCE_S + 100), pytest.mark.alone]


def _slow_starts(runs: list[dict[str, Any]], waited_s: float) -> list[str]:
    """Say that searches take longer than the tolerance where starts waited for more than half of what they are to take."""
    longer = max(run["mean_search_s"] / run["simulated"]["mean_search_s"] - 1 for run in runs)
    if longer <= TOLERANCE or waited_s <= LAUNCH_S / 2:
        return []
    return [f"searches take {longer:.1%} longer, and launched programs waited {waited_s:.2f} s of {LAUNCH_S} s for a processor"]


@pytest.mark.long
@pytest.mark.parametrize("policies", ["beamer", "fair,beamer"])
def test_searches_take_as_long_as_simulated(tmp_path: Path, policies: str) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "beamer.cli", "emulate", str(SEARCHES), "--json", str(figures)]
    options = ["--gpu-policy", "fifo", "--policies", policies]

    def emulate() -> tuple[list[dict[str, Any]], list[str]]:
        with LaunchMeter() as launches:
            done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=RUN_PATIENCE_S)
        assert done.returncode == 0, done.stderr
        print(done.stdout)
        runs = json.loads(figures.read_text())["runs"]
        findings = [f"{run['network_policy']}: {finding}" for run in runs for finding in run["findings"]]
        return runs, [*findings, *launches.findings(), *_slow_starts(runs, launches.mean_s)]

    runs = until_valid(emulate)
    assert [run["network_policy"] for run in runs] == policies.split(",")
    for run in runs:
        simulated = run["simulated"]
        for name in ("mean_search_s", "mean_sct_s", "network_bytes"):
            assert abs(run[name] / simulated[name] - 1) <= TOLERANCE, name
        assert {trial["key"]: trial["status"] for trial in run["trials"]} == {
            trial["key"]: trial["status"] for trial in simulated["trials"]
        }
        assert run["class_share_min"] >= 0.99
    assert runs[-1]["mean_search_s"] <= runs[0]["mean_search_s"]


@pytest.mark.long
def test_killed_anywhere_searches_end_as_if_undisturbed() -> None:
    scenario = load(SEARCHES)
    expected = simulate_scenario(scenario, gpu_policy("fifo"), network_policy("beamer"))
    rng = random.Random(7)
    due = ["controller", "agent", "engine", "rank"] * (KILLS // 4)
    rng.shuffle(due)
    with emulated_run(RunConfig(SEARCHES, "beamer", gpu_policy="fifo", joint="placement")) as run:
        before = leftovers(run.run.id)
        run.start_studies()
        deadline = time.monotonic() + RUN_PATIENCE_S
        while due and time.monotonic() < deadline:
            time.sleep(rng.uniform(0.5, 2.0))
            if _kill(run, due[-1], rng):
                due.pop()
        measured = run.finish_studies(RUN_PATIENCE_S)
        plan = _get(run, "/v1/plan")
    assert not due, "the searches took long enough to be disturbed"
    ended = {trial["key"]: trial["status"] for study in measured.studies for trial in study["trials"]}
    assert ended == {job.key: job.status.value for job in expected.jobs}
    assert {study["status"] for study in measured.studies} == {"ended"}
    assert plan["jobs"] == {}, "a class is left behind"
    assert not leftovers(run.run.id, before.namespaces)


def _kill(run: EmulatedRun, kind: str, rng: random.Random) -> bool:
    """Kill a part of a kind, and start it again where nobody else does; return whether there was one."""
    parts: dict[str, Any] = run.parts["processes"]
    if kind in ("controller", "agent"):
        part = rng.choice([part for part in parts if (part == "beamer-controller") == (kind == "controller")])
        os.kill(parts[part], signal.SIGKILL)
        run.restart(part)
        return True
    wanted = b"beamer.cli\0schedule" if kind == "engine" else b"topologies.emulation.program"
    found = [pid for pid in run.run.processes() + _ranks(run) if wanted in _command(pid)]
    if found:
        os.kill(rng.choice(found), signal.SIGKILL)
    return bool(found)


def _ranks(run: EmulatedRun) -> tuple[int, ...]:
    """Return the processes that have the run's directory in their environment: of ranks, it holds their checkpoint."""
    mark = f"{run.run.directory}/".encode()
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return tuple(found)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _get(run: EmulatedRun, path: str) -> Any:
    code = f"from urllib.request import urlopen; print(urlopen('{run.parts['url']}{path}', timeout=5).read().decode())"
    return json.loads(run.execute(sys.executable, "-c", code))
