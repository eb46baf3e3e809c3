"""Several controllers, of which one leads: requests go to the one that has answered, and to the next where it does not lead."""

from collections.abc import Callable, Sequence

from beamer.client.resolver import SocketAddress
from beamer.client.transport import Answer, Transport
from beamer.protocol_version import PeerProtocol

NOT_LEADING = 503
"""The status of a controller that follows another one, and of one that cannot serve now."""

_SERVER_ERRORS = 500  # A status from here on may be a proxy's own, and says nothing of the controller's version.


class Controllers:
    """Send requests to the controllers at `urls`, as `Transport` does to one.

    connect: makes the transport to one, given the addresses of its host that were found before. before: those of a parent.
    """

    def __init__(
        self,
        urls: Sequence[str],
        connect: Callable[[str, tuple[SocketAddress, ...]], Transport],
        before: "Controllers | None" = None,
    ) -> None:
        known: list[tuple[SocketAddress, ...]] = before.known if before else [()] * len(urls)
        self._transports: list[Transport] = [connect(*found) for found in zip(urls, known, strict=True)]
        self._present: int = before._present if before else 0
        self._protocols: dict[int, PeerProtocol] = {}

    @property
    def known(self) -> list[tuple[SocketAddress, ...]]:
        """The addresses of each that were found last."""
        return [transport.known for transport in self._transports]

    @property
    def protocol(self) -> PeerProtocol | None:
        """What the controller speaks that the next request goes to, None if it has not answered yet."""
        return self._protocols.get(self._present)

    def request(self, method: str, path: str, content: bytes | None = None) -> Answer:
        """Return the response to a request, as `Transport.request`; where none comes, the next request goes to the next one."""
        present = self._present
        try:
            answer = self._transports[present].request(method, path, content)
        except ConnectionError:
            self._protocols.pop(present, None)  # The controller may come back as another version.
            self._leave(present)
            raise
        if answer.status_code < _SERVER_ERRORS:
            self._protocols[present] = answer.protocol
        if answer.status_code == NOT_LEADING:
            self._leave(present)
        return answer

    def close(self) -> None:
        """Close the connections."""
        for transport in self._transports:
            transport.close()

    def abandon(self) -> None:
        """Close the descriptors of a parent's connections in a forked child, as `Transport.abandon`."""
        for transport in self._transports:
            transport.abandon()

    def _leave(self, present: int) -> None:
        if self._present == present:  # Another thread may have left this controller already.
            self._present = (present + 1) % len(self._transports)
