"""The flows of jobs as arrays for the fluid network: from the synchronisations of a scenario's jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.collectives import phases
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprint
from beamer.network.job import JobSpec
from beamer.units import ETHERNET_HEADER, TCP_HEADERS, frame_bytes, segment


@dataclass(frozen=True, eq=False)
class Block:
    """Jobs with their phases, the flows of these and their hops, numbered from 0 within the block.

    Meaning and units as in `beamer.network.kernels.state`. load_first: where each job's entries start among the (job, link)
    pairs of its footprint. hop_load: the pair of every hop, -1 for a hop outside the footprint. Links after the fabric's, if
    any, hold the senders of jobs to their caps: sender_first: where those of each job start; sender_rate: what each sends at
    relative to the busiest; sender_most: without a cap, bit/s.
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
    sender_first: Ints | None = None
    sender_rate: Floats | None = None
    sender_most: Floats | None = None


class Routes:
    """The paths of flows on a fabric, numbered, and the bits that flows put on their links.

    acknowledgements: whether each flow carries, on top of its own bits, as many of acknowledgements as it causes in the other
    direction: exact where both directions are equally loaded. To load the reverse path itself would bind the flow to that
    path's max-min level, which acknowledgements in the same queue do not do.
    caps: whether every sender of a job has a link of its own, which all that it sends for the job passes first.
    """

    def __init__(self, fabric: Fabric, acknowledgements: bool, caps: bool = False) -> None:
        _, frame = segment(fabric.mtu)
        self.fabric = fabric
        self._hops = fabric.next_hops
        acknowledging = (ETHERNET_HEADER + TCP_HEADERS) / (2 * frame)  # A receiver acknowledges every second segment.
        self._weight = 1 + acknowledging if acknowledgements else 1.0
        self._known: dict[tuple[str, str, int], tuple[int, ...]] = {}
        self._number: dict[tuple[int, ...], int] = {}
        self._caps = caps
        self._senders: list[dict[str, int]] = []  # by job, the link that each host has for it alone
        self._links = len(fabric.links)
        self._rate_of = {link.src: float(link.rate_bps) for link in fabric.links if link.src in fabric.host}

    def path(self, src: str, dst: str, plane: int) -> tuple[int, ...]:
        """Return the links of a flow between two hosts."""
        key = (src, dst, plane)
        if key not in self._known:
            self._known[key] = self.fabric.path(src, dst, plane, self._hops)
        return self._known[key]

    def bits(self, size_bytes: float) -> float:
        """Return the bits that so many payload bytes put on every link of a path."""
        return 8 * frame_bytes(size_bytes, self.fabric.mtu) * self._weight

    def lose(self, cables: Collection[tuple[str, str]]) -> None:
        """Route all flows around dead cables from now on."""
        self._hops = self.fabric.next_hops.around(cables)
        self._known.clear()

    def of_job(self, spec: JobSpec, plane: int, number: int) -> list[tuple[int, ...]]:
        """Return the links of the flows of the job that `block` took as the `number`-th, from 0, phase after phase."""
        host_of = {worker.rank: worker.host for worker in spec.workers}
        transfers = (transfer for phase in phases(spec) for transfer in phase)
        return [self._flow(host_of[t.src_rank], host_of[t.dst_rank], plane, self._senders[number]) for t in transfers]

    def _flow(self, src: str, dst: str, plane: int, senders: Mapping[str, int]) -> tuple[int, ...]:
        path = self.path(src, dst, plane)
        return (senders[src], *path) if path and src in senders else path

    def number(self, path: tuple[int, ...]) -> int:
        """Return the number of a path; equal ones have an equal number."""
        return self._number.setdefault(path, len(self._number))

    def block(self, specs: Sequence[tuple[JobSpec, int]], footprints: Sequence[Footprint]) -> Block:
        """Return jobs given as (spec, plane), in the order given; sizes as on the wire."""
        hop_link: list[int] = []
        hop_load: list[int] = []
        hops: list[int] = [0]
        path: list[int] = []
        size: list[float] = []
        flow_job: list[int] = []
        phase_first = [0]
        job_phase = [0]
        load_first = [0]
        sender_first = [0]
        sender_rate: list[float] = []
        sender_most: list[float] = []
        for j, ((spec, plane), footprint) in enumerate(zip(specs, footprints, strict=True)):
            host_of = {worker.rank: worker.host for worker in spec.workers}
            load_of = {link: load_first[-1] + i for i, link in enumerate(footprint.link.tolist())}
            senders = {host: self._links + i for i, host in enumerate(footprint.sender_bps)} if self._caps else {}
            self._links += len(senders)
            self._senders.append(senders)
            busiest = max(footprint.sender_bps.values(), default=1.0)
            sender_rate += [footprint.sender_bps[host] / busiest for host in senders]
            sender_most += [self._rate_of[host] for host in senders]
            sender_first.append(len(sender_rate))
            for phase in phases(spec):
                for transfer in phase:
                    links = self._flow(host_of[transfer.src_rank], host_of[transfer.dst_rank], plane, senders)
                    hop_link += links
                    hop_load += [load_of.get(link, -1) for link in links]
                    hops.append(len(hop_link))
                    path.append(self.number(links))
                    size.append(self.bits(transfer.size_bytes))
                    flow_job.append(j)
                phase_first.append(len(size))
            job_phase.append(len(phase_first) - 1)
            load_first.append(load_first[-1] + len(footprint.link))
        return Block(
            hop_first=np.array(hops, np.int64),
            hop_link=np.array(hop_link, np.int64),
            hop_use=np.ones(len(hop_link)),
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
            sender_first=np.array(sender_first, np.int64),
            sender_rate=np.array(sender_rate, np.float64),
            sender_most=np.array(sender_most, np.float64),
        )
