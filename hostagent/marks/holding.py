"""Hold a connection: what it has not sent yet waits in its socket, while what it has sent is still under way.

Netfilter refuses the data packets of a socket that has a certain firewall mark (SO_MARK) and passes packets without data. TCP
takes a packet that its own host refuses as not sent: it stays first in the socket's queue, is not counted as lost, changes no
window, and is tried again with the next acknowledgement or write (net/ipv4/tcp_output.c, `tcp_write_xmit`). It does count as
sent in the kernel's statistics, and so does the acknowledgement that it carries: what a connection receives while it is held
and has data to send is acknowledged when it is released.

An entry in the kernel with a time limit of `LASTS_S` makes the rule effective. A connection whose agent was killed goes on
after that time, at TCP's next attempt, in the class that it had.
"""

import logging
import socket

from beamer.errors import PlatformError
from hostagent.marks.nftables import FAMILIES, Family, nft, removable_tables, removal, without_data
from hostagent.rate_limited_log import RateLimitedLog

LASTS_S = 6.0
"""For how long the kernel refuses packets after the rule was installed."""

HOLD_MARK = 0x20B6
"""The firewall mark of a held socket, which packets have to have as a whole.

It has no bit of the masks that kube-proxy (0xc000), Calico (0xffff0000) and Cilium (0x0f00) use by default.
"""
_UNMARKED = 0
_PATIENCE_S = 0.5  # The program nft has so long, and connections that drain wait as long.


def _table(family: Family) -> str:
    return f"table {family} beamer_hold"  # The name of an interface's table begins with "beamer-".


def _script(family: Family) -> str:
    # The chain comes before whatever may change a packet's mark.
    # A FIN without data leaves in the old class, behind all that was sent.
    return f"""{removal(_table(family))}{_table(family)} {{
set held {{ type mark; flags timeout; timeout {LASTS_S:.0f}s; elements = {{ {HOLD_MARK} }}; }}
chain leaving {{
type filter hook output priority raw - 10
meta mark != @held accept
{"".join(f"{each} accept{chr(10)}" for each in without_data(family))}drop
}}
}}
"""


class HoldRule:
    """The rule by which this network namespace refuses what is held. Belongs to a thread inside it."""

    def __init__(self) -> None:
        self._limited_log = RateLimitedLog()
        self._tried_s: float | None = None
        self._is_refusing = False
        self._script = _script("ip")

    def cover(self, *, ipv6: bool) -> None:
        """Have packets of IPv4 refused, and of IPv6 or not, from the next `ensure` on."""
        script = "".join(map(_script, FAMILIES if ipv6 else FAMILIES[:1]))
        if self._script != script:
            self._script, self._tried_s = script, None

    def ensure(self, now_s: float, for_s: float) -> bool:
        """Have packets refused for the next `for_s` at least; return whether they are. Where not, that is logged.

        now_s: of a clock that never goes back. The rule is installed anew only when its time would end too early, which takes
        about 16 ms; what another program removes meanwhile is not noticed before.
        """
        if self._tried_s is not None and now_s + for_s < self._tried_s + LASTS_S:
            return self._is_refusing
        self._tried_s = now_s
        try:
            nft("-f", "-", script=self._script, patience_s=_PATIENCE_S)
            self._is_refusing = True
        except PlatformError as error:
            self._is_refusing = False
            self._limited_log.add("a change of class may have packets sent twice", error, logging.WARNING)
        return self._is_refusing

    def remove(self) -> None:
        """Remove the rule if no interface here has an agent's rules any more. Raises `PlatformError`.

        Where nftables does not say what there is, that is logged.
        """
        self._tried_s = None
        found = removable_tables(self._limited_log)
        present = [table for table in map(_table, FAMILIES) if table in found]
        if present and not any(name.startswith(("table ip beamer-", "table ip6 beamer-")) for name in found):
            nft("-f", "-", script="".join(map(removal, present)))


def may_be_held(sock: socket.socket) -> bool:
    """Return whether a socket has no firewall mark of its program's."""
    return _mark_of(sock) in (_UNMARKED, HOLD_MARK)


def is_held(sock: socket.socket) -> bool:
    """Return whether a socket is held."""
    return _mark_of(sock) == HOLD_MARK


def hold(sock: socket.socket) -> None:
    """Hold back the data that a socket has not sent yet. Raises `OSError` without CAP_NET_ADMIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, HOLD_MARK)


def release(sock: socket.socket) -> None:
    """Let a socket send again, if it is held."""
    if not is_held(sock):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, _UNMARKED)
    # TCP with nothing under way would try again only after a time-out; it does so at once when a cork is removed.
    corked = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    if corked:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, corked)


def _mark_of(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_MARK)
