"""Where there is no GPU: a stand-in of NVIDIA's driver and NVML, compiled, that carries the same paths.

It is that of the tests, which a checkout has beside this folder; no wheel has either. Programs hold memory there in name only,
and train with NumPy. What anything takes is what the stand-in is told, so that none of its figures is a GPU's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.nvidia.site import GIB, Card, PartSizes, environment
from tests.support.nvidia import cuda_standin, nvml_library

TOTAL_GIB = 24
SECONDS_PER_GIB: Mapping[str, float] = {"checkpoint": 0.06, "restore": 0.024}
"""A tenth of what an H200 was measured to take."""
CARD = Card("stand-in", TOTAL_GIB, "stand-in", "stand-in", "none")
PAUSE_S = 0.01
"""Of each iteration."""
SMALL = PartSizes(
    held_gib=(1.0, 3.0, 9.5, 21.5),
    bits=60,
    turn_gib=6.0,
    turns=200,
    quantum_s=1.0,
    short=20,
    long=100,
    rates=(0.00001, 0.0001, 0.001, 3.0, 0.01, 0.05, 0.2, 10.0),
    iterations=80,
    target_loss=0.5,
    patience_s=30.0,
)


@dataclass(frozen=True)
class StandInSite:
    """A GPU of the stand-in."""

    uuid: str
    env: Mapping[str, str]
    sizes: PartSizes = SMALL
    is_stand_in: bool = True
    device: str = "0"
    card: Card = CARD

    def program(self, rate: str, iterations: str, trace: str, gib: float = 0.0, small: bool = False) -> list[str]:
        """Return those of the deterministic trainer with memory of the stand-in."""
        command = ["-m", "eval.nvidia.stand_in_program", str(int(max(gib, 1.0) * GIB)), "--learning-rate", rate]
        return [*command, "--iterations", iterations, "--trace", trace, "--pause-s", str(PAUSE_S), "--batch-size", "64"]


def stand_in_site(directory: Path) -> StandInSite:
    """Compile the stand-in into a new directory. Raises `PlatformError` without a C compiler, or the packages of `nvidia`."""
    driver = cuda_standin.built(directory)
    nvml_library.built(directory)
    uuid = driver.device(0, TOTAL_GIB * GIB)
    for call, seconds in SECONDS_PER_GIB.items():
        driver.say(f"seconds-per-byte-{call}", seconds / GIB)
    variables = {"LD_LIBRARY_PATH": str(directory), cuda_standin.DIRECTORY: str(directory), "OPENBLAS_NUM_THREADS": "1"}
    return StandInSite(uuid, environment(**variables))
