"""A program for `beamer schedule` that stands in for one that trains: it computes by waiting, and moves real gradient bytes.

    python -m topologies.emulation.program --iterations 40 --sync-bytes 880000 --compute-s 1.6 --start 2.3 --floor 0.4 --half 12

It is launched as `torchrun` would (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and knows a signal and a checkpoint path. An
iteration takes what `beamer.engines.profiles.DataParallelProfile` says; its gradient is summed over the ranks by a ring, and
the sum is checked. What signals asked of any rank is summed with it, so that all of them stop after the same iteration. The
loss follows from the iteration.
"""

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from topologies.emulation.collectives import (
    CONNECT_PATIENCE_S,
    Mesh,
    accepted,
    dialled,
    exactly,
    listening,
    ring_all_reduce,
    sum_checked,
)
from topologies.emulation.program_options import ProgramOptions, parsed

_ADDRESS = struct.Struct("!4sH")


@dataclass(frozen=True, kw_only=True)
class StandInOptions(ProgramOptions):
    """What to do; a start is counted from having connected on."""

    sync_bytes: int
    """Bytes of a synchronisation."""
    start: float = 1.0
    """The loss's start, as of `beamer.engines.profiles.HyperbolicLoss`."""
    floor: float = 0.0
    """The loss's floor, as there."""
    half: float
    """The loss's half, as there."""
    congestion_control: str = "reno"
    """TCP's congestion control, by the kernel's name."""
    window_bytes: int = 262144
    """The largest window of a connection, bytes."""

    def loss(self, iteration: int) -> float:
        """Return the loss after so many iterations."""
        return self.floor + (self.start - self.floor) / (1.0 + iteration / self.half)


def rendezvous(rank: int, world: int, master: tuple[str, int], options: StandInOptions) -> Mesh:
    """Connect the ranks to a ring; where each one listens they learn from rank 0. Raises `OSError` if one does not come."""
    if world == 1:
        return Mesh({})
    if rank == 0:
        with ExitStack() as opened:
            meeting, listener = (opened.enter_context(listening(at, options)) for at in (master, (master[0], 0)))
            found, peers = {0: _packed(listener.getsockname())}, []
            while len(found) < world:
                peer = opened.enter_context(meeting.accept()[0])
                peer.settimeout(CONNECT_PATIENCE_S)
                number = int.from_bytes(exactly(peer, 4), "big")
                found[number] = exactly(peer, _ADDRESS.size)
                peers.append(peer)
            table = b"".join(found[number] for number in range(world))
            for peer in peers:
                peer.sendall(table)
            return _ring(rank, world, listener, table, options)
    with dialled(master, rank, options) as peer:
        own = peer.getsockname()[0]
        with listening((own, 0), options) as listener:
            peer.sendall(_packed(listener.getsockname()))
            table = exactly(peer, world * _ADDRESS.size)
            return _ring(rank, world, listener, table, options)


def _ring(rank: int, world: int, listener: socket.socket, table: bytes, options: StandInOptions) -> Mesh:
    """Return the connections to the next rank and from the one before, which are one and the same among two."""
    addresses = [_unpacked(table[i * _ADDRESS.size : (i + 1) * _ADDRESS.size]) for i in range(world)]
    following, before = (rank + 1) % world, (rank - 1) % world
    peers: dict[int, socket.socket] = {}
    if world > 2 or rank == 0:
        peers[following] = dialled(addresses[following], rank, options)
    if world > 2 or rank == 1:
        _, peers[before] = accepted(listener, options)
    return Mesh(peers)


def _packed(address: tuple[str, int]) -> bytes:
    return _ADDRESS.pack(socket.inet_aton(address[0]), address[1])


def _unpacked(data: bytes) -> tuple[str, int]:
    host, port = _ADDRESS.unpack(data)
    return socket.inet_ntoa(host), port


def work(options: StandInOptions, environment: Mapping[str, str], stops: Sequence[int]) -> None:
    """Run as one rank, from the checkpoint if there is one, to the end or until a signal has been agreed upon.

    stops: the signals that have come. Raises `ArithmeticError` if a synchronised gradient is not the sum of all ranks'.
    """
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    mesh = rendezvous(rank, world, (environment["MASTER_ADDR"], int(environment["MASTER_PORT"])), options)
    checkpoint = Path(environment["BEAMER_CHECKPOINT"])
    done = json.loads(checkpoint.read_text())["iteration"] if checkpoint.exists() else 0
    with closing(mesh):
        done = _iterate(rank, world, mesh, done, options, stops)
    if rank == 0:
        new = checkpoint.with_name(checkpoint.name + ".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps({"iteration": done}))
        os.replace(new, checkpoint)


def _iterate(rank: int, world: int, mesh: Mesh, done: int, options: StandInOptions, stops: Sequence[int]) -> int:
    """Iterate from `done` on; return after which iteration it has ended."""
    # The gradient has so many values, the last of which says who is to stop.
    size = max(options.sync_bytes // 4 // world, 1) * world
    gradient = np.empty(size, dtype=np.float32)
    _say(rank, done, options)
    time.sleep(options.restart_s if done else options.start_s)
    compute_s = options.iteration_s(world)
    while done < options.iterations:
        began = time.monotonic()
        time.sleep((1 - options.overlap) * compute_s)
        gradient[-1] = float(bool(stops))
        sum_checked(gradient[:-1], done + 1, rank, world, lambda: ring_all_reduce(mesh, rank, world, gradient))
        time.sleep(max(began + compute_s - time.monotonic(), 0.0))
        done += 1
        if done % options.epoch == 0 or done == options.iterations:
            _say(rank, done, options)
        if gradient[-1] > 0:
            break
    return done


def _say(rank: int, done: int, options: StandInOptions) -> None:
    if rank == 0:
        print(json.dumps({"iteration": done, "loss": options.loss(done)}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as one rank, as the environment and the command line say."""
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    work(parsed(StandInOptions, "topologies.emulation.program", __doc__, arguments), os.environ, stops)


if __name__ == "__main__":
    main()
