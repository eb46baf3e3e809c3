"""A rolling upgrade: which program a process is, and whether bytes in another class would be noticed."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beamer.testing.fabrics import star
from eval.faults import upgrade
from eval.faults.upgrade import ClassBytes, released_missing, two_programs
from tests.support.checkout import ROOT
from topologies.emulation.accounting import QueueBytes

PRINT = "import beamer, controller, eval; print(*(one.__file__ for one in (beamer, controller, eval)))"

needs_history = pytest.mark.skipif(released_missing() is not None, reason=str(released_missing()))


def sources(*arguments: str) -> list[Path]:
    """Return where a process with these arguments has its packages from."""
    command = [sys.executable, "-c", PRINT, *arguments]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    return [Path(name).parent for name in printed.split()]


@needs_history
def test_controllers_and_agents_are_the_program_that_was_in_use_when_they_started(tmp_path: Path) -> None:
    new = [ROOT / name for name in ("beamer", "controller", "eval")]
    old = [tmp_path / "programs" / "released" / name for name in ("beamer", "controller")] + [ROOT / "eval"]
    with two_programs(tmp_path / "programs") as programs:
        assert sources("controller.cli") == new
        programs.use_old()
        assert sources("controller.cli") == sources("hostagent.expiry.guard") == old
        assert sources("eval.faults.traffic_worker") == new, "workers are not replaced"
        programs.use_new()
        programs.use_new()
        assert sources("hostagent.cli") == new
        programs.use_old()
    assert sources("controller.cli") == new, "nothing is left of it"


@needs_history
def test_the_released_program_says_no_version(tmp_path: Path) -> None:
    with two_programs(tmp_path / "programs"):
        assert not (tmp_path / "programs" / "released" / "beamer" / "protocol_version.py").exists()
        assert (tmp_path / "programs" / "released" / "hostagent" / "cli.py").exists()


@needs_history
@pytest.mark.parametrize("before", [None, "elsewhere"])
def test_the_path_is_as_it_was_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", before)
    with two_programs(tmp_path / "programs"):
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "programs"), *([before] if before else [])]
    assert os.environ.get("PYTHONPATH") == before


def test_bytes_are_counted_by_queue_from_the_first_reading_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = star(2)
    sent = {0: 100, 1: 0, None: 7}

    def enter(host: str | None) -> list[str]:
        return ["enter", host] if host else []

    site: Any = SimpleNamespace(run=SimpleNamespace(run=SimpleNamespace(directory=tmp_path), enter=enter))
    entered: dict[str, list[str]] = {}

    def read(interface: str, enter: Any) -> tuple[QueueBytes, ...]:
        entered[interface] = enter
        return tuple(QueueBytes(interface, klass, count, 0) for klass, count in sent.items())

    monkeypatch.setattr(upgrade, "queue_bytes", read)
    monkeypatch.setattr(upgrade, "read_fabric", lambda _: fabric)
    counted = ClassBytes(site)
    sent |= {0: 500, None: 8}
    grown = counted.grown()
    by_class = {klass: {count for (_, one), count in grown.items() if one == klass} for klass in sent}
    assert by_class == {0: {400}, 1: {0}, None: {1}}
    for link in fabric.links:
        assert entered[link.interface] == (["enter", link.src] if link.src in fabric.host else [])
