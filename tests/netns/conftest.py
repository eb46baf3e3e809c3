"""The bench and the cluster, taken down with everything that a test has left."""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.netns.bench import Bench, eventually
from tests.netns.cluster import Cluster
from tests.netns.lab import Lab, switches
from tests.support.namespaces import cabled_namespaces


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack.enter_context(cabled_namespaces("a", "b")), tmp_path, stack)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack.enter_context(cabled_namespaces("a", "b")), tmp_path, stack)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with switches(tmp_path) as made:
        yield made


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a control group, and empty it at the end."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    unified = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if unified is None or not os.access(unified, os.W_OK):
        pytest.skip("no writable control groups of version 2")
    made = unified / f"beamer-test-{uuid.uuid4().hex[:8]}"
    made.mkdir()
    yield made
    for pid in (made / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: removed(made))


def removed(directory: Path) -> bool:
    """Remove a control group; return whether none of its processes was left that keeps it."""
    with suppress(OSError):
        directory.rmdir()
    return not directory.exists()
