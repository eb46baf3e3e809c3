"""Builds the distributions, and installs an extra with what it depends on into an empty environment."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from beamer.lazy_commands import DISTRIBUTION
from tests.support.checkout import ROOT

PATIENCE_S = 3000  # for downloads on a slow network; everything else takes seconds
UV = [sys.executable, "-m", "uv", "--quiet"]  # links what it has unpacked once into every environment
NOTHING: Mapping[str, str] = MappingProxyType({})
CONSTRAINTS = ["-c", ROOT / "constraints.txt"]
UNREACHABLE = ("Failed to fetch", "Request failed")  # as uv says it


def run(
    command: Sequence[str | Path], cwd: Path = ROOT, env: Mapping[str, str] = NOTHING
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, without the checkout on its path. env: what is added to the environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_REQUIRE_VIRTUALENV")}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=kept | env, capture_output=True, text=True, timeout=PATIENCE_S)


def checked(command: Sequence[str | Path], cwd: Path = ROOT, env: Mapping[str, str] = NOTHING) -> str:
    """Run a program that must succeed, and return what it prints."""
    done = run(command, cwd, env)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(directory: Path) -> tuple[Path, Path]:
    """Build the source distribution, and from that the wheel; return both."""
    checked([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", directory])
    (sdist,) = directory.glob("*.tar.gz")
    checked(["tar", "-xzf", sdist, "-C", directory])  # `tarfile` warns without the filter that Python 3.11.2 does not know
    unpacked = directory / sdist.name.removesuffix(".tar.gz")
    checked([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], cwd=unpacked)
    (wheel,) = directory.glob("*.whl")
    return sdist, wheel


def index_variables() -> Mapping[str, str]:
    """Return the environment variable that makes uv ask pip's index; skips the test if that cannot be reached.

    Where uv's own variables name an index, it asks that. Other sources that pip is configured to have are not used.
    """
    variables = NOTHING
    if not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & os.environ.keys():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "get", "global.index-url"]
        if url := os.environ.get("PIP_INDEX_URL") or run(pip).stdout.strip():
            variables = {"UV_DEFAULT_INDEX": url}
    asked = ["--dry-run", "--reinstall", "--no-deps", *CONSTRAINTS, "httpcore"]
    probe = run([*UV, "pip", "install", "--python", sys.executable, *asked], env=variables)
    if any(text in probe.stderr for text in UNREACHABLE):
        pytest.skip(f"no package index within reach: {' '.join(probe.stderr.split())}")
    assert probe.returncode == 0, probe.stderr
    return variables


@dataclass(frozen=True)
class Environment:
    """A virtual environment. path: its directory; extra: that was installed, None for the base."""

    path: Path
    extra: str | None

    @classmethod
    def make(cls, path: Path, extra: str | None, wheel: Path, variables: Mapping[str, str]) -> "Environment":
        """Install the wheel with an extra, and with nothing but what that asks for. variables: `index_variables`."""
        checked([*UV, "venv", "--python", sys.executable, path])
        wanted = f"{DISTRIBUTION}[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        checked([*UV, "pip", "install", "--python", path / "bin" / "python", *CONSTRAINTS, wanted], env=variables)
        return cls(path, extra)

    def run(self, program: str, *arguments: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
        """Run one of its programs."""
        return run([self.path / "bin" / program, *arguments], cwd)

    def checked(self, program: str, *arguments: str | Path, cwd: Path, env: Mapping[str, str] = NOTHING) -> str:
        """Run one of its programs, which must succeed, and return what it prints."""
        bytecode = {"PYTHONPYCACHEPREFIX": str(self.path.parent / "bytecode")}  # of all environments that stand here in turn
        return checked([self.path / "bin" / program, *arguments], cwd, bytecode | env)

    @property
    def installed_bytes(self) -> int:
        """What the installed packages take on the disk."""
        return sum(path.stat().st_size for path in self.path.glob("lib/*/site-packages/**/*") if path.is_file())

    def remove(self) -> None:
        """Delete it: a large one is kept no longer than its tests run."""
        shutil.rmtree(self.path)
