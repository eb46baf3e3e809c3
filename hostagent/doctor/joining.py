"""Whether a controller would take an agent in: its certificate, its name and its version, up to the controller's welcome.

The connection is closed before the agent's hello. So no agent is displaced, and nothing is assigned.
"""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import connect

from beamer.doctor.findings import Finding, fault, ok
from beamer.protocol_version import HEADER, format_header
from hostagent.limits import MAX_MESSAGE_BYTES
from hostagent.link.tls import connection_failure

_PATIENCE_S = 5.0
_CLOSE_S = 1.0
_FIXES = {
    "its certificate is refused": "give --ca the authority of the controller's certificate",
    "certificate": "give --cert and --key of this agent, as beamer certs has made them",
    "expected one of": "give --name as the network's file has it, or add the agent there and restart the controller",
    "upgrade": "upgrade what is named",
}
"""What to do by what the refusal says."""
_OTHERWISE = "see the controller's log"


@dataclass(frozen=True)
class Joining:
    """What a controller has answered an agent. refused: why it does not take it in, empty where it does."""

    name: str
    url: str
    refused: str = ""


def try_to_join(name: str, url: str, tls: ssl.SSLContext | None) -> Joining:
    """Return whether the controller at `url`, http or https, takes agent `name` in. tls: with the agent's certificate."""
    address = f"ws{url.removeprefix('http')}/v1/agents/{name}"
    secure = address.startswith("wss:")
    try:
        with connect(
            address,
            ssl=tls if secure else None,
            additional_headers={HEADER: format_header()},
            open_timeout=_PATIENCE_S,
            close_timeout=_CLOSE_S,
            ping_interval=None,
            compression=None,
            proxy=None,
            max_size=MAX_MESSAGE_BYTES,
        ) as joined:
            joined.recv(_PATIENCE_S)
    except TimeoutError:
        return Joining(name, url, f"no welcome within {_PATIENCE_S:g} s")
    except (OSError, WebSocketException) as error:
        closed = error.rcvd.reason if isinstance(error, ConnectionClosed) and error.rcvd else ""
        return Joining(name, url, closed or connection_failure(error, secure))
    return Joining(name, url)


def judge_joining(joining: Joining) -> Iterator[Finding]:
    """Yield whether the controller takes the agent in."""
    if not joining.refused:
        yield ok(f"the controller takes in agent {joining.name}")
        return
    fix = next((fix for sign, fix in _FIXES.items() if sign in joining.refused), _OTHERWISE)
    yield fault(f"{joining.url} does not take in agent {joining.name}: {joining.refused}", fix)
