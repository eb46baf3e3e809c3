"""What an engine that is to be checked has to bring along: jobs to run, time that passes, and what it can be put through."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar
from unittest import SkipTest

from beamer.gpu.engine import Engine

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
