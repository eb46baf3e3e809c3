"""The driver of SimGrid as a program: built with g++ when it is first needed, and run on a description."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import numpy as np

from beamer.errors import PlatformError
from beamer.network.arrays import Floats

SOURCE = Path(__file__).with_name("driver.cpp")
HEADER = "simgrid/s4u.hpp"
VERSION = (3, 32)  # interfaces of the kernel that the driver uses, and precisions, have other names in later versions
REMEDY = "apt-get install g++ libsimgrid-dev (SimGrid 3.32, as in Debian 12)"

MODEL: Mapping[str, str] = MappingProxyType(
    {
        "network/model": "CM02",
        "network/crosstraffic": "no",  # Acknowledgements have no share of the reverse path.
        "network/latency-factor": "1",
        "network/bandwidth-factor": "1",
        "network/weight-S": "0",  # shares do not depend on round-trip times
        "network/TCP-gamma": "1e30",  # Windows bound nothing.
        "maxmin/precision": "1e-12",  # Nothing is free below this share of a link's capacity.
        "surf/precision": "1e-12",  # Two events within so many seconds are one.
    }
)
"""What makes the shares max-min fair, and as exact as ours."""

MODES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "lazy": {"network/optim": "Lazy"},
        "full": {"network/optim": "Full", "network/maxmin-selective-update": "no"},
        "full, selective": {"network/optim": "Full", "network/maxmin-selective-update": "yes"},
    }
)
"""How SimGrid updates actions: only those whose rate has changed, with a heap of their ends, or all; and how it solves shares:
over the links that a change can reach, or over all. Lazy updates are always selective."""


@dataclass(frozen=True, eq=False)
class DriverOutput:
    """A run of the driver. cpu_s: of the simulation alone. end_s: of each job."""

    cpu_s: float
    end_s: Floats


def build(cache: Path) -> Path:
    """Return the path of the driver in `cache`, built if it is not there. Raises `PlatformError` if it cannot be built."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise PlatformError("g++ is not installed", REMEDY)
    source = SOURCE.read_bytes()
    check = subprocess.run(
        [compiler, "-std=c++17", "-E", "-dM", "-x", "c++", "-include", "simgrid/version.h", "/dev/null"],
        capture_output=True, text=True,
    )  # fmt: skip
    if check.returncode:
        raise PlatformError("the headers of SimGrid (libsimgrid-dev) are not installed", REMEDY)
    version = version_of(check.stdout)
    if version != VERSION:
        raise PlatformError(f"SimGrid is {'.'.join(map(str, version))} here, and its driver needs 3.32", REMEDY)
    driver = cache / f"simgrid-driver-{sha256(source).hexdigest()[:12]}"
    if not driver.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = driver.with_suffix(".part")
        command = [compiler, "-std=c++17", "-O2", "-o", str(part), str(SOURCE), "-lsimgrid"]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode:
            raise PlatformError(f"the driver of SimGrid cannot be built: {built.stderr.strip()[-2000:]}", REMEDY)
        part.replace(driver)
    return driver


def version_of(macros: str) -> tuple[int, ...]:
    """Return the version of SimGrid that a list of macros defines; empty if it defines none."""
    found = (re.search(rf"#define SIMGRID_VERSION_{part} (\d+)", macros) for part in ("MAJOR", "MINOR"))
    return tuple(int(match[1]) for match in found if match)


def run(driver: Path, description: Path, mode: str) -> DriverOutput:
    """Run the driver in one of `MODES`. Raises `RuntimeError` if it fails, and `ValueError` if it prints something else."""
    options = [f"--cfg={key}:{value}" for key, value in {**MODEL, **MODES[mode]}.items()]
    command = [str(driver), str(description), "--log=root.thresh:warning", *options]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr.strip()[-2000:]}")
    return parse(ended.stdout)


def parse(output: str) -> DriverOutput:
    """Read what the driver prints: a line `cpu SECONDS`, then the end of each job. Raises `ValueError` for anything else."""
    first, *ends = output.split("\n")
    word, _, seconds = first.partition(" ")
    if word != "cpu":
        raise ValueError(f"the driver of SimGrid printed {first!r}, not its CPU seconds")
    return DriverOutput(float(seconds), np.array([float(end) for end in ends if end], np.float64))
