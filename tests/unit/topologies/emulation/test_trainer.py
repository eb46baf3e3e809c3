"""The emulated trainers' collectives over real sockets: the sum arrives at every rank."""

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import pytest

from beamer.client import Client
from beamer.engines.local.supervisor.ports import kept_port
from beamer.network.collectives import phases
from beamer.network.job import JobSpec
from beamer.studies.model import Role, Worker
from beamer.workloads.scenario import TransportSettings
from topologies.emulation import trainer
from topologies.emulation.collectives import Mesh, largest_window, push_pull, ring_all_reduce, serve_slice, sum_checked
from topologies.emulation.trainer import TrainerTask, _peers, connect, train


def _together(*tasks: Callable[[], None]) -> None:
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def _close(meshes: list[Mesh]) -> None:
    for mesh in meshes:
        for peer in mesh.peers.values():
            peer.close()


@pytest.mark.parametrize("ranks", [3, 4, 5])
def test_ring_all_reduce_sums_over_all_ranks(ranks: int) -> None:
    pairs = [socket.socketpair() for _ in range(ranks)]
    meshes = [Mesh({(i + 1) % ranks: pairs[i][0], (i - 1) % ranks: pairs[i - 1][1]}) for i in range(ranks)]
    gradients = [np.arange(5000 * ranks, dtype=np.float32) % 97 * (i + 1) for i in range(ranks)]
    expected = np.sum(gradients, axis=0, dtype=np.float32)
    _together(*(lambda i=i: ring_all_reduce(meshes[i], i, ranks, gradients[i]) for i in range(ranks)))  # type: ignore[misc]
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, expected)
    _close(meshes)


def test_ring_of_two_shares_one_connection() -> None:
    a, b = socket.socketpair()
    meshes = [Mesh({1: a}), Mesh({0: b})]
    gradients = [np.ones(100_000, dtype=np.float32), np.full(100_000, 2, dtype=np.float32)]
    _together(*(lambda i=i: ring_all_reduce(meshes[i], i, 2, gradients[i]) for i in range(2)))  # type: ignore[misc]
    assert (gradients[0] == 3).all()
    assert (gradients[1] == 3).all()
    _close(meshes)


def test_push_pull_sums_over_workers() -> None:
    links = {(w, s): socket.socketpair() for w in (0, 1) for s in (2, 3)}
    workers = [Mesh({s: links[w, s][0] for s in (2, 3)}) for w in (0, 1)]
    servers = [Mesh({w: links[w, s][1] for w in (0, 1)}) for s in (2, 3)]
    gradients = [np.full(60_001, w + 1, dtype=np.float32) for w in (0, 1)]
    sizes = [part.size for part in np.array_split(gradients[0], 2)]
    _together(
        *(lambda w=w: push_pull(workers[w], gradients[w], [2, 3]) for w in (0, 1)),  # type: ignore[misc]
        *(lambda s=s: serve_slice(servers[s], sizes[s], [0, 1]) for s in (0, 1)),  # type: ignore[misc]
    )
    for gradient in gradients:
        assert (gradient == 3).all()
    _close(workers + servers)


def test_a_sum_that_lacks_a_gradient_is_refused() -> None:
    gradient = np.empty(100, dtype=np.float32)

    def add(*others: int) -> None:
        for other in others:
            gradient[:] += 7 * (other + 1)

    sum_checked(gradient, 1007, 1, 3, lambda: add(0, 2))
    assert (gradient == 7 * 6).all()
    with pytest.raises(ArithmeticError, match=r"worker 1, iteration 1007: the gradient's sum is not 42\.0"):
        sum_checked(gradient, 1007, 1, 3, lambda: add(0))


def test_every_pair_of_the_collective_has_one_connection() -> None:
    workers = (Worker(0, "h1"), Worker(1, "h2"), Worker(2, "h3"), Worker(3, "h4", Role.SERVER))
    for spec in (
        JobSpec("ring", workers[:3], 1, 100),
        JobSpec("pair", workers[:2], 1, 100),
        JobSpec("ps", workers, 1, 100, collective="parameter-server"),
    ):
        pairs = {frozenset((t.src_rank, t.dst_rank)) for phase in phases(spec) for t in phase}
        dialled = {frozenset((w.rank, r)) for w in spec.workers for r in _peers(spec, w.rank)[0]}
        expected = {frozenset((w.rank, r)) for w in spec.workers for r in _peers(spec, w.rank)[1]}
        assert dialled == expected == pairs


class _Reports:
    """A client, and the trial that it has, which note the steps that are reported."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def trial(self, study: str, name: str, run: str) -> "_Reports":
        return self

    def attach(self, rank: int) -> None:
        pass

    def progress(self, step: int) -> None:
        self.steps.append(step)

    def pause(self) -> None:
        pass

    def close(self, patience_s: float) -> None:
        pass


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_a_job_comes_to_its_end_with_any_number_of_servers(servers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`train` checks each synchronised gradient itself; a rank that expects other sizes than its peers send waits for ever."""
    roles = [Role.WORKER, Role.WORKER, *(servers * [Role.SERVER])]
    workers = tuple(Worker(rank, "h1", role) for rank, role in enumerate(roles))
    spec = JobSpec("t", workers, 3, 100_000, collective="parameter-server" if servers else "ring")
    reports = [_Reports() for _ in workers]
    addresses, transport = tuple("127.0.0.1" for _ in workers), TransportSettings()
    meshes: list[Mesh] = []

    def connected(task: TrainerTask) -> Mesh:
        meshes.append(connect(task))
        return meshes[-1]

    monkeypatch.setattr(trainer, "connect", connected)
    with ExitStack() as stack:
        ports = tuple(stack.enter_context(kept_port()) for _ in workers)
        tasks = [TrainerTask("s", "1", spec, rank, addresses, ports, "", 0.0, transport) for rank in range(len(workers))]
        _together(*(lambda i=i: train(tasks[i], cast(Client, reports[i])) for i in range(len(workers))))  # type: ignore[misc]
    assert [report.steps for report in reports] == [[1, 2, 3], *([] for _ in workers[1:])]
    _close(meshes)


@pytest.mark.parametrize(("most", "kept"), [(65535, 65535), (131069, 65535), (131070, 131070), (262144, 262140)])
def test_a_window_is_the_largest_that_tcps_scale_keeps(most: int, kept: int) -> None:
    assert largest_window(most) == kept


class _Hesitant(socket.socket):
    """Refuses the first write, although it can be written to."""

    refusals = 1

    def send(self, data: Any, flags: int = 0, /) -> int:
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError
        return super().send(data, flags)


def test_a_buffer_that_is_full_after_all_is_written_to_later() -> None:
    here, there = socket.socketpair()
    with _Hesitant(fileno=here.detach()) as sender, there:
        Mesh({1: sender}).transfer({1: memoryview(b"gradient")}, {})
        assert sender.refusals == 0
        assert there.recv(100) == b"gradient"
