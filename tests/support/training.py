"""Runs the ranks of a program that trains, as an engine on this machine would."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from beamer.engines.local.supervisor.ports import kept_port


def needs_pytorch() -> None:
    """Skip a test, with the reason, where what the extra `digits` brings is not installed."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")


@contextmanager
def launched(command: Sequence[str], world: int, batch_size: int, checkpoint: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start a program as so many ranks; kill those that are left in the end."""
    with ExitStack() as stack:
        environment = {
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(stack.enter_context(kept_port())),
            "BEAMER_BATCH_SIZE": str(batch_size),
            "BEAMER_CHECKPOINT": str(checkpoint),
            "OMP_NUM_THREADS": "1",
        }
        processes = []
        for rank in range(world):
            own = {**os.environ, **environment, "RANK": str(rank)}
            process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        yield processes


def trained(command: Sequence[str], world: int, batch_size: int, checkpoint: Path) -> list[dict[str, float]]:
    """Run a program as so many ranks to the end; return what rank 0 has reported, which the others leave to it."""
    with launched(command, world, batch_size, checkpoint) as processes:
        said = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * world
    assert said[1:] == [""] * (world - 1)
    return [json.loads(line) for line in said[0].splitlines()]
