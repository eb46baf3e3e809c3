"""What answers and is no controller is said in words; one of an earlier version is served."""

import json
import socket

import pytest

from beamer.errors import PlatformError
from beamer.inspect.api import LEADS, SILENT, ControllerApi
from tests.support.fake_controller import raw_server


def test_a_controller_of_version_1_is_served() -> None:
    health = {"status": "ok", "journal": {}, "installed_everywhere": True, "switches": {}, "agents": {}}
    answers = {b"/v1/health": health, b"/v1/studies": {"studies": []}}

    def answer(connection: socket.socket, request: bytes) -> None:
        content = json.dumps(answers[request.split()[1]]).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    with raw_server(answer) as url, ControllerApi(url) as api:
        assert api.get("/v1/studies") == {"studies": []}
        assert [state.state for state in api.states()] == [LEADS]


@pytest.mark.parametrize("content", [b'{"ok": true}', b"[]", b"7", b"null"])
def test_json_of_another_service_is_no_answer(content: bytes) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    with raw_server(answer) as url, ControllerApi(url) as api:
        with pytest.raises(PlatformError, match=f"what answers at {url} is no controller"):
            api.get("/v1/studies")
        [state] = api.states()
    assert (state.state, "is no controller" in state.detail) == (SILENT, True)
