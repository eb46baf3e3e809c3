"""Loads the stand-in of NVIDIA's management library, `nvml.c`, in place of the driver's."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from beamer.errors import PlatformError
from tests.support.nvidia.nvml_library import BRANCH, LIBRARY, built

Described = Callable[..., Path]
"""Makes a driver be at hand with GPUs as lines of text say, and returns the file that has them."""


def build(directory: Path, branch: int = BRANCH) -> Path:
    """Compile the stand-in of a driver's branch into a directory, and return the library; skips without a C compiler."""
    try:
        return built(directory, branch)
    except PlatformError as error:
        pytest.skip(str(error))


def load(monkeypatch: pytest.MonkeyPatch, library: Path, described: Path) -> None:
    """Have this process use a library in place of the driver's. described: the file that says which GPUs there are."""
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setenv("NVML_STANDIN", str(described))


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return what builds the stand-in of a driver's branch, each once."""
    built: dict[int, Path] = {}

    def library(branch: int) -> Path:
        if branch not in built:
            built[branch] = build(tmp_path_factory.mktemp(f"driver{branch}"), branch)
        return built[branch]

    return library


@pytest.fixture
def described(libraries: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Described:
    """Return what makes a driver be at hand with GPUs as these lines say; it returns the file that has them."""

    def describe(*lines: str, branch: int = BRANCH) -> Path:
        path = tmp_path / "gpus"
        path.write_text("\n".join(lines) + "\n")
        load(monkeypatch, libraries(branch), path)
        return path

    return describe


@pytest.fixture(autouse=True)
def no_gpu_driver(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs that a test starts find no NVIDIA driver: what is run as slots runs so on a machine with GPUs, too."""
    directory = tmp_path_factory.mktemp("no-driver")
    (directory / LIBRARY).write_bytes(b"")  # The loader takes the first file of the name, and cannot load it.
    before = os.environ.get("LD_LIBRARY_PATH")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{directory}:{before}" if before else str(directory))
