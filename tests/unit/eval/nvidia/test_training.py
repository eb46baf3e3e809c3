"""The program that the parts run on a GPU, here on a processor: what it learns, and that it goes on where it was stopped."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval.nvidia.training import bits
from eval.nvidia.trial import steps
from tests.support.checkout import ROOT

ITERATIONS = 40
COMMAND = (sys.executable, "-m", "eval.nvidia.training", "--device", "cpu", "--width", "24", "--batch", "64")
PATIENCE_S = 120.0


def start(trace: Path, checkpoint: Path, rate: str = "0.1") -> "subprocess.Popen[str]":
    arguments = ("--rate", rate, "--iterations", str(ITERATIONS), "--trace", str(trace))
    environment = {**os.environ, "BEAMER_CHECKPOINT": str(checkpoint), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    whole, parts, checkpoint = tmp_path / "whole", tmp_path / "parts", tmp_path / "checkpoint"
    with start(whole, tmp_path / "other") as undisturbed:
        output, _ = undisturbed.communicate(timeout=PATIENCE_S)
    losses = {line["iteration"]: line["loss"] for line in map(json.loads, output.splitlines())}
    expected = steps(whole)
    assert list(losses) == list(expected) == list(range(1, ITERATIONS + 1))
    assert {iteration: bits(loss) for iteration, loss in losses.items()} == {
        iteration: digest.partition("-")[0] for iteration, digest in expected.items()
    }
    assert losses[ITERATIONS] < losses[1]
    with start(parts, checkpoint) as stopped:
        until_s = time.monotonic() + PATIENCE_S
        while not steps(parts) and time.monotonic() < until_s:
            time.sleep(0.001)
        stopped.send_signal(signal.SIGTERM)
        stopped.communicate(timeout=PATIENCE_S)
    assert stopped.returncode == 0
    assert checkpoint.exists()
    with start(parts, checkpoint) as continued:
        continued.communicate(timeout=PATIENCE_S)
    assert continued.returncode == 0
    assert steps(parts) == expected


def test_bits_tell_losses_apart_that_look_alike() -> None:
    assert bits(0.0) != bits(-0.0)
    assert bits(1.0) == "3f800000"
    assert bits(math.nan) != bits(math.inf)
