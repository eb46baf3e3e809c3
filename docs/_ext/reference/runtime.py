"""A controller with an empty journal, whose API and metrics are described."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from beamer.network.policies import network_policy
from beamer.studies.journal.store import Journal
from controller.runtime import Runtime
from controller.settings import ControllerSettings
from tests.support.served_controller import made_runtime
from topologies.single import build


@contextmanager
def idle_runtime() -> Iterator[Runtime]:
    """Yield a controller that serves nobody."""
    with TemporaryDirectory() as folder:
        journal = Journal(f"sqlite:///{Path(folder, 'journal.db')}")
        try:
            yield made_runtime(ControllerSettings(build(), network_policy("fair")), journal)
        finally:
            journal.close()
