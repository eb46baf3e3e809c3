"""The stand-in of NVIDIA's management library in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.nvidia import standin
from tests.support.nvidia.standin import Described


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return what builds the stand-in of a driver's branch, each once."""
    built: dict[int, Path] = {}

    def library(branch: int) -> Path:
        if branch not in built:
            built[branch] = standin.build(tmp_path_factory.mktemp(f"driver{branch}"), branch)
        return built[branch]

    return library


@pytest.fixture
def described(libraries: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Described:
    """Return what makes a driver be at hand with GPUs as these lines say; it returns the file that has them."""

    def describe(*lines: str, branch: int = standin.BRANCH) -> Path:
        path = tmp_path / "gpus"
        path.write_text("\n".join(lines) + "\n")
        standin.load(monkeypatch, libraries(branch), path)
        return path

    return describe
