"""A search whose configurations are drawn, killed by SIGKILL at random: it draws what an undisturbed one draws."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.gpu.events import TrialSampled
from beamer.studies.journal.store import Journal
from tests.processes.site import of_directory, read, until
from tests.support.tiers import long

TRIALS, KILLS, TIMEOUT_S = 30, 5, 120
PROGRAM = """
import json, math, os, sys, time
rate, width, kind = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
last = int(sys.argv[4])
loss = abs(math.log10(rate) + 3) + abs(math.log2(width) - 5) / 4 + (kind == "b") / 8
time.sleep(0.02 + width % 7 / 50)  # trials end in another order than they begin
for i in range(1, last + 1):
    print(json.dumps({"iteration": i, "loss": loss + 1 / i}), flush=True)
"""
PARAMETERS = {
    "rate": {"log_uniform": [1e-6, 1.0]},
    "width": {"integer": [4, 256], "log": True},
    "kind": {"categorical": ["a", "b"]},
}


class SampledSearch:
    """A search in a directory of its own, which several commands run one after another."""

    def __init__(self, root: Path, **keys: Any) -> None:
        self.root = root
        root.mkdir()
        (root / "program.py").write_text(PROGRAM)
        command = ["{python}", "-S", "program.py", "{rate}", "{width}", "{kind}", "{iterations}"]
        data = {
            "name": "s",
            "nodes": [{"name": "here", "gpus": 3}],
            "prepare": False,
            "poll_s": 0.02,
            "job": {"command": command, "request": {} if "rungs" in keys else {"iterations": 4}},
            "sampler": {"kind": "tpe", "trials": TRIALS, "seed": 7, "parameters": PARAMETERS},
            **keys,
        }
        (root / "search.yaml").write_text(yaml.safe_dump(data))

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
                until(partial(self._has, count), f"{count} draws", 0.02)
                time.sleep(rng.uniform(0.0, 0.3))
                assert process.poll() is None, "the search was over before it was killed"
            finally:
                process.kill()
                process.wait()

    def _has(self, count: int) -> bool:
        return len(self.drawn()) >= count if (self.root / "dir" / "search").exists() else False

    def left(self) -> list[int]:
        return [pid for pid in of_directory(self.root) if b"schedule" not in read(pid, "cmdline")]


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
    whole.run()
    killed.kill_at(sorted(rng.sample(range(1, TRIALS - 2), KILLS)), rng)
    killed.run()
    assert [number for number, _ in whole.samples()] == list(range(TRIALS))
    assert killed.samples() == whole.samples()
    assert killed.figures()["best"] == whole.figures()["best"]
    assert len({values["rate"] for _, values in whole.samples()}) == TRIALS, "draws differ from one another"
