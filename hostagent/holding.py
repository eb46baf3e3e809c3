"""A connection whose data wait in its own socket for a moment, while what was sent before is still under way.

Netfilter refuses the data packets of a socket with a certain firewall mark (SO_MARK), and passes its acknowledgements. TCP
takes a packet that its own host refuses as not sent: it stays first in the socket's queue, is not counted as lost, changes no
window, and is tried again with the next acknowledgement (net/ipv4/tcp_output.c, `tcp_write_xmit`). Only what TCP counts as sent
grows with every try.

The kernel forgets by itself, `LASTS_S` after it was told, that such packets are refused: a connection whose agent was killed
goes on, in the class that it had.
"""

import logging
import socket
from contextlib import suppress

from beamer.errors import PlatformError
from hostagent.nftables import WITHOUT_DATA, nft, removal
from hostagent.rate_limited_log import RateLimitedLog

log = logging.getLogger("beamer.hostagent")

LASTS_S = 6.0
"""For how long the kernel refuses packets once it was told to."""

_MARK = int.from_bytes(b"beam")  # a firewall mark that nobody else chooses
_UNMARKED = 0
_TABLE = "table ip beamer_hold"  # no interface's is called so
# Before anything that might change a packet's mark. A FIN is a byte of the stream, and would overtake those before it.
_SCRIPT = f"""{removal(_TABLE)}{_TABLE} {{
set held {{ typeof meta mark; flags timeout; timeout {LASTS_S:.0f}s; elements = {{ {_MARK} }}; }}
chain leaving {{
type filter hook output priority raw - 10
meta mark != @held accept
tcp flags & rst == rst accept
tcp flags & fin == fin drop
{"".join(f"{each} accept{chr(10)}" for each in WITHOUT_DATA)}drop
}}
}}
"""


class HoldRule:
    """The rule by which this network namespace refuses what is held. Belongs to a thread inside it."""

    def __init__(self) -> None:
        self._limited_log = RateLimitedLog(log)
        self._tried_s: float | None = None
        self._is_refusing = False

    def lasts(self, now_s: float, for_s: float) -> bool:
        """Have packets refused for the next `for_s` at least; return whether they are, and log why not.

        now_s: of a clock that never goes back. Not every call tells the kernel, as that takes 16 ms.
        """
        if self._tried_s is not None and now_s + for_s < self._tried_s + LASTS_S:
            return self._is_refusing
        self._tried_s = now_s
        try:
            nft("-f", "-", script=_SCRIPT)
            self._is_refusing = True
        except PlatformError as error:
            self._is_refusing = False
            self._limited_log.add("a change of class may have packets sent twice", error, logging.WARNING)
        return self._is_refusing

    def remove(self) -> None:
        """Remove the rule, if there is one: what is held goes on."""
        self._tried_s = None
        with suppress(PlatformError):  # without nftables there is none, and it has an end of its own
            nft("-f", "-", script=removal(_TABLE))


def may_be_held(sock: socket.socket) -> bool:
    """Return whether its program has not given a socket a firewall mark of its own."""
    return _mark_of(sock) in (_UNMARKED, _MARK)


def is_held(sock: socket.socket) -> bool:
    """Return whether a socket is held."""
    return _mark_of(sock) == _MARK


def hold(sock: socket.socket) -> None:
    """Hold back the data that a socket has not sent yet. Raises `OSError` without CAP_NET_ADMIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, _MARK)


def release(sock: socket.socket) -> None:
    """Have a socket go on, if it is held."""
    if not is_held(sock):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, _UNMARKED)
    # Nothing but time would have TCP try again when nothing is under way: that is what the end of a cork does.
    corked = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    if corked:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, corked)


def _mark_of(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_MARK)
