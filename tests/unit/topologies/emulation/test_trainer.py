"""The emulated trainers' collectives over real sockets: the sum arrives at every rank."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from beamer.network.collectives import phases
from beamer.network.job import JobSpec
from beamer.studies.model import Role, Worker
from topologies.emulation.collectives import Mesh, largest_window, push_pull, ring_all_reduce, serve_slice
from topologies.emulation.trainer import _peers


def _together(*tasks: Callable[[], None]) -> None:
    threads = [threading.Thread(target=task) for task in tasks]
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
