"""Where a test lies: a unit test in the folder of its package, `beamer`'s own directly below `tests/unit`; and who runs it."""

import re
from pathlib import Path

import pytest

from tests.conftest import PROGRAMS
from tests.support.checkout import ROOT

UNIT = ROOT / "tests" / "unit"
OTHERS = ("controller", "eval", "hostagent", "topologies")


def package_of(folder: Path) -> Path:
    """Return the package that a folder of unit tests is for."""
    below = folder.relative_to(UNIT)
    return ROOT / below if below.parts and below.parts[0] in OTHERS else ROOT / "beamer" / below


FOLDERS = sorted({path.parent for path in UNIT.rglob("test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_a_folder_of_tests_has_the_name_of_a_package(folder: Path) -> None:
    assert (package_of(folder) / "__init__.py").is_file()


def test_every_larger_package_has_a_folder() -> None:
    found = {package_of(folder) for folder in FOLDERS}
    assert {ROOT / name for name in OTHERS} <= found
    assert {
        ROOT / "beamer" / name for name in ("client", "engines/local", "gpu/policies", "network/policies", "studies")
    } <= found


def test_every_tier_is_run_by_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    programs, modules = (
        re.findall(r"tests/(\w+)", line) for line in re.findall(r"^(?:PROGRAMS|MODULES) := (.*)$", makefile, re.MULTILINE)
    )
    assert tuple(programs) == PROGRAMS
    tiers = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert sorted([*programs, *modules]) == sorted(tiers)
