"""A job's synchronisation as flows: the one definition that policies, the simulator and the emulated trainers share.

A synchronisation is a sequence of *phases*; each phase is one coflow, released when the phase before it is complete.
"""

from collections.abc import Callable
from dataclasses import dataclass

from beamer.errors import InputError, nearest
from beamer.network.job import JobSpec
from beamer.studies.model import Role, Worker


@dataclass(frozen=True)
class Transfer:
    """Payload bytes that one rank sends to another within a phase."""

    src_rank: int
    dst_rank: int
    size_bytes: float


Phase = tuple[Transfer, ...]
Collective = Callable[[tuple[Worker, ...], int], tuple[Phase, ...]]


def ring(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Ring all-reduce: every rank sends 2(w-1)/w * G to its successor. Raises `InputError` for a server among them.

    Patarasuk, Yuan 2009 (J. Parallel Distrib. Comput. 69). Their 2(w-1) steps, each G/w, are one phase here, as an iteration
    waits for all of them and neighbours pipeline them.
    """
    ranks = _ranks(workers, "ring")
    count = len(ranks)
    if count < 2:
        return ()
    return (_to_successors(ranks, 2 * (count - 1) / count * sync_bytes),)


def halving_doubling(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Halving-doubling all-reduce: in round k every rank exchanges G/2^(k+1) with its partner at distance 2^k, then all back.

    2 log2(w) rounds, each a phase: reduce-scatter by halving, so that most bytes stay among neighbours, then all-gather by
    doubling in reverse order. Sends as many bytes as `ring`. Raises `InputError` for a server and unless w is a power of two.
    Thakur, Rabenseifner, Gropp 2005 (Int. J. High Perform. Comput. Appl. 19).
    """
    ranks = _ranks(workers, "halving-doubling")
    count = len(ranks)
    if count & (count - 1) or not count:
        raise InputError("workers", count, "a power of two for halving-doubling, whose ranks pair up in every round")
    halving = tuple(
        tuple(Transfer(rank, ranks[i ^ (1 << k)], sync_bytes / 2 ** (k + 1)) for i, rank in enumerate(ranks))
        for k in range(count.bit_length() - 1)
    )
    return halving + halving[::-1]


def fsdp(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Fully sharded data parallelism: all-gather, all-gather, reduce-scatter, each (w-1)/w * G to the successor.

    The parameters are gathered for the forward and again for the backward pass, then the gradients are scattered: three phases.
    Raises `InputError` for a server among them. Rajbhandari et al. 2020 (SC, ZeRO stage 3), Zhao et al. 2023 (PVLDB 16, FSDP).
    """
    ranks = _ranks(workers, "fsdp")
    count = len(ranks)
    if count < 2:
        return ()
    return (_to_successors(ranks, (count - 1) / count * sync_bytes),) * 3


def all_to_all(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Expert parallelism: every rank sends G/w to every other (dispatch), then as much again (combine).

    G: bytes of one rank's tokens. Raises `InputError` for a server among them. Lepikhin et al. 2021 (ICLR, GShard).
    """
    ranks = _ranks(workers, "all-to-all")
    if len(ranks) < 2:
        return ()
    share = sync_bytes / len(ranks)
    return (tuple(Transfer(a, b, share) for a in ranks for b in ranks if a != b),) * 2


def parameter_server(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Phase, ...]:
    """Parameter server: G/q from every worker to each of q servers (push), then back (pull). Li et al. 2014 (OSDI)."""
    servers = [w.rank for w in workers if w.role is Role.SERVER]
    trainers = [w.rank for w in workers if w.role is Role.WORKER]
    if not servers or not trainers:
        raise InputError("workers", _roles(workers), "at least one server and one worker for parameter-server")
    share = sync_bytes / len(servers)
    push = tuple(Transfer(w, s, share) for w in trainers for s in servers)
    pull = tuple(Transfer(s, w, share) for s in servers for w in trainers)
    return (push, pull)


def _ranks(workers: tuple[Worker, ...], collective: str) -> list[int]:
    if any(w.role is Role.SERVER for w in workers):
        expected = f"workers only for {collective}, which has no servers; parameter-server has"
        raise InputError("workers", _roles(workers), expected)
    return [w.rank for w in workers]


def _to_successors(ranks: list[int], size_bytes: float) -> Phase:
    return tuple(Transfer(rank, ranks[(i + 1) % len(ranks)], size_bytes) for i, rank in enumerate(ranks))


def _roles(workers: tuple[Worker, ...]) -> list[tuple[int, str]]:
    return [(w.rank, w.role.value) for w in workers]


COLLECTIVES: dict[str, Collective] = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    "parameter-server": parameter_server,
    "fsdp": fsdp,
    "all-to-all": all_to_all,
}

_TRANSFERS: dict[str, Callable[[int, int], int]] = {
    "ring": lambda workers, servers: workers,
    "halving-doubling": lambda workers, servers: workers * max(workers.bit_length() - 1, 0),
    "parameter-server": lambda workers, servers: workers * servers,
    "fsdp": lambda workers, servers: workers,
    "all-to-all": lambda workers, servers: workers * (workers - 1),
}


def different_transfers(collective: str, workers: int, servers: int) -> int:
    """Return how many transfers the phases of a collective have together at most, without making them; 0 for an unknown one.

    Of phases between the same pairs of ranks, of which there are two or three, one is counted.
    """
    count = _TRANSFERS.get(collective)
    return 0 if count is None else count(workers, servers)


def phases(spec: JobSpec) -> tuple[Phase, ...]:
    """Return the phases of one synchronisation of `spec`, sizes in payload bytes. Raises `InputError`."""
    try:
        collective = COLLECTIVES[spec.collective]
    except KeyError:
        raise InputError("collective", spec.collective, nearest(spec.collective, COLLECTIVES)) from None
    return collective(spec.workers, spec.sync_bytes)
