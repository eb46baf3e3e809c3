"""An emulated training process: pauses to compute, moves real gradient bytes over TCP, checks the sum it received.

It registers nothing about its sockets: it attaches its process to its trial and reports steps through `beamer.client`, as any
trainer would. Ring all-reduce and parameter server follow `beamer.network.collectives`.
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from beamer.client import Client
from beamer.network.collectives import phases
from beamer.network.job import JobSpec
from beamer.studies.model import Role
from beamer.workloads.scenario import UNSCALED_WINDOW_BYTES, TransportSettings

CONNECT_PATIENCE_S = 20.0
STALL_PATIENCE_S = 60.0
WAKE_BYTES = 32768  # a process woken for every packet would take the processor from the network
REPORT_PATIENCE_S = 30.0  # at the end, for a controller that is being restarted

Gradient = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TrainerTask:
    """What one process runs.

    run: of the study. addresses, ports: where each rank listens, by rank. controller: URL of the API. start_up_s: from having
    connected to the first iteration, which takes a framework longer than it takes connections to get their class. done: steps
    that the trial has completed before.
    """

    study: str
    run: str
    spec: JobSpec
    rank: int
    addresses: tuple[str, ...]
    ports: tuple[int, ...]
    controller: str
    start_up_s: float
    transport: TransportSettings
    done: int = 0


_TRAINER_TASK = TypeAdapter(TrainerTask)  # built once, before launchers fork


class Mesh:
    """This rank's connections to the peers it exchanges bytes with, by rank."""

    def __init__(self, peers: dict[int, socket.socket]) -> None:
        self.peers = peers
        self._lowat: dict[int, int] = {}
        for peer in peers.values():
            peer.setblocking(False)

    def transfer(
        self,
        outgoing: dict[int, memoryview],
        incoming: dict[int, memoryview],
        allowed: Callable[[int], int] | None = None,
        arrived: Callable[[int], None] | None = None,
        wake_bytes: int = WAKE_BYTES,
    ) -> None:
        """Send and receive all of these at once.

        allowed: how many bytes of the one outgoing stream may be sent once so many bytes have arrived (default: all).
        arrived: called with the bytes received so far of the one incoming stream. wake_bytes: how many must have come in
        before the process wakes. Raises `TimeoutError`, `ConnectionError`.
        """
        sent, received = dict.fromkeys(outgoing, 0), dict.fromkeys(incoming, 0)
        with selectors.DefaultSelector() as selector:
            while True:
                total_in = sum(received.values())
                events: dict[int, int] = {}
                for rank, data in outgoing.items():
                    limit = len(data) if allowed is None else min(allowed(total_in), len(data))
                    if sent[rank] < limit:
                        events[rank] = events.get(rank, 0) | selectors.EVENT_WRITE
                for rank, data in incoming.items():
                    if received[rank] < len(data):
                        self._wake_at(rank, min(wake_bytes, len(data) - received[rank]))
                        events[rank] = events.get(rank, 0) | selectors.EVENT_READ
                if not events:
                    return
                self._register(selector, events)
                ready = selector.select(STALL_PATIENCE_S)
                if not ready:
                    raise TimeoutError(f"no byte moved for {STALL_PATIENCE_S} s with ranks {sorted(events)}")
                for key, mask in ready:
                    rank, peer = key.data, self.peers[key.data]
                    if mask & selectors.EVENT_WRITE:
                        limit = len(outgoing[rank]) if allowed is None else min(allowed(total_in), len(outgoing[rank]))
                        with suppress(BlockingIOError):  # less may be buffered than when it was told that it can be written to
                            sent[rank] += peer.send(outgoing[rank][sent[rank] : limit])
                    if mask & selectors.EVENT_READ:
                        count = peer.recv_into(incoming[rank][received[rank] :])
                        if count == 0:
                            raise ConnectionError(f"rank {rank} closed its connection")
                        received[rank] += count
                        if arrived is not None:
                            arrived(sum(received.values()))

    def _wake_at(self, rank: int, count: int) -> None:
        if self._lowat.get(rank) != count:
            self.peers[rank].setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._lowat[rank] = count

    def _register(self, selector: selectors.BaseSelector, events: dict[int, int]) -> None:
        registered = {key.data: key.events for key in selector.get_map().values()}
        for rank in registered.keys() - events.keys():
            selector.unregister(self.peers[rank])
        for rank, mask in events.items():
            if rank not in registered:
                selector.register(self.peers[rank], mask, rank)
            elif registered[rank] != mask:
                selector.modify(self.peers[rank], mask, rank)


def _bytes(values: Gradient) -> memoryview:
    return values.data.cast("B")


def ring_all_reduce(mesh: Mesh, rank: int, ranks: int, gradient: Gradient) -> None:
    """Sum `gradient` over all ranks in place by a pipelined ring.

    The 2(w-1) steps form one stream: the part of a step that has arrived and been added may be sent on as the next step.
    """
    if ranks < 2:
        return
    length = gradient.size // ranks
    step_bytes = 4 * length
    steps = 2 * (ranks - 1)
    chunk = [gradient[i * length : (i + 1) * length] for i in range(ranks)]
    inbox = np.empty(steps * length, dtype=np.float32)
    outbox = np.empty(steps * length, dtype=np.float32)
    outbox[:length] = chunk[rank]
    done = 0

    def reduce(received_bytes: int) -> None:
        nonlocal done
        available = received_bytes // 4
        while done < available:
            step, offset = divmod(done, length)
            upto = min(available, (step + 1) * length)
            count = upto - done
            target = chunk[(rank - step - 1) % ranks][offset : offset + count]
            if step < ranks - 1:
                target += inbox[done:upto]
            else:
                target[:] = inbox[done:upto]
            if step + 1 < steps:
                outbox[done + length : upto + length] = target
            done = upto

    mesh.transfer(
        {(rank + 1) % ranks: _bytes(outbox)},
        {(rank - 1) % ranks: _bytes(inbox)},
        allowed=lambda received: received // 4 * 4 + step_bytes,
        arrived=reduce,
        # A rank may send one step before it has received any byte: waiting for more than that could stop the ring.
        wake_bytes=min(WAKE_BYTES, step_bytes),
    )


def push_pull(mesh: Mesh, gradient: Gradient, servers: list[int]) -> None:
    """Send each server its slice of `gradient`, then receive the sums in place."""
    slices = dict(zip(servers, (_bytes(part) for part in np.array_split(gradient, len(servers))), strict=True))
    mesh.transfer(slices, {})
    mesh.transfer({}, slices)


def serve_slice(mesh: Mesh, size: int, workers: list[int]) -> None:
    """Receive `size` values from every worker, then send each the sum."""
    inbox = {w: np.empty(size, dtype=np.float32) for w in workers}
    mesh.transfer({}, {w: _bytes(data) for w, data in inbox.items()})
    total = np.zeros(size, dtype=np.float32)
    for data in inbox.values():
        total += data
    mesh.transfer(dict.fromkeys(workers, _bytes(total)), {})


def _prepare(connection: socket.socket, transport: TransportSettings) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, transport.congestion_control.encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, largest_window(transport.window_bytes))
    return connection


def largest_window(most_bytes: int) -> int:
    """Return the largest window of at most so many bytes that is kept.

    Linux raises a window that was clamped with the socket's buffer, up to what the scale that was agreed on can say: 65 535
    times a power of two.
    """
    return UNSCALED_WINDOW_BYTES << (most_bytes // UNSCALED_WINDOW_BYTES).bit_length() - 1


def _peers(spec: JobSpec, rank: int) -> tuple[list[int], list[int]]:
    """Return the ranks to connect to and the ranks to expect: of each pair, the one that sends first connects."""
    first: dict[frozenset[int], int] = {}
    for phase in phases(spec):
        for transfer in phase:
            first.setdefault(frozenset((transfer.src_rank, transfer.dst_rank)), transfer.src_rank)
    pairs = {pair: src for pair, src in first.items() if rank in pair}
    others = {pair: next(iter(pair - {rank})) for pair in pairs}
    dial = sorted(others[pair] for pair, src in pairs.items() if src == rank)
    expect = sorted(others[pair] for pair, src in pairs.items() if src != rank)
    return dial, expect


def _dial(address: tuple[str, int], rank: int, transport: TransportSettings) -> socket.socket:
    deadline = time.monotonic() + CONNECT_PATIENCE_S
    while True:
        connection = _prepare(socket.socket(socket.AF_INET, socket.SOCK_STREAM), transport)
        connection.settimeout(CONNECT_PATIENCE_S)
        try:
            connection.connect(address)
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # the peer has not opened its port yet
            continue
        connection.sendall(rank.to_bytes(4, "big"))
        return connection


def connect(task: TrainerTask) -> Mesh:
    """Connect this rank with all its peers. Raises `OSError` if one does not answer in time."""
    dial, expect = _peers(task.spec, task.rank)
    peers: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        _prepare(listener, task.transport).setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((task.addresses[task.rank], task.ports[task.rank]))
        listener.listen(64)
        listener.settimeout(CONNECT_PATIENCE_S)
        for rank in dial:
            peers[rank] = _dial((task.addresses[rank], task.ports[rank]), task.rank, task.transport)
        while not peers.keys() >= set(expect):
            connection, _ = listener.accept()
            _prepare(connection, task.transport).settimeout(CONNECT_PATIENCE_S)
            peers[int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")] = connection
    return Mesh(peers)


def _barrier(mesh: Mesh, dial: Iterable[int], expect: Iterable[int], rank: int) -> None:
    """Return on rank 0 only once every rank has called this."""
    token, inbox = memoryview(b"."), {r: memoryview(bytearray(1)) for r in expect}
    answers = {r: memoryview(bytearray(1)) for r in dial}
    if rank == 0:
        mesh.transfer(dict.fromkeys(dial, token), {})
        mesh.transfer({}, inbox or answers)
    else:
        mesh.transfer({}, inbox)
        mesh.transfer(dict.fromkeys(dial, token), {})
        if not dial:  # rank 0 connected here and waits for an answer
            mesh.transfer({0: token}, {})


def train(task: TrainerTask, client: Client) -> None:
    """Run the task's iterations. Raises `ArithmeticError` if a synchronised gradient is not the sum of all ranks'."""
    spec, rank = task.spec, task.rank
    trial = client.trial(task.study, spec.name, run=task.run)
    trial.attach(rank)
    mesh = connect(task)
    servers = [w.rank for w in spec.workers if w.role is Role.SERVER]
    workers = [w.rank for w in spec.workers if w.role is Role.WORKER]
    size = max(spec.sync_bytes // 4 // len(workers), 1) * len(workers)
    slice_sizes = [part.size for part in np.array_split(np.empty(size, dtype=np.bool_), max(len(servers), 1))]
    gradient = np.empty(size, dtype=np.float32)
    time.sleep(task.start_up_s)
    for iteration in range(1, spec.iterations + 1):
        if rank in servers:
            serve_slice(mesh, slice_sizes[servers.index(rank)], workers)
            continue
        began = time.monotonic()
        time.sleep((1 - spec.overlap) * spec.compute_s)
        gradient.fill(iteration * (workers.index(rank) + 1))
        if servers:
            push_pull(mesh, gradient, servers)
        else:
            ring_all_reduce(mesh, rank, len(workers), gradient)
        expected = np.float32(iteration * len(workers) * (len(workers) + 1) // 2)
        if not (gradient == expected).all():
            raise ArithmeticError(f"rank {rank}, iteration {iteration}: the gradient's sum is not {expected}")
        time.sleep(max(began + spec.compute_s - time.monotonic(), 0.0))
        if rank == 0 and iteration < spec.iterations:
            trial.progress(task.done + iteration)
    dial, expect = _peers(spec, rank)
    _barrier(mesh, dial, expect, rank)  # the last step is complete when every rank is through with it
    if rank == 0:
        trial.progress(task.done + spec.iterations)
        trial.pause()
    client.close(REPORT_PATIENCE_S)


def run(content: dict[str, Any], client: Client) -> None:
    """Run the task that `content` (JSON data of a `TrainerTask`) describes; `client` reports to its controller."""
    train(_TRAINER_TASK.validate_python(content), client)
