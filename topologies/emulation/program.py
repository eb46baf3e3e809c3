"""A program for `beamer schedule` that stands in for one that trains: it computes by waiting, and moves real gradient bytes.

    python -m topologies.emulation.program --iterations 40 --bytes 880000 --compute-s 1.6 --start 2.3 --floor 0.4 --half 12

It is launched as `torchrun` would (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and knows a signal and a checkpoint path. An
iteration takes what `beamer.engines.profiles.DataParallelProfile` says; its gradient is summed over the ranks by a ring, and
the sum is checked. What signals asked of any rank is summed with it, so that all of them stop after the same iteration. The
loss follows from the iteration.
"""

import argparse
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

from topologies.emulation.collectives import CONNECT_PATIENCE_S, Mesh, dialled, prepared, ring_all_reduce
from topologies.emulation.program_options import add_options

_ADDRESS = struct.Struct("!4sH")


@dataclass(frozen=True)
class ProgramOptions:
    """What to do."""

    iterations: int
    """Iterations after which it ends."""
    sync_bytes: int
    """Bytes of a synchronisation."""
    compute_s: float
    """Seconds of an iteration on one GPU, divided among the ranks."""
    fixed_s: float
    """Seconds of every iteration, in addition."""
    overlap: float
    """The share of the computing during which the coflow already runs."""
    epoch: int
    """Iterations between two lines of progress."""
    start_s: float
    """Seconds from having connected to the first iteration, when it is first started."""
    restart_s: float
    """Seconds as `start_s`, when it is started again."""
    start: float
    """The loss's start, as of `beamer.engines.profiles.HyperbolicLoss`."""
    floor: float
    """The loss's floor, as there."""
    half: float
    """The loss's half, as there."""
    congestion_control: str
    """TCP's congestion control, by the kernel's name."""
    window_bytes: int
    """The largest window of a connection, bytes."""

    def loss(self, iteration: int) -> float:
        """Return the loss after so many iterations."""
        return self.floor + (self.start - self.floor) / (1.0 + iteration / self.half)

    def iteration_s(self, ranks: int) -> float:
        """Return what an iteration computes for, seconds."""
        return self.compute_s / ranks + self.fixed_s


def rendezvous(rank: int, world: int, master: tuple[str, int], options: ProgramOptions) -> Mesh:
    """Connect the ranks to a ring; where each one listens they learn from rank 0. Raises `OSError` if one does not come."""
    if world == 1:
        return Mesh({})
    if rank == 0:
        with ExitStack() as opened:
            meeting, listener = (opened.enter_context(_listener(at, options)) for at in (master, (master[0], 0)))
            listening, peers = {0: _packed(listener.getsockname())}, []
            while len(listening) < world:
                peer = opened.enter_context(meeting.accept()[0])
                peer.settimeout(CONNECT_PATIENCE_S)
                number = int.from_bytes(_exactly(peer, 4), "big")
                listening[number] = _exactly(peer, _ADDRESS.size)
                peers.append(peer)
            table = b"".join(listening[number] for number in range(world))
            for peer in peers:
                peer.sendall(table)
            return _ring(rank, world, listener, table, options)
    with dialled(master, rank, options) as peer:
        own = peer.getsockname()[0]
        with _listener((own, 0), options) as listener:
            peer.sendall(_packed(listener.getsockname()))
            table = _exactly(peer, world * _ADDRESS.size)
            return _ring(rank, world, listener, table, options)


def _ring(rank: int, world: int, listener: socket.socket, table: bytes, options: ProgramOptions) -> Mesh:
    """Return the connections to the next rank and from the one before, which are one and the same among two."""
    addresses = [_unpacked(table[i * _ADDRESS.size : (i + 1) * _ADDRESS.size]) for i in range(world)]
    following, before = (rank + 1) % world, (rank - 1) % world
    peers: dict[int, socket.socket] = {}
    if world > 2 or rank == 0:
        peers[following] = dialled(addresses[following], rank, options)
    if world > 2 or rank == 1:
        peer, _ = listener.accept()
        prepared(peer, options).settimeout(CONNECT_PATIENCE_S)
        _exactly(peer, 4)
        peers[before] = peer
    return Mesh(peers)


def _listener(address: tuple[str, int], options: ProgramOptions) -> socket.socket:
    listener = prepared(socket.socket(socket.AF_INET, socket.SOCK_STREAM), options)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(64)
    listener.settimeout(CONNECT_PATIENCE_S)
    return listener


def _packed(address: tuple[str, int]) -> bytes:
    return _ADDRESS.pack(socket.inet_aton(address[0]), address[1])


def _unpacked(data: bytes) -> tuple[str, int]:
    host, port = _ADDRESS.unpack(data)
    return socket.inet_ntoa(host), port


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = peer.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("a rank hung up")
    return data


def work(options: ProgramOptions, environment: Mapping[str, str], stops: Sequence[int]) -> None:
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


def _iterate(rank: int, world: int, mesh: Mesh, done: int, options: ProgramOptions, stops: Sequence[int]) -> int:
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
        gradient.fill((done + 1) % 1000 * (rank + 1))
        gradient[-1] = float(bool(stops))
        ring_all_reduce(mesh, rank, world, gradient)
        expected = np.float32((done + 1) % 1000 * (world * (world + 1) // 2))
        if not (gradient[:-1] == expected).all():
            raise ArithmeticError(f"rank {rank}, iteration {done + 1}: the gradient's sum is not {expected}")
        time.sleep(max(began + compute_s - time.monotonic(), 0.0))
        done += 1
        if done % options.epoch == 0 or done == options.iterations:
            _say(rank, done, options)
        if gradient[-1] > 0:
            break
    return done


def _say(rank: int, done: int, options: ProgramOptions) -> None:
    if rank == 0:
        print(json.dumps({"iteration": done, "loss": options.loss(done)}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as one rank, as the environment and the command line say."""
    parser = argparse.ArgumentParser(prog="python -m topologies.emulation.program", description=__doc__)
    add_options(parser)
    parser.add_argument("--bytes", type=int, required=True, dest="sync_bytes")
    parser.add_argument("--start", type=float, default=1.0)
    parser.add_argument("--floor", type=float, default=0.0)
    parser.add_argument("--half", type=float, required=True)
    parser.add_argument("--congestion-control", default="reno")
    parser.add_argument("--window-bytes", type=int, default=262144)
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    work(ProgramOptions(**vars(parser.parse_args(arguments))), os.environ, stops)


if __name__ == "__main__":
    main()
