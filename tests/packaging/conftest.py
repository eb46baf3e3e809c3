"""The distributions, made once for all tests here."""

from pathlib import Path

import pytest

from tests.packaging.builds import build


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the source distribution and the wheel that was built from it."""
    return build(tmp_path_factory.mktemp("distributions"))
