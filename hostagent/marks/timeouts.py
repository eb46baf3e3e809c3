"""How long TCP waits before it sends again: bounded for marked connections, whose class may stand still for long.

TCP takes what is not acknowledged in time for lost, and doubles the time whenever that happens again, up to two minutes. A
connection of a class that is not served for half a minute would then stand for as long once it has another: what was sent
before it is still on its way in the old class, or was dropped behind a repetition (PAWS, RFC 7323, section 5), and nothing but
the time-out sends it again.

The kernel gives a connection up after so many time-outs, which would now be half a minute instead of a quarter of an hour. So
it is told a time, which also holds for a peer that is alive and takes nothing in: a day, as a job may be suspended for long.
That time would replace the limit of keep-alive probes: who has those on keeps the kernel's time-outs.
"""

import socket
from contextlib import suppress
from pathlib import Path

RTO_MAX_S = 2.1
"""The longest time-out of a marked connection: a full queue of the emulation's holds it up for 1.4 s.

A whole number of every kernel's ticks, which it counts in, and of nobody else's choice, by which `restore` knows it.
"""
DRAINING_RTO_MAX_S = 1.1
"""The longest time-out of a connection that changes its class (`hostagent.marks.draining`), chosen like `RTO_MAX_S`.

What is found lost while the connection is held cannot be sent again then, and TCP may have forgotten it when it can. As long as
acknowledgements arrive none of these time-outs passes. The kernel bounds none below 1 s.
"""

_TCP_RTO_MAX_MS = 44  # since Linux 6.15
_KERNEL_RTO_MAX_MS = 120_000
_OURS_MS = tuple(round(1000 * each_s) for each_s in (RTO_MAX_S, DRAINING_RTO_MAX_S))
_GIVE_UP_MS = 86_400_000
_RETRIES, _KERNELS_RETRIES = Path("/proc/sys/net/ipv4/tcp_retries2"), 15  # A connection is given up after so many time-outs.


def bound(sock: socket.socket, longest_s: float = RTO_MAX_S) -> None:
    """Bound a socket's time-outs by `RTO_MAX_S` or `DRAINING_RTO_MAX_S`. One that runs goes on until the next acknowledgement.

    It is left alone where its program or the machine's administrator has set the longest time-out, the administrator how many
    there may be, or the program keep-alive probes without a time to give up, and where the kernel cannot.
    """
    with suppress(OSError):
        if _get(sock, _TCP_RTO_MAX_MS) not in (_KERNEL_RTO_MAX_MS, *_OURS_MS):
            return
        if not _get(sock, socket.TCP_USER_TIMEOUT):
            keeps_alive = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if keeps_alive or int(_RETRIES.read_text()) != _KERNELS_RETRIES:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GIVE_UP_MS)
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, round(1000 * longest_s))


def restore(sock: socket.socket) -> None:
    """Undo `bound`."""
    with suppress(OSError):
        if _get(sock, _TCP_RTO_MAX_MS) not in _OURS_MS:
            return
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, _KERNEL_RTO_MAX_MS)
        if _get(sock, socket.TCP_USER_TIMEOUT) == _GIVE_UP_MS:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def _get(sock: socket.socket, option: int) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, option)
