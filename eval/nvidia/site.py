"""What parts of the experiment run on: a GPU with its programs and sizes. `stand_in.py` has another one, without a GPU."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from beamer.errors import InputError, PlatformError
from beamer.nvidia.checkpoint import EXTRA
from beamer.nvidia.inventory import Gpu, Lack, NoGpus
from beamer.nvidia.nvml import open_nvml

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
DEVICE_FILE = Path("/dev/nvidiactl")
"""There where NVIDIA's driver is loaded."""
BINDINGS = "cuda-bindings"
VERSIONS = "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda or '', torch.cuda.is_available()]))"
VERSIONS_S = 120.0


@dataclass(frozen=True)
class Card:
    """A GPU, and what drives it. memory_gib: its memory. cuda: the version that PyTorch was built for."""

    name: str
    memory_gib: float
    driver: str
    cuda: str
    torch: str

    def __str__(self) -> str:
        return f"{self.name}, {self.memory_gib:.0f} GiB, driver {self.driver}, CUDA {self.cuda}, PyTorch {self.torch}"


@dataclass(frozen=True)
class PartSizes:
    """How large the parts are.

    held_gib: of programs that are checkpointed. bits: iterations of the run with three checkpoints. turn_gib, turns, quantum_s:
    of each of the trials that take turns, iterations, and how long a turn is. short, long: iterations of searches whose starts
    are measured, in turn and ahead: with `long` a trial lasts longer than the next one's start. rates, iterations, target_loss:
    of the search. patience_s: how long a program may take to its first iterations.
    """

    held_gib: tuple[float, ...]
    bits: int
    turn_gib: float
    turns: int
    quantum_s: float
    short: int
    long: int
    rates: tuple[float, ...]
    iterations: int
    target_loss: float
    patience_s: float


FULL = PartSizes(
    held_gib=(1.0, 3.0, 9.5, 21.5),
    bits=400,
    turn_gib=6.0,
    turns=330,
    quantum_s=3.0,
    short=60,
    long=800,
    rates=(0.00001, 0.0001, 0.001, 3.0, 0.01, 0.05, 0.2, 10.0),
    iterations=500,
    target_loss=0.75,
    patience_s=60.0,
)
TURN_RATE, WIDTH, NARROW = 0.01, 4096, 1024
"""Of trials that are compared to the last bit; of hidden layers; and of those where a gibibyte is to hold all."""


class Site(Protocol):
    """What parts run on."""

    @property
    def card(self) -> Card:
        """The GPU."""

    @property
    def is_stand_in(self) -> bool:
        """Whether there is no GPU."""

    @property
    def uuid(self) -> str:
        """What the driver calls the GPU."""

    @property
    def device(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it."""

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of what is started."""

    @property
    def sizes(self) -> PartSizes:
        """How large the parts are."""

    def program(self, rate: str, iterations: str, trace: str, gib: float = 0.0, small: bool = False) -> list[str]:
        """Return the arguments of Python that train. rate, iterations, trace: as text, with placeholders in search files."""


@dataclass(frozen=True)
class GpuSite:
    """The first GPU of this machine that is in no MIG mode."""

    card: Card
    uuid: str
    sizes: PartSizes = FULL
    is_stand_in: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: environment())

    @property
    def device(self) -> str:
        """Its UUID."""
        return self.uuid

    def program(self, rate: str, iterations: str, trace: str, gib: float = 0.0, small: bool = False) -> list[str]:
        """Return those of `eval.nvidia.training`."""
        command = ["-m", "eval.nvidia.training", "--rate", rate, "--iterations", iterations, "--trace", trace]
        return [*command, "--gib", f"{gib:g}", "--width", str(NARROW if small else WIDTH)]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, with the checkout among what Python finds."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def found_gpu() -> Gpu | NoGpus:
    """Return the first GPU that can be used whole, with why there is none.

    Raises `PlatformError` where the machine shows that it has one, and something is missing.
    """
    nvml = open_nvml()
    if isinstance(nvml, NoGpus):
        return _checked(nvml)
    with nvml:
        found = nvml.inventory()
    if isinstance(found, NoGpus):
        return _checked(found)
    whole = [gpu for gpu in found.gpus if not gpu.in_mig_mode]
    if not whole:
        raise PlatformError("all GPUs are in MIG mode", "run it on a GPU that is not, or with --stand-in")
    return whole[0]


def gpu_site(gpu: Gpu) -> GpuSite:
    """Return what parts run on with a GPU. Raises `PlatformError` for what is missing beside it."""
    torch, cuda, is_available = _versions()
    if not is_available:
        raise PlatformError(f"PyTorch {torch} finds no GPU", "install its build for the CUDA of the driver")
    try:
        version(BINDINGS)
    except PackageNotFoundError as error:
        raise PlatformError(f"the package {BINDINGS} is missing", EXTRA) from error
    if gpu.total_bytes is None:
        raise PlatformError(f"the driver does not say how much memory {gpu.name} has", "see nvidia-smi")
    return GpuSite(Card(gpu.name, gpu.total_bytes / GIB, _driver(), cuda, torch), gpu.uuid)


def _checked(missing: NoGpus) -> NoGpus:
    if missing.lack is not Lack.GPU and DEVICE_FILE.exists():
        raise PlatformError(f"the GPUs of this machine are not known: {missing.reason}", "mend that, or run it with --stand-in")
    return missing


def _driver() -> str:
    nvml = open_nvml()
    if isinstance(nvml, NoGpus):
        raise PlatformError(nvml.reason, "see nvidia-smi")
    with nvml:
        return nvml.driver


def _versions() -> tuple[str, str, bool]:
    """Ask a process of its own, as PyTorch would go on holding the driver."""
    command = [sys.executable, "-c", VERSIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=VERSIONS_S, check=False)
    if done.returncode:
        raise PlatformError("PyTorch cannot be imported", f"install its build for CUDA ({done.stderr.strip()[-200:]})")
    found: list[Any] = json.loads(done.stdout)
    return found[0], found[1], bool(found[2])


def fitting(sizes_gib: tuple[float, ...], card: Card) -> tuple[float, ...]:
    """Return the sizes that a card has room for. Raises `InputError` where it has none."""
    found = tuple(size for size in sizes_gib if size <= 0.9 * card.memory_gib)  # The driver and its processes hold some, too.
    if not found:
        raise InputError("GPU", str(card), f"one with more than {min(sizes_gib):g} GiB")
    return found
