"""What one synchronisation of a job loads the network with: the one place where link loads are worked out.

Policies and the simulator read the footprint of a job on its plane, workloads scale computing by its duration, and the lower
bounds add up the same loads by other weights.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.collectives import phases
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.studies.model import Worker
from beamer.units import frame_bytes

MOST_REMEMBERED = 1 << 15  # footprints, of about 1 kB: several times the jobs that run at once

PathOf = Callable[[str, str], tuple[int, ...]]
"""(source host, destination host) -> the links between them, as positions in `fabric.links`; empty on one host."""

Weigh = Callable[[float, int], float]
"""(payload bytes of a transfer, link) -> what the transfer loads that link of its path with."""


def phase_loads(spec: JobSpec, path_of: PathOf, weigh: Weigh) -> tuple[dict[int, float], ...]:
    """Return the load of each phase of one synchronisation on each link that it uses, by position, in the unit of `weigh`."""
    host_of = {worker.rank: worker.host for worker in spec.workers}
    loads: list[dict[int, float]] = []
    for phase in phases(spec):
        load: dict[int, float] = {}
        for transfer in phase:
            for link in path_of(host_of[transfer.src_rank], host_of[transfer.dst_rank]):
                load[link] = load.get(link, 0.0) + weigh(transfer.size_bytes, link)
        loads.append(load)
    return tuple(loads)


def phase_seconds(spec: JobSpec, fabric: Fabric, plane: int) -> tuple[dict[int, float], ...]:
    """Return the seconds that each phase of one synchronisation needs of each link alone, by position in `fabric.links`.

    Sizes are those on the wire, headers of frames included and acknowledgements not.
    """

    def seconds(size_bytes: float, link: int) -> float:
        return 8 * frame_bytes(size_bytes, fabric.mtu) / fabric.links[link].rate_bps

    return phase_loads(spec, partial(fabric.path, plane=plane), seconds)


@dataclass(frozen=True, eq=False)
class Footprint:
    """What one iteration of a job needs of the network.

    link, seconds: the time that it needs of each link alone (g[j,p]); links ascending. gamma_s: the duration of the
    synchronisation with the fabric to itself, phase after phase (Gamma_j). size_bits, longest_bits: of all its flows between
    hosts, of the largest. sender_bps: the most that each host that sends does so at, with the fabric to itself. receivers: how
    many hosts receive.
    """

    link: Ints
    seconds: Floats
    gamma_s: float
    size_bits: float
    longest_bits: float
    sender_bps: Mapping[str, float]
    receivers: int

    @property
    def senders(self) -> int:
        """How many hosts send."""
        return len(self.sender_bps)


@dataclass
class Footprints:
    """The footprints of jobs on a fabric, each computed once for all jobs that synchronise alike.

    The `MOST_REMEMBERED` that were asked for last are kept: bytes that are learnt come in ever new sizes.
    """

    fabric: Fabric
    _known: OrderedDict[tuple[tuple[Worker, ...], int, str, int], Footprint] = field(
        default_factory=OrderedDict, compare=False, repr=False
    )
    _found: OrderedDict[tuple[int, int, str, int], tuple[tuple[Worker, ...], Footprint]] = field(
        default_factory=OrderedDict, compare=False, repr=False
    )

    def of(self, spec: JobSpec, plane: int) -> Footprint:
        """Return the footprint of a job on the paths of `plane`."""
        # An attempt's workers stay the same object; their hash takes time that grows with their number.
        key = (id(spec.workers), spec.sync_bytes, spec.collective, plane)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = spec.workers, self._of_alike(spec, plane)
            if len(self._found) > MOST_REMEMBERED:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(key)
        return found[1]

    def _of_alike(self, spec: JobSpec, plane: int) -> Footprint:
        key = (spec.workers, spec.sync_bytes, spec.collective, plane)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _footprint(spec, self.fabric, plane)
            if len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


def _footprint(spec: JobSpec, fabric: Fabric, plane: int) -> Footprint:
    total: dict[int, float] = {}
    gamma_s = 0.0
    sender_bps: dict[str, float] = {}
    for load in phase_seconds(spec, fabric, plane):
        alone_s = max(load.values(), default=0.0)
        gamma_s += alone_s
        for link, seconds in load.items():
            total[link] = total.get(link, 0.0) + seconds
            ends = fabric.links[link]
            if seconds > 0 and ends.src in fabric.host:
                sender_bps[ends.src] = max(sender_bps.get(ends.src, 0.0), ends.rate_bps * seconds / alone_s)
    links = sorted(link for link, seconds in total.items() if seconds > 0)
    host_of = {worker.rank: worker.host for worker in spec.workers}
    transfers = [transfer for phase in phases(spec) for transfer in phase]
    between_hosts = [t for t in transfers if host_of[t.src_rank] != host_of[t.dst_rank]]
    bits = [8 * frame_bytes(t.size_bytes, fabric.mtu) for t in between_hosts]
    return Footprint(
        link=np.array(links, np.int64),
        seconds=np.array([total[link] for link in links]),
        gamma_s=gamma_s,
        size_bits=sum(bits, 0.0),
        longest_bits=max(bits, default=0.0),
        sender_bps=sender_bps,
        receivers=len({host_of[t.dst_rank] for t in between_hosts}),
    )
