"""The bench, taken down with everything that a test has left."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hostagent.lease import QueueLease
from hostagent.testing import cabled_namespaces
from tests.netns.bench import Bench, eventually


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        made = Bench(stack.enter_context(cabled_namespaces("a", "b")), tmp_path, stack)
        yield made
        stack.close()
    if made.state.path.exists():
        QueueLease(made.state).end()
        eventually(lambda: not made.state.held("guard"))
