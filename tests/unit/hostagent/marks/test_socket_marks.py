import os
import socket
from contextlib import closing

import pytest

from beamer.errors import PlatformError
from hostagent.marks.diagnostics import Diagnostics, bytes_sent
from hostagent.marks.socket_marks import Mark, borrow, is_tcp, mark, socket_descriptors
from hostagent.workers.procfs import Procfs


def test_sockets_of_a_process_by_inode() -> None:
    one, other = socket.socketpair()
    with one, other:
        found = socket_descriptors(os.getpid())
        assert found[os.fstat(one.fileno()).st_ino] == one.fileno()
        assert os.fstat(other.fileno()).st_ino in found
    assert socket_descriptors(2**22) == {}


def test_a_borrowed_socket_is_the_same_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(bytes(1000))
        inode = os.fstat(client.fileno()).st_ino
        borrowed = borrow(os.getpid(), client.fileno(), inode)
        assert borrowed is not None
        with borrowed:
            assert borrowed.getsockname() == client.getsockname()
            assert is_tcp(borrowed)
            assert bytes_sent(borrowed) == 1000
        assert borrow(os.getpid(), server.fileno(), inode) is None, "another socket under that descriptor is not lent"
        status = Procfs().status(os.getpid())
        assert status is not None
        assert borrow(os.getpid(), client.fileno(), inode, status.start + 1) is None, "nor another process's of that id"
        again = borrow(os.getpid(), client.fileno(), inode, status.start)
        assert again is not None
        again.close()
        server.accept()[0].close()
    left, right = socket.socketpair()
    with left, right:
        assert not is_tcp(left)


def test_a_mark_is_set_once_and_read_back() -> None:
    with socket.socket() as sock:
        assert mark(sock, Mark(3, 11))
        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2 == 11
        assert not mark(sock, Mark(3, 11)), "it was so already"


def test_an_ipv6_socket_is_marked_by_its_traffic_class_unless_it_carries_ipv4() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        for address, level, option in (
            ("::1", socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
            ("::ffff:127.0.0.1", socket.IPPROTO_IP, socket.IP_TOS),
        ):
            with socket.create_connection((address, server.getsockname()[1])) as sock, server.accept()[0]:
                assert mark(sock, Mark(3, 11))
                assert sock.getsockopt(level, option) >> 2 == 11
                assert not mark(sock, Mark(3, 11)), "it was so already"
                inode = os.fstat(sock.fileno()).st_ino
                with closing(Diagnostics()) as diagnostics:
                    found = diagnostics.tcp_sockets()[inode]
                assert found.mark == Mark(3, 11)
                assert found.ends[0] == ("::1" if address == "::1" else "127.0.0.1")


def test_a_mark_that_does_not_take_effect_is_an_error() -> None:
    class Stubborn(socket.socket):
        def setsockopt(self, *_: object) -> None: ...

    with Stubborn() as sock, pytest.raises(PlatformError, match=r"priority=0.* instead of Mark\(priority=3, dscp=11\)"):
        mark(sock, Mark(3, 11))
