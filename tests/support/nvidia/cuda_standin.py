"""A stand-in of NVIDIA's driver: its library, compiled from `cuda_standin.c`, and the directory with what it knows."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from beamer.errors import PlatformError

if TYPE_CHECKING:  # `python -m eval nvidia` uses the stand-in, too, where there is no pytest.
    import pytest

SOURCE = Path(__file__).with_name("cuda_standin.c")
COMPILER = shutil.which("cc")
DIRECTORY = "BEAMER_CUDA_STANDIN"
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
OPERATING_SYSTEM = 304
NOT_READY = 600
NOT_SUPPORTED = 801
GIB = 1 << 30


@dataclass(frozen=True)
class OfProcess:
    """What the stand-in has of a process."""

    state: str
    device: int
    bytes: int


class Standin:
    """The directory of a stand-in; `cuda_standin.c` says what is in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def device(self, index: int, total: int) -> str:
        """Add a GPU, and return its UUID."""
        (self.root / "devices").mkdir(parents=True, exist_ok=True)
        (self.root / "processes").mkdir(exist_ok=True)
        digits = f"{index + 1:032x}"
        (self.root / "devices" / str(index)).write_text(f"{digits} {total}")
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def say(self, name: str, value: object = "") -> None:
        """Set what happens in calls."""
        (self.root / f"{name}.new").write_text(str(value))
        (self.root / f"{name}.new").replace(self.root / name)

    def unsay(self, name: str) -> None:
        """Have it not happen any more."""
        (self.root / name).unlink()

    def has(self, name: str) -> bool:
        """Return whether something is said, or was reached."""
        return (self.root / name).exists()

    @property
    def calls(self) -> list[tuple[int, str, int]]:
        """The calls that have ended: process, name and result."""
        return [(int(pid), call, int(result)) for pid, call, result, _ in self._lines()]

    def ends(self, call: str) -> list[float]:
        """When the calls of one name that were not refused have ended, monotonic time."""
        return [float(at) for _, name, result, at in self._lines() if name == call and not int(result)]

    def _lines(self) -> list[list[str]]:
        path = self.root / "calls"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def processes(self) -> dict[int, OfProcess]:
        """The living processes that have memory."""
        found = {}
        for path in (self.root / "processes").iterdir():
            if path.name.isdigit() and Path(f"/proc/{path.name}/stat").exists():
                state, device, size = path.read_text().split()
                if " Z " not in Path(f"/proc/{path.name}/stat").read_text():
                    found[int(path.name)] = OfProcess(state, int(device), int(size))
        return found

    def held(self, device: int) -> int:
        """Return the bytes that processes hold on a GPU."""
        return sum(one.bytes for one in self.processes.values() if one.device == device and one.state != "checkpointed")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the stand-in's lock."""
        with open(self.root / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def allocate(self, device: int, size: int) -> bool:
        """Have the calling process hold memory, and return whether there was room."""
        with self.locked():
            total = int((self.root / "devices" / str(device)).read_text().split()[1])
            if self.held(device) + size > total:
                return False
            new = self.root / "processes" / f".{os.getpid()}"
            new.write_text(f"running {device} {size}")
            new.replace(self.root / "processes" / str(os.getpid()))  # Tests read it meanwhile.
            return True

    def state(self, pid: int) -> str:
        """Return the state of a process."""
        return (self.root / "processes" / str(pid)).read_text().split()[0]


def built(directory: Path) -> Standin:
    """Compile the driver's library into a new directory, and return the stand-in. Raises `PlatformError`."""
    if COMPILER is None:
        raise PlatformError("there is no C compiler for the stand-in of NVIDIA's driver", "install gcc and libc6-dev")
    if importlib.util.find_spec("cuda") is None:
        raise PlatformError("the package cuda-bindings is not installed", "install beamer-scheduler[nvidia]")
    directory.mkdir()
    options = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o")
    subprocess.run([COMPILER, *options, directory / "libcuda.so.1", SOURCE], check=True)
    return Standin(directory)


def standin(directory: Path, monkeypatch: "pytest.MonkeyPatch") -> Standin:
    """Return a stand-in that is the driver of every process that is started from now on, or skip the test."""
    import pytest

    try:
        made = built(directory)
    except PlatformError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(directory))
    monkeypatch.setenv(DIRECTORY, str(directory))
    return made
