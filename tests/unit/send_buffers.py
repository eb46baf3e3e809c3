"""Whether this process may give a socket a send buffer of any size, as an agent may."""

import socket

import pytest


def _is_allowed() -> bool:
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, 32, 4096)  # SO_SNDBUFFORCE
        except PermissionError:
            return False
    return True


may_limit = pytest.mark.skipif(not _is_allowed(), reason="not root: send buffers cannot be given back")
