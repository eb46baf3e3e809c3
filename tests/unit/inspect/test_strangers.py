"""What answers and is no controller of this version is said in words."""

import socket

import pytest

from beamer.errors import PlatformError
from beamer.inspect.api import SILENT, ControllerApi
from tests.support.fake_controller import raw_server


@pytest.mark.parametrize("content", [b'{"ok": true}', b"[]", b"7", b"null"])
def test_json_of_another_service_is_no_answer(content: bytes) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    with raw_server(answer) as url, ControllerApi(url) as api:
        with pytest.raises(PlatformError, match=f"what answers at {url} is no controller of this version"):
            api.get("/v1/studies")
        [state] = api.states()
    assert (state.state, "no controller of this version" in state.detail) == (SILENT, True)
