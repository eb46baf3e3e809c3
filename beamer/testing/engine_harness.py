"""What an engine that is to be checked has to bring along: jobs to run, time that passes, and what it can be put through."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest import SkipTest

from beamer.engines.local import LaunchSpec
from beamer.gpu.engine import Engine
from beamer.schedule.engine_settings import ENGINES

Seen = TypeVar("Seen")


class EngineHarness(ABC):
    """An engine to be checked, what runs on it, and the time that passes for it.

    engine: one on which no job has been started, with two nodes or more that have two GPUs or more each.
    """

    engine: Engine

    def failing(self, name: str, iterations: int) -> str:
        """Describe a job that fails after it has reported so many iterations; return its key. Not every harness has one."""
        raise SkipTest("this harness has no job that fails")

    def impatient(self, name: str, iterations: int) -> str:
        """Describe a job like `job` whose ranks bear to be suspended for moments only; return its key. Not every one has it."""
        raise SkipTest("this harness has no job whose ranks give each other up")

    def succeed(self) -> None:
        """Close the engine and make `engine` its successor. A harness whose jobs end with the engine has none."""
        raise SkipTest("jobs of this harness do not outlive their engine")

    @abstractmethod
    def job(self, name: str, iterations: int) -> str:
        """Describe a job that ends by itself after so many iterations, and return the key by which it can be started.

        It reports its progress once per iteration. It saves a checkpoint when the engine asks it to, and when it ends. One that
        was described before is to run so far when it is started next.
        """

    @abstractmethod
    def has_processes(self, key: str) -> bool:
        """Say whether any process of a job is left, as seen without the engine."""

    @abstractmethod
    def wait(self, holds: Callable[[], Seen | None]) -> Seen:
        """Let time pass until `holds` returns something true, and return it; raise `AssertionError` if it does not for long."""

    def lose(self, node: str) -> None:
        """Take a node away, so that no job can be started on it. A harness without this method cannot."""
        raise SkipTest("this harness cannot take nodes away")

    def rejoin(self, node: str) -> None:
        """Bring a node back that was taken away."""
        raise NotImplementedError


NODES = [{"name": "one", "gpus": 2}, {"name": "two", "gpus": 2}]
PATIENCE_S = 60.0
PAUSE_S = 0.02
FAILING = """
for i in range({iterations}):
    print('{{"iteration": %d, "loss": 1}}' % (i + 1))
raise SystemExit("no such data")
"""


class RegisteredHarness(EngineHarness):
    """An engine that `beamer schedule` finds by name, with processes on this machine.

    directory: an empty one, for checkpoints and what the engine keeps. settings: its own, beside two nodes of two GPUs.
    """

    def __init__(self, name: str, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._specs: dict[str, LaunchSpec] = {}
        chosen = ENGINES.choose("engine", name).model_validate({"nodes": NODES, **settings})
        self.engine = chosen.open(directory / "jobs", self._specs.__getitem__, time.time)

    def job(self, name: str, iterations: int) -> str:
        """Describe a run of the example trainer."""
        program = ("-m", "beamer.testing.trainer", "--iterations", str(iterations), "--pause-s", "0.005")
        return self._described(name, program, iterations)

    def failing(self, name: str, iterations: int) -> str:
        """Describe a program that ends with an error."""
        return self._described(name, ("-c", FAILING.format(iterations=iterations)), iterations + 1)

    def _described(self, key: str, program: tuple[str, ...], iterations: int) -> str:
        command, env = (sys.executable, *program), (("OPENBLAS_NUM_THREADS", "1"),)
        checkpoint = str(self._directory / f"{key}.checkpoint")
        self._specs[key] = LaunchSpec(command, env=env, checkpoint=checkpoint, batch_size=64, iterations=iterations)
        return key

    def has_processes(self, key: str) -> bool:
        """Look for the job's checkpoint in the environments of all processes."""
        given = f"BEAMER_CHECKPOINT={self._directory / key}.checkpoint".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # The process has ended, or is another user's.
                if given in path.read_bytes().split(b"\0"):
                    return True
        return False

    def wait(self, holds: Callable[[], Seen | None]) -> Seen:
        """Ask again and again, for a minute."""
        until = time.monotonic() + PATIENCE_S
        while not (found := holds()):
            assert time.monotonic() < until, f"waited for {holds}"
            time.sleep(PAUSE_S)
        return found

    def close(self) -> None:
        """End all jobs, and the engine."""
        for key in self.engine.report():
            self.engine.stop(key, PATIENCE_S)
        self.engine.close()
