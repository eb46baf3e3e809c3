"""Distributions and wheels, made once for all tests here."""

from pathlib import Path

import pytest

from tests.packaging.builds import build, download


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the source distribution and the wheel that was built from it."""
    return build(tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="session")
def wheels(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with wheels of everything that the extras but `digits` and `ray` depend on."""
    directory = tmp_path_factory.mktemp("wheels")
    download(distributions[1], ["emulation", "gpu", "parquet", "postgresql", "testing"], directory)
    return directory
