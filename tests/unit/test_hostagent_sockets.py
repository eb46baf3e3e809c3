import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from beamer.errors import PlatformError
from beamer.network.protocol import LocalWorker
from hostagent import sockets as module
from hostagent.process import Mark
from hostagent.sockets import NetlinkError, SocketTable

JOB = "s/t/j"


@pytest.fixture
def table() -> Iterator[SocketTable]:
    """Watch this process, which holds both ends of two connections."""
    with ExitStack() as stack, closing(SocketTable()) as made:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(2):
            stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0])
        yield made


def assign(table: SocketTable, mark: Mark | None = None) -> int:
    worker = LocalWorker(job=JOB, rank=0, pid=os.getpid(), klass=0)
    return table.assign([worker], ["127.0.0.1"], table.connections, {JOB: mark} if mark else {})


def test_a_refusal_of_the_kernels_is_a_platform_error(table: SocketTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise NetlinkError(2)

    monkeypatch.setattr(table._diagnostics, "get_sock_stats", refuse)
    with pytest.raises(PlatformError, match="inet_diag"):
        assign(table)


def test_a_socket_that_cannot_be_marked_keeps_no_other_from_it(table: SocketTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assign(table)
    assert len(table.connections) == 4
    tried: list[socket.socket] = []

    def fail_first(sock: socket.socket, wanted: Mark) -> bool:
        tried.append(sock)
        if len(tried) == 1:
            raise PlatformError("the first socket", "let no other program set its mark")
        return True

    monkeypatch.setattr(module, "mark", fail_first)
    with pytest.raises(PlatformError, match="the first socket"):
        assign(table, Mark(3, 11))
    assert len(tried) == 4
    assert table.poll() == 1, "what failed is tried again, and nothing else"
