"""The program that the parts run on a GPU, here on a processor: what it learns, and that it goes on where it was stopped."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eval.nvidia.program import steps
from eval.nvidia.training import bits
from tests.support.checkout import ROOT

ITERATIONS, STOPPED_AT = 40, 15
PATIENCE_S = 240.0
# PyTorch is imported once: one run to the end, and one that SIGTERM stops, with its continuation.
RUNS = """
import os, signal, sys
from eval.nvidia import training

class Trace:
    def __init__(self, path, stop_at):
        self.file, self.left = open(path, "a"), stop_at
    def write(self, line):
        self.file.write(line)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
    def flush(self):
        self.file.flush()

import argparse, torch
folder, iterations, stop_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
given = dict(rate=0.1, iterations=iterations, gib=0.001, width=24, batch=64, seed=0, device="cpu")
for checkpoint, trace, at in (("a", "whole", 0), ("b", "parts", stop_at), ("b", "parts", 0)):
    os.environ["BEAMER_CHECKPOINT"] = os.path.join(folder, checkpoint)
    stop = training.StopRequest()
    training._train(torch, argparse.Namespace(**given), stop, Trace(os.path.join(folder, trace), at))
    print("stopped" if stop.came else "ended")
"""


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    command = [sys.executable, "-c", RUNS, str(tmp_path), str(ITERATIONS), str(STOPPED_AT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("{")] == ["ended", "stopped", "ended"]
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    whole, parts = reports[:ITERATIONS], reports[ITERATIONS:]
    assert [one["iteration"] for one in whole] == list(range(1, ITERATIONS + 1))
    assert parts == whole
    assert whole[-1]["loss"] < whole[0]["loss"]
    expected = steps(tmp_path / "whole")
    assert steps(tmp_path / "parts") == expected
    for one in whole:
        assert expected[one["iteration"]].partition("-")[0] == bits(one["loss"])
    assert expected[ITERATIONS].partition("-")[2], "the last one has the parameters as well"


def test_bits_tell_losses_apart_that_look_alike() -> None:
    assert bits(0.0) != bits(-0.0)
    assert bits(1.0) == "3f800000"
    assert bits(math.nan) != bits(math.inf)
