"""A job's synchronisation as flows: the one definition that policies, the simulator and the emulated trainers share.

A synchronisation is a sequence of *phases*; each phase is one coflow, released when the phase before it is complete.
"""

from collections.abc import Callable
from dataclasses import dataclass

from beamer.errors import InputError, nearest
from beamer.fabric import Fabric
from beamer.model import JobSpec, Role, Worker
from beamer.units import frame_bytes


@dataclass(frozen=True)
class Transfer:
    """Payload bytes that one rank sends to another within a phase."""

    src_rank: int
    dst_rank: int
    size_bytes: float


Phase = tuple[Transfer, ...]
Collective = Callable[[tuple[Worker, ...], int], tuple[Phase, ...]]


def ring(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Ring all-reduce: every rank sends 2(w-1)/w * G to its successor. Raises `InputError` for a server among them."""
    if any(w.role is Role.SERVER for w in workers):
        raise InputError("workers", _roles(workers), "workers only for ring, which has no servers; parameter-server has")
    ranks = [w.rank for w in workers]
    count = len(ranks)
    if count < 2:
        return ()
    size = 2 * (count - 1) / count * sync_bytes
    return (tuple(Transfer(ranks[i], ranks[(i + 1) % count], size) for i in range(count)),)


def parameter_server(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Parameter server: G/q from every worker to each of q servers (push), then back (pull)."""
    servers = [w.rank for w in workers if w.role is Role.SERVER]
    trainers = [w.rank for w in workers if w.role is Role.WORKER]
    if not servers or not trainers:
        raise InputError("workers", _roles(workers), "at least one server and one worker for parameter-server")
    share = sync_bytes / len(servers)
    push = tuple(Transfer(w, s, share) for w in trainers for s in servers)
    pull = tuple(Transfer(s, w, share) for s in servers for w in trainers)
    return (push, pull)


def _roles(workers: tuple[Worker, ...]) -> list[tuple[int, str]]:
    return [(w.rank, w.role.value) for w in workers]


COLLECTIVES: dict[str, Collective] = {"ring": ring, "parameter-server": parameter_server}


def phases(spec: JobSpec) -> tuple[Phase, ...]:
    """Return the phases of one synchronisation of `spec`, sizes in payload bytes. Raises `InputError`."""
    try:
        collective = COLLECTIVES[spec.collective]
    except KeyError:
        raise InputError("collective", spec.collective, nearest(spec.collective, COLLECTIVES)) from None
    return collective(spec.workers, spec.sync_bytes)


def phase_seconds(spec: JobSpec, fabric: Fabric, plane: int) -> tuple[dict[int, float], ...]:
    """Return per phase the seconds it needs of each link alone, by position in `fabric.links`."""
    host_of = {w.rank: w.host for w in spec.workers}
    loads: list[dict[int, float]] = []
    for phase in phases(spec):
        load: dict[int, float] = {}
        for transfer in phase:
            bits = 8 * frame_bytes(transfer.size_bytes, fabric.mtu)
            for link in fabric.path(host_of[transfer.src_rank], host_of[transfer.dst_rank], plane):
                load[link] = load.get(link, 0.0) + bits / fabric.links[link].rate_bps
        loads.append(load)
    return tuple(loads)


def link_seconds(spec: JobSpec, fabric: Fabric, plane: int) -> dict[int, float]:
    """Return g[j,p]: seconds that one iteration of `spec` needs of each link alone, by position in `fabric.links`."""
    total: dict[int, float] = {}
    for load in phase_seconds(spec, fabric, plane):
        for link, seconds in load.items():
            total[link] = total.get(link, 0.0) + seconds
    return total


def synchronisation_seconds(spec: JobSpec, fabric: Fabric, plane: int) -> float:
    """Return Gamma_j: the seconds one synchronisation takes with the fabric to itself, phase after phase."""
    return sum(max(load.values(), default=0.0) for load in phase_seconds(spec, fabric, plane))
