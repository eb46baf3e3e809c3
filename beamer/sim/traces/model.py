"""A trace: coflows that arrive on a big switch of numbered ports."""

from dataclasses import dataclass

from beamer.network.arrays import Floats, Ints

MB = 2**20  # bytes of the formats' megabyte


@dataclass(frozen=True, eq=False)
class Coflow:
    """Flows that count as done together.

    id: its name in the file. release_s: its arrival, in seconds. src, dst, size_bytes: by flow; ports count from 0.
    """

    id: str
    release_s: float
    src: Ints
    dst: Ints
    size_bytes: Floats


@dataclass(frozen=True, eq=False)
class Trace:
    """Coflows, in the order of the file, on a switch of `ports` ports."""

    ports: int
    coflows: tuple[Coflow, ...]
