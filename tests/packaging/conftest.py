"""The distributions and the package index, made and found once for all tests here."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.packaging.builds import build, index_variables


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the source distribution and the wheel that was built from it."""
    return build(tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="session")
def index() -> Mapping[str, str]:
    """Return the variables by which uv finds the package index."""
    return index_variables()
