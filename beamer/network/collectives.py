"""A job's synchronisation as flows: the one definition that policies, the simulator and the emulated trainers share.

A synchronisation is a sequence of *phases*; each phase is one coflow, released when the phase before it is complete. A
collective gives them as columns, since all-to-all among 128 workers has 16 256 transfers in each of two.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beamer.errors import InputError, nearest
from beamer.network.arrays import Ints
from beamer.network.job import JobSpec
from beamer.studies.model import Role, Worker


@dataclass(frozen=True)
class Transfer:
    """Payload bytes that one rank sends to another within a phase."""

    src_rank: int
    dst_rank: int
    size_bytes: float


@dataclass(frozen=True, eq=False)
class Exchange:
    """A phase as columns. src, dst: of its transfers, positions among the workers. size_bytes: of each of them."""

    src: Ints
    dst: Ints
    size_bytes: float


Phase = tuple[Transfer, ...]
Collective = Callable[[tuple[Worker, ...], int], tuple[Exchange, ...]]


def ring(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Exchange, ...]:
    """Ring all-reduce: every rank sends 2(w-1)/w * G to its successor. Raises `InputError` for a server among them.

    Patarasuk, Yuan 2009 (J. Parallel Distrib. Comput. 69). Their 2(w-1) steps, each G/w, are one phase here, as an iteration
    waits for all of them and neighbours pipeline them.
    """
    count = _count(workers, "ring")
    if count < 2:
        return ()
    return (_to_successors(count, 2 * (count - 1) / count * sync_bytes),)


def halving_doubling(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Exchange, ...]:
    """Halving-doubling all-reduce: in round k every rank exchanges G/2^(k+1) with its partner at distance 2^k, then all back.

    2 log2(w) rounds, each a phase: reduce-scatter by halving, so that most bytes stay among neighbours, then all-gather by
    doubling in reverse order. Sends as many bytes as `ring`. Raises `InputError` for a server and unless w is a power of two.
    Thakur, Rabenseifner, Gropp 2005 (Int. J. High Perform. Comput. Appl. 19).
    """
    count = _count(workers, "halving-doubling")
    if count & (count - 1) or not count:
        raise InputError("workers", count, "a power of two for halving-doubling, whose ranks pair up in every round")
    everyone = np.arange(count)
    rounds = range(count.bit_length() - 1)
    halving = tuple(Exchange(everyone, everyone ^ (1 << k), sync_bytes / 2 ** (k + 1)) for k in rounds)
    return halving + halving[::-1]


def fsdp(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Exchange, ...]:
    """Fully sharded data parallelism: all-gather, all-gather, reduce-scatter, each (w-1)/w * G to the successor.

    The parameters are gathered for the forward and again for the backward pass, then the gradients are scattered: three phases.
    Raises `InputError` for a server among them. Rajbhandari et al. 2020 (SC, ZeRO stage 3), Zhao et al. 2023 (PVLDB 16, FSDP).
    """
    count = _count(workers, "fsdp")
    if count < 2:
        return ()
    return (_to_successors(count, (count - 1) / count * sync_bytes),) * 3


def all_to_all(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Exchange, ...]:
    """Expert parallelism: every rank sends G/w to every other (dispatch), then as much again (combine).

    G: bytes of one rank's tokens. Raises `InputError` for a server among them. Lepikhin et al. 2021 (ICLR, GShard).
    """
    count = _count(workers, "all-to-all")
    if count < 2:
        return ()
    src, other = np.divmod(np.arange(count * (count - 1)), count - 1)
    return (Exchange(src, other + (other >= src), sync_bytes / count),) * 2


def parameter_server(workers: tuple[Worker, ...], sync_bytes: int) -> tuple[Exchange, ...]:
    """Parameter server: G/q from every worker to each of q servers (push), then back (pull). Li et al. 2014 (OSDI)."""
    servers = np.array([i for i, w in enumerate(workers) if w.role is Role.SERVER], np.int64)
    trainers = np.array([i for i, w in enumerate(workers) if w.role is Role.WORKER], np.int64)
    if not len(servers) or not len(trainers):
        raise InputError("workers", _roles(workers), "at least one server and one worker for parameter-server")
    share = sync_bytes / len(servers)
    return (_to_each(trainers, servers, share), _to_each(servers, trainers, share))


def _count(workers: tuple[Worker, ...], collective: str) -> int:
    if any(w.role is Role.SERVER for w in workers):
        expected = f"workers only for {collective}, which has no servers; parameter-server has"
        raise InputError("workers", _roles(workers), expected)
    return len(workers)


def _to_successors(count: int, size_bytes: float) -> Exchange:
    return Exchange(np.arange(count), np.arange(1, count + 1) % count, size_bytes)


def _to_each(senders: Ints, receivers: Ints, size_bytes: float) -> Exchange:
    return Exchange(np.repeat(senders, len(receivers)), np.tile(receivers, len(senders)), size_bytes)


def _roles(workers: tuple[Worker, ...]) -> list[tuple[int, str]]:
    return [(w.rank, w.role.value) for w in workers]


PARAMETER_SERVER = "parameter-server"
"""The collective that has servers."""

COLLECTIVES: dict[str, Collective] = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    PARAMETER_SERVER: parameter_server,
    "fsdp": fsdp,
    "all-to-all": all_to_all,
}

_TRANSFERS: dict[str, Callable[[int, int], int]] = {
    "ring": lambda workers, servers: workers,
    "halving-doubling": lambda workers, servers: workers * max(workers.bit_length() - 1, 0),
    PARAMETER_SERVER: lambda workers, servers: workers * servers,
    "fsdp": lambda workers, servers: workers,
    "all-to-all": lambda workers, servers: workers * (workers - 1),
}


def different_transfers(collective: str, workers: int, servers: int) -> int:
    """Return how many transfers the phases of a collective have together at most, without making them; 0 for an unknown one.

    Of phases between the same pairs of ranks, of which there are two or three, one is counted.
    """
    count = _TRANSFERS.get(collective)
    return 0 if count is None else count(workers, servers)


SIZES_TRIED = 3
"""Numbers of workers one after another: one of any three is no power of two, and only that and roles matter to collectives."""


def check_sizes(field: str, name: str, least: int, most: int, has_servers: bool = False) -> None:
    """Check that a collective can run among every number of workers of a job that may be resized.

    field: that names the collective, for the error. has_servers: whether servers are among them.
    Raises `InputError` for one that is unknown or cannot.
    """
    if name not in COLLECTIVES:
        raise InputError(field, name, nearest(name, COLLECTIVES))
    servers = (Worker(-1, "", Role.SERVER),) if has_servers else ()
    for count in range(least, min(most, least + SIZES_TRIED - 1) + 1):
        try:
            COLLECTIVES[name]((*(Worker(rank, "") for rank in range(count)), *servers), 0)
        except InputError as error:
            raise InputError(field, name, f"one that runs among {count} workers ({error.expected})") from error


def exchanges(spec: JobSpec) -> tuple[Exchange, ...]:
    """Return the phases of one synchronisation of `spec` as columns, sizes in payload bytes. Raises `InputError`."""
    try:
        collective = COLLECTIVES[spec.collective]
    except KeyError:
        raise InputError("collective", spec.collective, nearest(spec.collective, COLLECTIVES)) from None
    return collective(spec.workers, spec.sync_bytes)


def phases(spec: JobSpec) -> tuple[Phase, ...]:
    """Return the phases of one synchronisation of `spec`, sizes in payload bytes. Raises `InputError`."""
    rank = [worker.rank for worker in spec.workers]
    return tuple(
        tuple(Transfer(rank[i], rank[j], phase.size_bytes) for i, j in zip(phase.src.tolist(), phase.dst.tolist(), strict=True))
        for phase in exchanges(spec)
    )
