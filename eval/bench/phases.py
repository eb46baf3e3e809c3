"""Where a simulation spends its time, phase by phase, so that the next limit is seen."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from beamer.network.fluid.network import FluidNetwork
from beamer.sim.network_level import NetworkLevel

REPORT = "report"
METHODS: tuple[tuple[str, type, str], ...] = (
    ("decide", NetworkLevel, "decide"),
    ("snapshot", NetworkLevel, "snapshot"),
    ("kernels", FluidNetwork, "run"),
)
PHASES = (*(phase for phase, _, _ in METHODS), REPORT)


@contextmanager
def measured_phases() -> Iterator[dict[str, float]]:
    """Yield the CPU seconds of each phase of simulations that run meanwhile; what is within another phase counts there alone.

    decide: the policy, and what carries its order out. snapshot: what the policy reads. kernels: rates and flows. report: all
    else, what trials report and searches begin.
    """
    seconds = dict.fromkeys(PHASES, 0.0)
    running = [REPORT]
    since_s = time.process_time()

    def book() -> None:
        nonlocal since_s
        now_s = time.process_time()
        seconds[running[-1]] += now_s - since_s
        since_s = now_s

    def timed(phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            book()
            running.append(phase)
            try:
                return method(*args, **options)
            finally:
                book()
                running.pop()

        return call

    with ExitStack() as patches:
        for phase, owner, name in METHODS:
            patches.enter_context(patch.object(owner, name, timed(phase, getattr(owner, name))))
        try:
            yield seconds
        finally:
            book()
