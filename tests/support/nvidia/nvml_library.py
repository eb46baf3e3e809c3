"""Builds the stand-in of NVIDIA's management library from `nvml.c`."""

import shutil
import subprocess
from pathlib import Path

from beamer.errors import PlatformError

SOURCE = Path(__file__).parent / "nvml.c"
LIBRARY = "libnvidia-ml.so.1"
BRANCH = 580
"""Of the driver, with all that is called.

From 470 to 495 it lacks lists of MPS, before 470 all lists of processes that are read, before 450 MIG, and before 396 the
initialisation that `nvidia-ml-py` asks for.
"""


def built(directory: Path, branch: int = BRANCH) -> Path:
    """Compile the stand-in of a driver's branch into a directory, and return the library. Raises `PlatformError`."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise PlatformError("there is no C compiler for the stand-in of NVML", "install gcc and libc6-dev")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY
    library.unlink(missing_ok=True)
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-function", f"-DBRANCH={branch}"]
    done = subprocess.run([compiler, *flags, "-o", library, SOURCE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return library
