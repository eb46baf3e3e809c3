"""A trace: coflows that arrive on a big switch of numbered ports."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MB = 2**20  # bytes of the formats' megabyte

Ports = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Coflow:
    """Flows that count as done together.

    id: its name in the file. release_s: its arrival, in seconds. src, dst, size_bytes: by flow; ports count from 0.
    """

    id: str
    release_s: float
    src: Ports
    dst: Ports
    size_bytes: Bytes


@dataclass(frozen=True, eq=False)
class Trace:
    """Coflows, in the order of the file, on a switch of `ports` ports."""

    ports: int
    coflows: tuple[Coflow, ...]
