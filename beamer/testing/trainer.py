"""A deterministic data-parallel training program: numpy and TCP only, for tests and demonstrations of engines.

    python -m beamer.testing.trainer --iterations 200 --trace DIR/trace

It is launched as `torchrun` would (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), knows nothing of Beamer save two signals and a
checkpoint path, and takes every step by the parameters, the batch and the number of ranks alone. Gradients are summed in order
of ranks by rank 0 and sent back, together with what signals asked of the ranks: so all of them stop after the same iteration,
and wait at a gate together.
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
SAMPLES, FEATURES, HIDDEN, CLASSES = 2048, 16, 24, 4
SIZES = (FEATURES * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES)
STOP, CHECKPOINT, SHUT = 1, 2, 4
GATE_S = 0.02
"""How often ranks that stand at a gate look whether it is still there."""


@dataclass(frozen=True)
class Options:
    """What to train."""

    iterations: int = 200
    """Iterations after which it ends."""
    seed: int = 0
    """The seed of weights and samples."""
    batch_size: int = 64
    """Samples of an iteration, all ranks together."""
    learning_rate: float = 0.05
    """The learning rate."""
    momentum: float = 0.9
    """The momentum."""
    work: int = 1
    """How often each gradient is computed."""
    pause_s: float = 0.0
    """Seconds that an iteration waits in addition."""
    save_every: int = 0
    """Iterations between two checkpoints that nobody asks for; 0: none but the last."""

    def saves(self, iteration: int) -> bool:
        """Say whether a checkpoint is due after an iteration, whoever asks for one."""
        return iteration == self.iterations or (self.save_every > 0 and iteration % self.save_every == 0)


@dataclass
class State:
    """Everything that the next step depends on."""

    parameters: Vector
    velocity: Vector
    iteration: int
    rng: np.random.Generator

    @classmethod
    def initial(cls, seed: int) -> "State":
        """Return the state before the first step."""
        rng = np.random.default_rng(seed)
        parameters = rng.normal(0.0, 0.3, sum(SIZES))
        return cls(parameters, np.zeros_like(parameters), 0, rng)

    def digest(self) -> str:
        """Return what tells states apart."""
        position = json.dumps(self.rng.bit_generator.state, sort_keys=True).encode()
        return hashlib.sha256(self.parameters.tobytes() + self.velocity.tobytes() + position).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Replace the checkpoint so that a crash leaves the old or the new one."""
        temporary = path.with_name(path.name + ".new")
        position = json.dumps({"iteration": self.iteration, "rng": self.rng.bit_generator.state})
        with open(temporary, "wb") as file:
            np.savez(file, parameters=self.parameters, velocity=self.velocity, position=np.array(position))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path) -> "State":
        """Return the state of a checkpoint."""
        with np.load(path) as stored:
            position = json.loads(str(stored["position"]))
            rng = np.random.default_rng()
            rng.bit_generator.state = position["rng"]
            return cls(stored["parameters"], stored["velocity"], position["iteration"], rng)


def data(seed: int) -> tuple[Vector, NDArray[np.int64]]:
    """Return samples and their classes: what a random network says of random points."""
    rng = np.random.default_rng([seed, 1])
    points = rng.normal(size=(SAMPLES, FEATURES))
    return points, np.argmax(np.tanh(points @ rng.normal(size=(FEATURES, 8))) @ rng.normal(size=(8, CLASSES)), axis=1)


def gradient(parameters: Vector, points: Vector, classes: NDArray[np.int64]) -> Vector:
    """Return the summed gradient of some samples, followed by their summed loss and the number classified rightly."""
    hidden_weights, hidden_bias, out_weights, out_bias = np.split(parameters, np.cumsum(SIZES)[:-1])
    hidden_weights, out_weights = hidden_weights.reshape(FEATURES, HIDDEN), out_weights.reshape(HIDDEN, CLASSES)
    hidden = np.tanh(points @ hidden_weights + hidden_bias)
    scores = hidden @ out_weights + out_bias
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(classes))
    loss = -np.log(odds[rows, classes]).sum()
    right = (odds.argmax(axis=1) == classes).sum()
    odds[rows, classes] -= 1.0
    back = (odds @ out_weights.T) * (1.0 - hidden**2)
    parts = (points.T @ back, back.sum(axis=0), hidden.T @ odds, odds.sum(axis=0), np.array([loss, right]))
    return np.concatenate([part.ravel() for part in parts])


def shard(state: State, options: Options, world: int, rank: int, samples: tuple[Vector, NDArray[np.int64]]) -> Vector:
    """Return a rank's part of the gradient of the next batch; every rank draws the whole batch."""
    rng = np.random.default_rng()
    rng.bit_generator.state = state.rng.bit_generator.state
    chosen = np.array_split(rng.integers(0, SAMPLES, options.batch_size), world)[rank]
    for _ in range(options.work):
        part = gradient(state.parameters, samples[0][chosen], samples[1][chosen])
    return part


def apply(state: State, options: Options, total: Vector) -> tuple[float, float]:
    """Take the step of a batch's summed gradient; return mean loss and accuracy before it."""
    state.rng.integers(0, SAMPLES, options.batch_size)
    state.velocity = options.momentum * state.velocity - options.learning_rate * total[:-2] / options.batch_size
    state.parameters = state.parameters + state.velocity
    state.iteration += 1
    return float(total[-2]) / options.batch_size, float(total[-1]) / options.batch_size


def in_order(parts: Sequence[Vector]) -> Vector:
    """Return the sum, first to last."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


class Star:
    """The ranks' connections: a star around rank 0, which sums."""

    def __init__(self, rank: int, world: int, address: str, port: int) -> None:
        self._rank = rank
        self._peers: list[socket.socket] = []
        if rank == 0 and world > 1:
            with socket.create_server((address, port), backlog=world) as server:
                found: dict[int, socket.socket] = {}
                while len(found) < world - 1:
                    peer, _ = server.accept()
                    found[struct.unpack("!i", _receive(peer, 4))[0]] = peer
            self._peers = [found[number] for number in sorted(found)]
        elif rank:
            self._peers = [_connect(address, port)]
            self._peers[0].sendall(struct.pack("!i", rank))
        for one in self._peers:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def sum(self, part: Vector, asked: int) -> tuple[Vector, int]:
        """Return the sum over the ranks, and everything that signals asked of any of them."""
        size = part.nbytes
        if self._rank:
            self._peers[0].sendall(struct.pack("!i", asked) + part.tobytes())
            message = _receive(self._peers[0], 4 + size)
            return np.frombuffer(message[4:]).copy(), struct.unpack("!i", message[:4])[0]
        parts = [part]
        for peer in self._peers:
            message = _receive(peer, 4 + size)
            asked |= struct.unpack("!i", message[:4])[0]
            parts.append(np.frombuffer(message[4:]))
        total = in_order(parts)
        for peer in self._peers:
            peer.sendall(struct.pack("!i", asked) + total.tobytes())
        return total, asked

    def close(self) -> None:
        """Hang up."""
        for peer in self._peers:
            peer.close()


def _connect(address: str, port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:  # Rank 0 is not there yet.
            time.sleep(0.005)


def _receive(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionError("a rank hung up")
        data += piece
    return bytes(data)


class SignalRequests:
    """What signals have asked of this rank; made before anything else, so that none is missed."""

    def __init__(self) -> None:
        self._stop = False
        self._checkpoints = self._taken = 0
        signal.signal(signal.SIGTERM, self._tell)
        signal.signal(signal.SIGUSR1, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self._stop = True
        else:
            self._checkpoints += 1

    def take(self) -> int:
        """Return what has not been returned before; a stop stays."""
        count = self._checkpoints  # The handler writes the count at any time, and nothing else does.
        new, self._taken = count != self._taken, count
        return (STOP if self._stop else 0) | (CHECKPOINT if new else 0)


def is_shut(gate: Path | None, iteration: int) -> bool:
    """Say whether a gate is in the way: a file with the iteration not to be gone beyond."""
    try:
        return gate is not None and iteration >= int(gate.read_text())
    except FileNotFoundError:
        return False


def train(
    options: Options,
    rank: int,
    world: int,
    star: Star,
    asked: SignalRequests,
    checkpoint: Path | None,
    trace: TextIO | None,
    gate: Path | None = None,
) -> None:
    """Train from the checkpoint, if there is one, to the end or until asked to stop, at the gate, too."""
    state = State.load(checkpoint) if checkpoint and checkpoint.exists() else State.initial(options.seed)
    samples = data(options.seed)
    say = rank == 0
    while state.iteration < options.iterations:
        mine = asked.take() | (SHUT if say and is_shut(gate, state.iteration) else 0)
        total, all_told = star.sum(shard(state, options, world, rank, samples), mine)
        if not all_told & SHUT:
            if say and state.iteration == 0:
                print(json.dumps({"iteration": 0, "loss": total[-2] / options.batch_size}), flush=True)
            loss, accuracy = apply(state, options, total)
            if trace and say:
                trace.write(json.dumps({"iteration": state.iteration, "world": world, "digest": state.digest()}) + "\n")
                trace.flush()
            if say:
                print(json.dumps({"iteration": state.iteration, "loss": loss, "accuracy": accuracy}), flush=True)
        if checkpoint and say and (all_told & (STOP | CHECKPOINT) or options.saves(state.iteration)):
            state.save(checkpoint)
        if all_told & STOP:
            return
        time.sleep(GATE_S if all_told & SHUT else options.pause_s)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as one rank, as the environment and the command line say."""
    parser = argparse.ArgumentParser(prog="python -m beamer.testing.trainer", description=__doc__)
    plain = Options()
    parser.add_argument("--iterations", type=int, default=plain.iterations)
    parser.add_argument("--seed", type=int, default=plain.seed)
    parser.add_argument("--batch-size", type=int, default=int(os.environ.get("BEAMER_BATCH_SIZE", "0")) or plain.batch_size)
    parser.add_argument("--learning-rate", type=float, default=plain.learning_rate)
    parser.add_argument("--momentum", type=float, default=plain.momentum)
    parser.add_argument("--work", type=int, default=plain.work, help="how often each gradient is computed")
    parser.add_argument("--pause-s", type=float, default=plain.pause_s, help="waited for per iteration")
    parser.add_argument("--save-every", type=int, default=plain.save_every, help="iterations between two checkpoints")
    parser.add_argument("--trace", type=Path, help="a file to which rank 0 appends a digest per step")
    parser.add_argument("--gate", type=Path, help="a file with the iteration not to be gone beyond while it is there")
    chosen = vars(parser.parse_args(arguments))
    trace: Path | None = chosen.pop("trace")
    gate: Path | None = chosen.pop("gate")
    asked = SignalRequests()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    star = Star(rank, world, os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0")))
    path = os.environ.get("BEAMER_CHECKPOINT")
    with closing(star), open(trace or os.devnull, "a") as file:
        train(Options(**chosen), rank, world, star, asked, Path(path) if path else None, file if trace else None, gate)


if __name__ == "__main__":
    main(sys.argv[1:])
