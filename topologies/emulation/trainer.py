"""An emulated training process: pauses to compute, moves real gradient bytes over TCP, checks the sum it received.

It registers nothing about its sockets: it attaches its process to its trial and reports steps through `beamer.client`, as any
trainer would.
"""

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from beamer.client import Client
from beamer.network.collectives import phases
from beamer.network.job import JobSpec
from beamer.studies.model import Role
from beamer.workloads.scenario import TransportSettings
from topologies.emulation.collectives import (
    Mesh,
    accepted,
    dialled,
    listening,
    push_pull,
    ring_all_reduce,
    serve_slice,
    sum_checked,
)

REPORT_PATIENCE_S = 30.0  # Reports at the end wait so long for a controller that is being restarted.


@dataclass(frozen=True)
class TrainerTask:
    """What one process runs."""

    study: str
    """The study's name."""
    run: str
    """The run of the study."""
    spec: JobSpec
    """The trial's job."""
    rank: int
    """The rank of the process."""
    addresses: tuple[str, ...]
    """Where each rank listens, by rank."""
    ports: tuple[int, ...]
    """The port at which each rank listens, by rank."""
    controller: str
    """URL of the API."""
    start_up_s: float
    """Seconds from having connected to the first iteration.

    A framework takes longer than connections take to get their class.
    """
    transport: TransportSettings
    """TCP's settings."""
    done: int = 0
    """Steps that the trial has completed before."""


_TRAINER_TASK = TypeAdapter(TrainerTask)  # It is built once, before launchers fork.


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


def connect(task: TrainerTask) -> Mesh:
    """Connect this rank with all its peers. Raises `OSError` if one does not answer in time."""
    dial, expect = _peers(task.spec, task.rank)
    peers: dict[int, socket.socket] = {}
    with listening((task.addresses[task.rank], task.ports[task.rank]), task.transport) as listener:
        for rank in dial:
            peers[rank] = dialled((task.addresses[rank], task.ports[rank]), task.rank, task.transport)
        while not peers.keys() >= set(expect):
            rank, connection = accepted(listener, task.transport)
            peers[rank] = connection
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
    ring = partial(ring_all_reduce, mesh, rank, len(workers), gradient)
    reduce = partial(push_pull, mesh, gradient, servers) if servers else ring
    time.sleep(task.start_up_s)
    for iteration in range(1, spec.iterations + 1):
        if rank in servers:
            serve_slice(mesh, slice_sizes[servers.index(rank)], workers)
            continue
        began = time.monotonic()
        time.sleep((1 - spec.overlap) * spec.compute_s)
        sum_checked(gradient, iteration, workers.index(rank), len(workers), reduce)
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
