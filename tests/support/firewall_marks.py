"""Whether this process may give a socket a firewall mark, as an agent may."""

import socket

import pytest


def _is_allowed() -> bool:
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1)
        except PermissionError:
            return False
    return True


may_hold = pytest.mark.skipif(not _is_allowed(), reason="not root: sockets cannot be held")
