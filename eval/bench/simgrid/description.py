"""Jobs as `driver.cpp` reads them, from the arrays that the fluid network itself takes: both simulate one and the same load.

A description is text, numbers at full precision:

    largest BITS                                            the largest size of a flow
    links N, then their capacities                          bit/s
    paths N, then of each: HOPS LINK...                     distinct lists of links
    jobs N, then of each: START ITERATIONS COMPUTE OVERLAP PHASES, and of each phase: FLOWS, then PATH BITS of each flow

Flows that the fluid network does not move, of size 0 or inside a host, are left out, and phases without any other.
"""

from collections.abc import Iterator

from beamer.errors import InputError
from beamer.network.arrays import Floats
from beamer.network.fluid.flows import Block


def describe(capacity: Floats, block: Block, start_s: Floats) -> str:
    """Describe the jobs of a block on links of `capacity` bit/s, the first iteration of each beginning at its `start_s`.

    Raises `InputError` for a flow that uses a link by anything but its own rate, and for senders with links of their own.
    """
    for use in block.hop_use[block.hop_use != 1].tolist():
        raise InputError("hop_use", use, "1, as the driver's flows use every link of a path by their own rate")
    if block.sender_most is not None and len(block.sender_most):
        raise InputError("sender_most", len(block.sender_most), "no sender with a link of its own")
    largest = float(block.size.max(initial=0.0))
    lines = [f"largest {largest!r}", f"links {len(capacity)}", " ".join(map(repr, capacity.tolist()))]
    paths: dict[tuple[int, ...], int] = {}
    jobs = [line for j in range(len(block.iterations)) for line in _job(block, j, float(start_s[j]), paths)]
    lines.append(f"paths {len(paths)}")
    lines += (" ".join(map(str, (len(path), *path))) for path in paths)
    lines.append(f"jobs {len(block.iterations)}")
    return "\n".join([*lines, *jobs]) + "\n"


def _job(block: Block, j: int, start_s: float, paths: dict[tuple[int, ...], int]) -> Iterator[str]:
    """Yield the lines of a job; enter new paths into `paths`."""
    phases = []
    for p in range(block.job_phase[j], block.job_phase[j + 1]):
        flows = []
        for f in range(block.phase_first[p], block.phase_first[p + 1]):
            path = tuple(block.hop_link[block.hop_first[f] : block.hop_first[f + 1]].tolist())
            if path and block.size[f] > 0:
                flows.append(f"{paths.setdefault(path, len(paths))} {float(block.size[f])!r}")
        if flows:
            phases.append(" ".join((str(len(flows)), *flows)))
    compute_s, overlap = float(block.compute[j]), float(block.overlap[j])
    yield f"{start_s!r} {int(block.iterations[j])} {compute_s!r} {overlap!r} {len(phases)}"
    yield from phases
