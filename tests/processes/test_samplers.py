"""A search whose configurations are drawn, killed by SIGKILL at random: it draws what an undisturbed one draws."""

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.gpu.events import RunFailed, TrialSampled
from beamer.studies.journal.store import Journal
from tests.processes.site import of_directory, until
from tests.support.terminals import Terminal
from tests.support.tiers import long

pytest.importorskip("optuna", reason="Optuna is not installed")

TRIALS, KILLS, TIMEOUT_S = 30, 5, 120
PROGRAM = """
import json, math, os, sys, time
rate, width, kind = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
last = int(sys.argv[4])
loss = abs(math.log10(rate) + 3) + abs(math.log2(width) - 5) / 4 + (kind == "b") / 8
time.sleep(0.02 + width % 7 / 50)  # trials end in another order than they begin
for i in range(1, last + 1):
    print(json.dumps({"iteration": i, "loss": loss + 1 / i}), flush=True)
    while os.path.exists("gate"):
        time.sleep(0.02)
"""
PARAMETERS = {
    "rate": {"log_uniform": [1e-6, 1.0]},
    "width": {"integer": [4, 256], "log": True},
    "kind": {"categorical": ["a", "b"]},
}

PLACEHOLDERS = [f"{{{name}}}" for name in PARAMETERS]


class SampledSearch:
    """A search in a directory of its own, which several commands run one after another."""

    def __init__(self, root: Path, **keys: Any) -> None:
        self.root = root
        root.mkdir()
        (root / "program.py").write_text(PROGRAM)
        command = ["{python}", "-S", "program.py", *PLACEHOLDERS, "{iterations}"]
        data = {
            "name": "s",
            "nodes": [{"name": "here", "gpus": 3}],
            "prepare": False,
            "poll_s": 0.02,
            "job": {"command": command, "request": {} if "rungs" in keys else {"iterations": 4}},
            "sampler": {"kind": "tpe", "trials": TRIALS, "seed": 7, "parameters": PARAMETERS},
            **keys,
        }
        (root / "search.yaml").write_text(yaml.safe_dump(data, sort_keys=False))

    def words(self, *more: str) -> list[str]:
        command = [sys.executable, "-m", "beamer.cli", "schedule", str(self.root / "search.yaml"), "--policy", "fifo"]
        return [*command, "--dir", str(self.root / "dir"), "--json", str(self.root / "figures.json"), *more]

    def run(self, *more: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(self.words(*more), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return done

    def drawn(self) -> list[TrialSampled]:
        journal = self.root / "dir" / "journal.db"
        if not journal.exists():
            return []
        with closing(Journal(f"sqlite:///{journal}", writes=False)) as opened:
            return [event for event in opened.replay() if isinstance(event, TrialSampled)]

    def samples(self) -> list[tuple[int, dict[str, str]]]:
        return [(event.number, event.values) for event in self.drawn()]

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "figures.json").read_text())
        return found

    def kill_at(self, draws: Sequence[int], rng: random.Random) -> None:
        """Run a command for each count of draws, and kill it by SIGKILL when it has come to it, or a little later."""
        for count in draws:
            process = subprocess.Popen(self.words("--quiet"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                until(partial(self._has, count, process.pid), f"{count} draws", 0.02)
                time.sleep(rng.uniform(0.0, 0.6))
                assert process.poll() is None, "the search was over before it was killed"
            finally:
                process.kill()
                process.wait()

    def _has(self, count: int, pid: int) -> bool:
        """Say whether a process runs the search, and its journal has so many draws: by a query, as it is asked all the time."""
        try:
            if (self.root / "dir" / "lock").read_text() != str(pid):
                return False
            with closing(sqlite3.connect(f"file:{self.root}/dir/journal.db?mode=ro", uri=True)) as opened:
                ((found,),) = opened.execute("select count(*) from events where kind = 'TrialSampled'")
        except (FileNotFoundError, sqlite3.OperationalError):  # They are not there yet.
            return False
        return bool(found >= count)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for directory in tmp_path.glob("*/dir"):
        subprocess.run(
            [sys.executable, "-m", "beamer.cli", "schedule", "--dir", str(directory), "--kill"],
            capture_output=True,
            timeout=TIMEOUT_S,
        )
    until(lambda: not of_directory(tmp_path), "all processes to be gone")


RUNGS = [{"iterations": 2, "keep": 10}, {"iterations": 4, "keep": 3}, {"iterations": 6}]


@pytest.mark.parametrize("keys", [{}, *long({"rungs": RUNGS})], ids=["without-rungs", "rungs"])
def test_a_search_killed_five_times_draws_and_finds_what_an_undisturbed_one_does(root: Path, keys: dict[str, Any]) -> None:
    rng = random.Random(3)
    whole, killed = SampledSearch(root / "whole", **keys), SampledSearch(root / "killed", **keys)
    with ThreadPoolExecutor(1) as beside:  # It computes while the other one waits.
        undisturbed = beside.submit(whole.run, "--quiet")
        killed.kill_at(sorted(rng.sample(range(1, TRIALS - 2), KILLS)), rng)
        killed.run("--quiet")
        undisturbed.result()
    assert [number for number, _ in whole.samples()] == list(range(TRIALS))
    assert killed.samples() == whole.samples()
    assert killed.figures()["best"] == whole.figures()["best"]
    assert len({values["rate"] for _, values in whole.samples()}) == TRIALS, "draws differ from one another"


def test_a_terminal_shows_how_far_the_search_is(root: Path) -> None:
    search = SampledSearch(root / "shown", sampler={"kind": "random", "trials": 6, "parameters": PARAMETERS})
    (search.root / "gate").touch()  # No trial goes beyond its first iteration while it is there.
    with Terminal(search.words(), {**os.environ, "TERM": "xterm"}, columns=110) as terminal:
        assert terminal.until("trial-0 is drawn: rate ")
        assert terminal.until("0 of 6 configurations have ended")
        assert terminal.until("best so far: trial-")
        assert re.search(r"trial-[012] +running +1 .*here:[012]", terminal.read)
        (search.root / "gate").unlink()
        assert terminal.until("s under fifo")
        assert terminal.ended() == 0


def test_without_a_terminal_there_is_no_table_until_the_end(root: Path) -> None:
    search = SampledSearch(root / "piped", sampler={"kind": "random", "trials": 3, "parameters": PARAMETERS})
    done = search.run()
    assert "have ended" not in done.stdout
    assert done.stdout.count("trial-0 is drawn: rate ") == 1
    assert "is drawn" not in search.run("--quiet").stdout


def test_a_missing_interpreter_is_said_once_and_nothing_is_left(root: Path) -> None:
    search = SampledSearch(
        root / "missing",
        job={"python": "no/python", "command": ["{python}", "{rate}", "{width}", "{kind}"], "request": {"iterations": 1}},
    )
    done = subprocess.run(search.words(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert done.stderr == f"beamer: job.python: got '{search.root}/no/python', expected a file that can be executed\n"
    assert not (search.root / "dir").exists()


def test_a_program_that_cannot_be_run_ends_the_search_at_its_first_launch(root: Path) -> None:
    search = SampledSearch(
        root / "format", job={"command": ["./data", "{rate}", "{width}", "{kind}"], "request": {"iterations": 1}}
    )
    (search.root / "data").write_text("no format that the system knows")
    (search.root / "data").chmod(0o755)
    done = subprocess.run(search.words(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "./data cannot be started: [Errno 8] Exec format error" in last
    assert last.endswith("or correct job.command or job.python and start the search in a new --dir")
    with closing(Journal(f"sqlite:///{search.root}/dir/journal.db", writes=False)) as journal:
        failures = [event for event in journal.replay() if isinstance(event, RunFailed)]
    assert 1 <= len(failures) <= 3, "what had been launched by then, each once"
    assert len({failure.trial for failure in failures}) == len(failures)
