"""What all tests share: a port for a server of their own, who runs what; and the reason to skip what a machine cannot run."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest
import structlog

from beamer.engines.local.supervisor.ports import kept_port
from beamer.errors import PlatformError
from topologies.emulation.platform import require

PRIVILEGED = {"netns", "emulation"}
PROGRAMS = ("packaging", "processes", "ray", "netns", "emulation")  # tiers in which a test may run alone, as in the Makefile

# A shell without job control starts what runs in the background with SIGINT ignored: programs of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with suppress(ValueError):  # Another thread imports this.
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _StandardOutput:
    """Standard output as a descriptor.

    What pytest captures with is a Python file, which it closes at a test's end. A thread of a served controller that logs in
    that moment writes to memory that is freed, of which the interpreter dies later and elsewhere.
    """

    def write(self, text: str) -> None:
        os.write(1, text.encode())

    def flush(self) -> None:
        pass


# Tests of what is logged take `capfd`: `capsys` does not see descriptors.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ],
    logger_factory=structlog.WriteLoggerFactory(_StandardOutput()),  # type: ignore[arg-type]  # It needs no more of a file.
)


@pytest.fixture
def own_port() -> Iterator[int]:
    """A port that no other program is given while the test runs."""
    with kept_port() as port:
        yield port


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("alone") and not item.nodeid.startswith(tuple(f"tests/{tier}/" for tier in PROGRAMS)):
            raise pytest.UsageError(f"{item.nodeid}: got alone, expected no such marker outside {', '.join(PROGRAMS)}")
    try:
        require()
    except PlatformError as error:
        for item in items:
            if PRIVILEGED & {marker.name for marker in item.iter_markers()}:
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, which doubles the time, and exempt what was imported from later collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run all tests of Ray, which share a cluster; else, with `--dist loadfile`, each file is one worker's."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneCluster(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return "tests/ray" if nodeid.startswith("tests/ray/") else str(super()._split_scope(nodeid))

    return OneCluster(config, log)
