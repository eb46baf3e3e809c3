"""What jobs move, as the arrays that the engine takes: from the synchronisations of a scenario's jobs, or from a trace."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from beamer.collectives import phases
from beamer.fabric import Fabric
from beamer.model import JobSpec
from beamer.snapshot import Floats, Footprint, Ints
from beamer.units import ETHERNET_HEADER, TCP_HEADERS, frame_bytes, segment


@dataclass(frozen=True, eq=False)
class Block:
    """Jobs with their phases, the flows of these and their hops, numbered from 0 within the block.

    Meaning and units as in `beamer.kernels.state`. load_first: where each job's entries start among the (job, link)
    pairs of its footprint. hop_load: the pair of every hop, -1 for one that no policy knows of.
    """

    hop_first: Ints
    hop_link: Ints
    hop_use: Floats
    path: Ints
    size: Floats
    flow_job: Ints
    phase_first: Ints
    job_phase: Ints
    iterations: Ints
    compute: Floats
    overlap: Floats
    load_first: Ints
    hop_load: Ints


@dataclass(frozen=True)
class Usage:
    """A flow's hops: links, and the bit/s there for each bit/s of its rate."""

    links: tuple[int, ...]
    uses: tuple[float, ...]


class Routes:
    """The paths of flows on a fabric, numbered; acknowledgements load the way back if `acknowledgements`."""

    def __init__(self, fabric: Fabric, acknowledgements: bool) -> None:
        _, frame = segment(fabric.mtu)
        self.fabric = fabric
        self._alive = fabric
        self._link = tuple(range(len(fabric.links)))
        self._ack = (ETHERNET_HEADER + TCP_HEADERS) / (2 * frame) if acknowledgements else 0.0  # for every second segment
        self._known: dict[tuple[str, str, int], Usage] = {}
        self._number: dict[Usage, int] = {}

    def usage(self, src: str, dst: str, plane: int) -> Usage:
        """Return the hops of a flow between two hosts."""
        key = (src, dst, plane)
        if key not in self._known:
            use = {self._link[hop]: 1.0 for hop in self._alive.path(src, dst, plane)}
            if self._ack:
                for hop in self._alive.path(dst, src, plane):
                    use[self._link[hop]] = use.get(self._link[hop], 0.0) + self._ack
            self._known[key] = Usage(tuple(use), tuple(use.values()))
        return self._known[key]

    def lose(self, cables: Collection[tuple[str, str]]) -> None:
        """Lead all flows around dead cables from now on."""
        self._alive = self.fabric.without(cables)
        self._link = tuple(self.fabric.link_index[link.src, link.dst] for link in self._alive.links)
        self._known.clear()

    def of_job(self, spec: JobSpec, plane: int) -> list[Usage]:
        """Return the hops of a job's flows, phase after phase."""
        host_of = {worker.rank: worker.host for worker in spec.workers}
        transfers = (transfer for phase in phases(spec) for transfer in phase)
        return [self.usage(host_of[t.src_rank], host_of[t.dst_rank], plane) for t in transfers]

    def number(self, usage: Usage) -> int:
        """Return the number of a path; equal ones have an equal number."""
        return self._number.setdefault(usage, len(self._number))

    def block(self, specs: Sequence[tuple[JobSpec, int]], footprints: Sequence[Footprint]) -> Block:
        """Return jobs given as (spec, plane), in the order given; sizes as on the wire."""
        hop_link: list[int] = []
        hop_use: list[float] = []
        hop_load: list[int] = []
        hops: list[int] = [0]
        path: list[int] = []
        size: list[float] = []
        flow_job: list[int] = []
        phase_first = [0]
        job_phase = [0]
        load_first = [0]
        for j, ((spec, plane), foot) in enumerate(zip(specs, footprints, strict=True)):
            host_of = {worker.rank: worker.host for worker in spec.workers}
            load_of = {link: load_first[-1] + i for i, link in enumerate(foot.link.tolist())}
            for phase in phases(spec):
                for transfer in phase:
                    usage = self.usage(host_of[transfer.src_rank], host_of[transfer.dst_rank], plane)
                    hop_link += usage.links
                    hop_use += usage.uses
                    hop_load += [
                        load_of.get(link, -1) if use >= 1 else -1 for link, use in zip(usage.links, usage.uses, strict=True)
                    ]
                    hops.append(len(hop_link))
                    path.append(self.number(usage))
                    size.append(8 * frame_bytes(transfer.size_bytes, self.fabric.mtu))
                    flow_job.append(j)
                phase_first.append(len(size))
            job_phase.append(len(phase_first) - 1)
            load_first.append(load_first[-1] + len(foot.link))
        return Block(
            hop_first=np.array(hops, np.int64),
            hop_link=np.array(hop_link, np.int64),
            hop_use=np.array(hop_use, np.float64),
            path=np.array(path, np.int64),
            size=np.array(size, np.float64),
            flow_job=np.array(flow_job, np.int64),
            phase_first=np.array(phase_first, np.int64),
            job_phase=np.array(job_phase, np.int64),
            iterations=np.array([spec.iterations for spec, _ in specs], np.int64),
            compute=np.array([spec.compute_s for spec, _ in specs], np.float64),
            overlap=np.array([spec.overlap for spec, _ in specs], np.float64),
            load_first=np.array(load_first, np.int64),
            hop_load=np.array(hop_load, np.int64),
        )
