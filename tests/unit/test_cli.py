"""The command line: bad input ends in one clear line and exit code 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from beamer.scenario import shipped


def _beamer(*arguments: str, env: dict[str, str] | None = None, user: int | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "beamer.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, user=user)


def _refused(done: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


@pytest.mark.parametrize("command", ["simulate", "emulate"])
def test_an_unknown_policy_is_named(command: str) -> None:
    _refused(_beamer(command, "--policies", "fair,beemer"), "policy", "'beemer'", "did you mean 'beamer'")


@pytest.mark.parametrize("command", ["simulate", "emulate"])
def test_an_unknown_key_is_named(command: str, tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(shipped().read_text().replace("queues: 8", "quues: 8"))
    _refused(_beamer(command, str(scenario)), "quues", "8", "did you mean 'queues'")


@pytest.mark.parametrize("command", ["simulate", "emulate"])
def test_an_output_that_cannot_be_written_is_refused_before_the_run(command: str) -> None:
    _refused(_beamer(command, "--json", "/proc/figures.json"), "--json", "/proc/figures.json", "can be written")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_emulation_without_root_says_what_to_do() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, beamer.cli; os.geteuid = lambda: 1000; import sys; sys.argv = ['beamer', 'emulate']; beamer.cli.main()",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    _refused(done, "root", "beamer simulate")


@pytest.mark.skipif(os.geteuid() != 0, reason="without root that is the first thing missing")
def test_missing_programs_are_named() -> None:
    done = _beamer("emulate", env={**os.environ, "PATH": "/nonexistent"})
    _refused(done, "ovs-vswitchd", "apt-get install")


def test_simulate_writes_what_it_prints(tmp_path: Path) -> None:
    done = _beamer(
        "simulate", "--policies", "fair,beamer", "--json", str(tmp_path / "f.json"), "--plot", str(tmp_path / "p.png")
    )
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "f.json").read_text())["runs"]
    assert [run["policy"] for run in runs] == ["fair", "beamer"]
    assert f"{runs[1]['mean_sct_s']:.2f}" in done.stdout
    assert (tmp_path / "p.png").stat().st_size > 1000
