"""What the controller's server relies on inside uvicorn, which promises none of it, is as in the version that is allowed."""

import hashlib
import inspect
from collections.abc import Iterator

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from controller.http import server

BASES = {
    H11Protocol: server._Protocol,
    WebSocketsSansIOProtocol: server._WebSocket,
    uvicorn.Server: server.HttpServer,
}
KNOWN = {
    "H11Protocol.__init__": "ad1ed8e837b2",
    "H11Protocol.connection_lost": "dbb688fa2b38",
    "H11Protocol.connection_made": "6efb565ff3d3",
    "H11Protocol.data_received": "e03b145518ca",
    "H11Protocol.handle_events": "e63a9d1492e3",
    "H11Protocol.handle_websocket_upgrade": "6f42a029e35a",
    "H11Protocol.on_response_complete": "1fbb8f48c6a1",
    "H11Protocol.send_400_response": "56937b748fc5",
    "H11Protocol.shutdown": "aaa6d607648b",
    "H11Protocol.timeout_keep_alive_handler": "fcd7338529fe",
    "Server._serve": "4575b7a50adf",
    "Server.capture_signals": "e1bbcd4770d1",
    "Server.main_loop": "afccb353a119",
    "Server.serve": "112ef41af521",
    "Server.startup": "2aa1d70a244b",
    "WebSocketsSansIOProtocol.__init__": "631dcd744eab",
    "WebSocketsSansIOProtocol.connection_made": "f533ec93747c",
    "WebSocketsSansIOProtocol.data_received": "c89d394077d8",
    "WebSocketsSansIOProtocol.handle_connect": "fc648c2161ff",
    "WebSocketsSansIOProtocol.handle_cont": "d96fe1479da6",
    "WebSocketsSansIOProtocol.handle_parser_exception": "ff5cf13c764f",
    "WebSocketsSansIOProtocol.keepalive_timeout": "8e1ceb6ec446",
    "WebSocketsSansIOProtocol.schedule_ping": "002da2050fd2",
    "WebSocketsSansIOProtocol.send_receive_event_to_app": "a2b10de91477",
}
"""Digests of the methods that are overridden, and of those that the overriding ones call or count on."""


def overridden() -> Iterator[str]:
    for base, ours in BASES.items():
        for name, value in vars(ours).items():
            if inspect.isfunction(value) and hasattr(base, name):
                yield f"{base.__name__}.{name}"


def digest(name: str) -> str:
    of_class, _, method = name.partition(".")
    [base] = [base for base in BASES if base.__name__ == of_class]
    return hashlib.sha256(inspect.getsource(getattr(base, method)).encode()).hexdigest()[:12]


def test_every_method_that_is_overridden_is_known() -> None:
    assert set(overridden()) - KNOWN.keys() == set()


@pytest.mark.parametrize("name", KNOWN)
def test_it_is_as_it_was(name: str) -> None:
    found = digest(name)
    assert found == KNOWN[name], (
        f"uvicorn {uvicorn.__version__} has another {name} than 0.54.0: compare it with what "
        f"controller/http/server.py says and does, change that where it has to be, and write {found} here"
    )
