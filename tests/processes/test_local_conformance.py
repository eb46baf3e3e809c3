"""The local engine passes the suite of engines, on real processes.

Whether suspended jobs keep their memory or are parked, and whether ranks are started or forked.
"""

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from beamer.engines.local import LaunchSpec, LocalNode
from beamer.engines.local.memory_mode import MemoryMode
from beamer.testing.engine_harness import EngineHarness, Seen
from beamer.testing.engines import ENGINE_CHECKS, EngineCheck
from tests.processes.site import Cable, Site, read, until

FAILING = """
for i in range({iterations}):
    print('{{"iteration": %d, "loss": 1}}' % (i + 1))
raise SystemExit("no such data")
"""


class LocalHarness(EngineHarness):
    def __init__(self, site: Site, memory: MemoryMode, preload: tuple[str, ...] = ()) -> None:
        self.preload = preload
        self.site = site
        self.cable = site.root / "cable"
        self.cable.touch()
        site.nodes = (LocalNode("one", 2), LocalNode("two", 2, launcher=Cable(self.cable)))
        self.memory = memory
        self.engine = site.engine(memory=memory, prepares=True)

    def job(self, name: str, iterations: int) -> str:
        self.site.trainer(name, iterations, "--pause-s", "0.005")
        changes = {"preload": self.preload, "cwd": str(self.site.root)} if self.preload else {}
        self.site.specs[name] = replace(self.site.specs[name], iterations=iterations, **changes)
        return name

    def impatient(self, name: str, iterations: int) -> str:
        self.job(name, iterations)
        self.site.specs[name] = replace(self.site.specs[name], collective_timeout_s=0.4)
        return name

    def failing(self, name: str, iterations: int) -> str:
        script = self.site.root / "failing.py"
        script.write_text(FAILING.format(iterations=iterations))
        self.site.specs[name] = LaunchSpec((sys.executable, str(script)), preload=self.preload)
        return name

    def succeed(self) -> None:
        self.engine.close()
        self.engine = self.site.engine(memory=self.memory, prepares=True)

    def has_processes(self, key: str) -> bool:
        return any(f"/{key}-".encode() in read(pid, "environ") for pid in self.site.ranks())

    def wait(self, holds: Callable[[], Seen | None]) -> Seen:
        found: Seen = until(holds)
        return found

    def lose(self, node: str) -> None:
        self.cable.unlink()

    def rejoin(self, node: str) -> None:
        self.cable.touch()


@pytest.mark.parametrize(
    "memory",
    [pytest.param(MemoryMode.GPU, id="memory"), pytest.param(MemoryMode.NONE, id="checkpoints", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_local(check: EngineCheck, memory: MemoryMode, site: Site) -> None:
    check(LocalHarness(site, memory))


@pytest.mark.long
@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_local_with_modules_preloaded(check: EngineCheck, site: Site) -> None:
    check(LocalHarness(site, True, ("numpy",)))
