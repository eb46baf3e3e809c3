"""Where a unit test lies: in the folder of the package that it tests, `beamer`'s own directly below `tests/unit`."""

from pathlib import Path

import pytest

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
