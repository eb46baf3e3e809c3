"""The machine on which something is measured."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eval.arithmetic import arithmetic


@dataclass(frozen=True)
class Machine:
    """Where something was measured. load: running processes, the mean of the minute before.

    packages: versions by name, and what else decides how it rounds (`eval/arithmetic.py`).
    """

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    packages: Mapping[str, str]
    load: float

    @classmethod
    def here(cls, *packages: str) -> "Machine":
        """Return this machine. packages: whose versions matter."""
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        return cls(
            names[0] if names else platform.machine(),
            os.cpu_count() or 1,
            round(memory, 1),
            platform.platform(),
            platform.python_version(),
            {**{package: version(package) for package in packages}, **arithmetic()},
            round(os.getloadavg()[0], 2),
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Machine":
        """Return the machine that a results file names."""
        return cls(**{field.name: document[field.name] for field in fields(cls)})

    def __str__(self) -> str:
        packages = "".join(f", {name} {version}" for name, version in self.packages.items())
        size = f"{self.processor}, {self.cores} cores, {self.memory_gib:g} GiB"
        return f"{size}, {self.system}, Python {self.python}{packages}, load {self.load:g}"
