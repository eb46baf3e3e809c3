"""Real gradient bytes over TCP: the connections of a rank with its peers, and the collectives over them.

Imported by processes that start often: numpy and the standard library only. Ring all-reduce and parameter server follow
`beamer.network.collectives`.
"""

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beamer.units import UNSCALED_WINDOW_BYTES

CONNECT_PATIENCE_S = 20.0
STALL_PATIENCE_S = 60.0
WAKE_BYTES = 32768  # a process woken for every packet would take the processor from the network

Gradient = npt.NDArray[np.float32]


class SocketOptions(Protocol):
    """How connections are made, as `beamer.workloads.scenario.TransportSettings` says."""

    @property
    def congestion_control(self) -> str:
        """The kernel's name of it."""

    @property
    def window_bytes(self) -> int:
        """The largest window."""


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
                        with suppress(BlockingIOError):  # The socket may take less by now than when it was said to be writable.
                            sent[rank] += peer.send(outgoing[rank][sent[rank] : limit])
                    if mask & selectors.EVENT_READ:
                        count = peer.recv_into(incoming[rank][received[rank] :])
                        if count == 0:
                            raise ConnectionError(f"rank {rank} closed its connection")
                        received[rank] += count
                        if arrived is not None:
                            arrived(sum(received.values()))

    def close(self) -> None:
        """Hang up."""
        for peer in self.peers.values():
            peer.close()

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


def sum_checked(gradient: Gradient, iteration: int, worker: int, workers: int, reduce: Callable[[], None]) -> None:
    """Fill a gradient, have it summed over the workers, and check the sum. Raises `ArithmeticError` if it is another."""
    value = iteration % 1000  # 32 bits hold the sums of such values exactly.
    gradient.fill(value * (worker + 1))
    reduce()
    expected = np.float32(value * (workers * (workers + 1) // 2))
    if not (gradient == expected).all():
        raise ArithmeticError(f"worker {worker}, iteration {iteration}: the gradient's sum is not {expected}")


def prepared(connection: socket.socket, transport: SocketOptions) -> socket.socket:
    """Return a connection, or a listener, with the options of a trainer's."""
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


def listening(address: tuple[str, int], transport: SocketOptions) -> socket.socket:
    """Return a socket at which peers are waited for; port 0: a free one. Raises `OSError`."""
    listener = prepared(socket.socket(socket.AF_INET, socket.SOCK_STREAM), transport)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(64)
    listener.settimeout(CONNECT_PATIENCE_S)
    return listener


def accepted(listener: socket.socket, transport: SocketOptions) -> tuple[int, socket.socket]:
    """Return the next peer's rank, and the connection to it. Raises `OSError` if none comes in time."""
    connection = prepared(listener.accept()[0], transport)
    connection.settimeout(CONNECT_PATIENCE_S)
    return int.from_bytes(exactly(connection, 4), "big"), connection


def exactly(peer: socket.socket, size: int) -> bytes:
    """Return so many bytes of a peer. Raises `ConnectionError` if it hangs up before."""
    data = peer.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("a rank hung up")
    return data


def dialled(address: tuple[str, int], rank: int, transport: SocketOptions) -> socket.socket:
    """Return a connection to a peer, which is told this rank; waits until it listens. Raises `OSError` if it does not."""
    deadline = time.monotonic() + CONNECT_PATIENCE_S
    while True:
        connection = prepared(socket.socket(socket.AF_INET, socket.SOCK_STREAM), transport)
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
