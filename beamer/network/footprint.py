"""What one synchronisation of a job loads the network with: the one place where link loads are worked out.

Policies and the simulator read the footprint of a job on its plane, workloads scale computing by its duration, and the lower
bounds add up the same loads by other weights.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, repeat

import numpy as np

from beamer.errors import InputError
from beamer.network.arrays import Floats, Ints
from beamer.network.collectives import Exchange, exchanges
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.network.next_hops import NextHops
from beamer.studies.model import Worker
from beamer.units import frame_bytes

MAX_REMEMBERED = 1 << 15  # So many footprints, of about 1 kB each, are several times the jobs that run at once.

PathOf = Callable[[str, str], tuple[int, ...]]
"""(source host, destination host) -> the links between them, as positions in `fabric.links`; empty on one host."""

Weigh = Callable[[float, int], float]
"""(payload bytes of a transfer, link) -> what the transfer loads that link of its path with."""


def phase_loads(spec: JobSpec, path_of: PathOf, weigh: Weigh) -> tuple[dict[int, float], ...]:
    """Return the load of each phase of one synchronisation on each link that it uses, by position, in the unit of `weigh`."""
    return tuple(use.loads(weigh) for use in _phase_uses(spec, path_of))


def _seconds(fabric: Fabric, size_bytes: float, link: int) -> float:
    return 8 * frame_bytes(size_bytes, fabric.mtu) / fabric.links[link].rate_bps


@dataclass(frozen=True, eq=False)
class _PhaseUse:
    """What a phase uses: worked out by pair of hosts, of which there are far fewer than transfers.

    transfers: how many of them use each link, by position. size_bytes: of each. between: how many are between hosts. senders,
    receivers: of these, in the order of their first transfers.
    """

    transfers: Mapping[int, int]
    size_bytes: float
    between: int
    senders: tuple[str, ...]
    receivers: tuple[str, ...]

    @classmethod
    def of(cls, phase: Exchange, host: Sequence[str], path_of: PathOf) -> "_PhaseUse":
        """Return the use that a phase makes of links. host: of each worker."""
        names = list(dict.fromkeys(host))
        number = {name: i for i, name in enumerate(names)}
        of_worker = np.array([number[name] for name in host], np.int64)
        src, dst = of_worker[phase.src], of_worker[phase.dst]
        pairs = Counter((src * len(names) + dst)[src != dst].tolist())
        transfers: dict[int, int] = {}
        for pair, count in pairs.items():
            for link in path_of(names[pair // len(names)], names[pair % len(names)]):
                transfers[link] = transfers.get(link, 0) + count
        senders = dict.fromkeys(pair // len(names) for pair in pairs)
        receivers = dict.fromkeys(pair % len(names) for pair in pairs)
        return cls(
            transfers,
            phase.size_bytes,
            pairs.total(),
            tuple(names[i] for i in senders),
            tuple(names[i] for i in receivers),
        )

    def loads(self, weigh: Weigh) -> dict[int, float]:
        """Return the load on each link, one transfer's added to the others'."""
        weight = {link: weigh(self.size_bytes, link) for link in self.transfers}
        most: dict[float, int] = {}  # the most transfers on a link, by what each loads it with; links have few different rates
        for link, count in self.transfers.items():
            most[weight[link]] = max(count, most.get(weight[link], 0))
        sums = {one: list(accumulate(repeat(one, count))) for one, count in most.items()}
        return {link: sums[weight[link]][count - 1] for link, count in self.transfers.items()}


def _phase_uses(spec: JobSpec, path_of: PathOf) -> list[_PhaseUse]:
    """Return the use of each phase of a synchronisation; a phase that comes again is worked out once."""
    host = [worker.host for worker in spec.workers]
    known: dict[int, _PhaseUse] = {}
    found: list[_PhaseUse] = []
    for phase in exchanges(spec):
        if id(phase) not in known:
            known[id(phase)] = _PhaseUse.of(phase, host, path_of)
        found.append(known[id(phase)])
    return found


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

    The `MAX_REMEMBERED` that were asked for last are kept: bytes that are learnt come in ever new sizes.
    """

    fabric: Fabric
    hops: NextHops | None = None
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
            if len(self._found) > MAX_REMEMBERED:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(key)
        return found[1]

    def _path(self, src: str, dst: str, plane: int) -> tuple[int, ...]:
        """Return a path; where none is left, the one that there was."""
        try:
            return self.fabric.path(src, dst, plane, self.hops)
        except InputError:
            return self.fabric.path(src, dst, plane)

    def _of_alike(self, spec: JobSpec, plane: int) -> Footprint:
        key = (spec.workers, spec.sync_bytes, spec.collective, plane)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _footprint(spec, self.fabric, partial(self._path, plane=plane))
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


def _footprint(spec: JobSpec, fabric: Fabric, path: PathOf) -> Footprint:
    total: dict[int, float] = {}
    gamma_s = 0.0
    sender_bps: dict[str, float] = {}
    bits: list[float] = []
    receivers: set[str] = set()
    for use in _phase_uses(spec, path):
        load = use.loads(partial(_seconds, fabric))
        alone_s = max(load.values(), default=0.0)
        gamma_s += alone_s
        for link, seconds in load.items():
            total[link] = total.get(link, 0.0) + seconds
        for host in use.senders:
            link = fabric.uplink[host]
            if load[link] > 0:
                sender_bps[host] = max(sender_bps.get(host, 0.0), fabric.links[link].rate_bps * load[link] / alone_s)
        bits += [8 * frame_bytes(use.size_bytes, fabric.mtu)] * use.between
        receivers.update(use.receivers)
    links = sorted(link for link, seconds in total.items() if seconds > 0)
    return Footprint(
        link=np.array(links, np.int64),
        seconds=np.array([total[link] for link in links]),
        gamma_s=gamma_s,
        size_bits=sum(bits, 0.0),
        longest_bits=max(bits, default=0.0),
        sender_bps=sender_bps,
        receivers=len(receivers),
    )
