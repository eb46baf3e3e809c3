"""What pydantic alone reads is answered as where FastAPI reads it."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from beamer.clock import SteadyClock
from beamer.network.policies import network_policy
from beamer.studies.journal.store import Journal
from controller.http.api import create_app
from controller.http.plain_route import PlainRoute
from controller.settings import ControllerSettings
from tests.support.served_controller import made_runtime
from tests.unit.controller.http.test_api import ATTEMPT, DECLARED, FABRIC, PLACED, STAGE, STUDY, TRIAL

JSON = {"content-type": "application/json"}
WORKER = f"{TRIAL}/workers/0"
RANKS = ("0", "00", "+1", "-1", "1.0", "1e0", "%D9%A1", "9" * 30, "9999999", "99999", "1048575", "1048576")
ATTACHED = b'{"pid": 4242, "start": 7}'
PUTS: list[tuple[str, bytes | None, dict[str, str]]] = [
    (STUDY, None, {}),
    (STUDY, b"null", JSON),
    (STUDY, b"{}", JSON),
    (STUDY, b'{"weight": 2.5}', JSON),
    (STUDY, b'{"weight": NaN}', JSON),
    (STUDY, b'{"weight": "2"}', JSON),
    (STUDY, b'{"weight": 2.0}', {"content-type": "application/json; charset=utf-8"}),
    (STUDY, b'{"weight": 2.0}', {"content-type": "application/vnd.study+json"}),
    (STUDY, b'{"weight": 2.0}', {"content-type": "application/jsonx"}),
    (STUDY, b'{"weight": 2.0}', {"content-type": "text/plain"}),
    (STUDY, b'{"weight": 2.0}', {}),
    (STUDY, b"{", JSON),
    (STUDY, b"[" * 100_000, JSON),
    (STUDY, b"\xff", JSON),
    (STUDY, b"7", JSON),
    (f"{STUDY}?run=b", b"{}", JSON),
    (f"{STUDY}?run=a&run=b", b"{}", JSON),
    (f"{STUDY}?unknown=1", b"{}", JSON),
    (f"{STUDY}?run=%ff", b"{}", JSON),
    ("/v1/studies/a%2Fb", b"{}", JSON),
    ("/v1/studies/%ed%a0%80", b"{}", JSON),
    (f"{STAGE}/seal", b'{"x": 1}', JSON),
    (STAGE, b"", JSON),
    (f"{TRIAL}/target", b'{"step": 7, "stage": "rung0"}', JSON),
    (f"{TRIAL}/target", b'{"step": 7.5, "stage": "rung0"}', JSON),
    (f"{TRIAL}/target", None, {}),
    (f"{TRIAL}/progress", b'{"step": 1, "loss": 0.5}', JSON),
    (f"{TRIAL}/progress", b'{"step": 1, "loss": 0.5}', JSON),
    (f"{TRIAL}/progress", b'{"step": true}', JSON),
    (f"{TRIAL}/progress", b'{"step": 2, "more": 1}', JSON),
    (f"{TRIAL}/progress", b'{"step": 3, "loss": "\\ud800"}', JSON),
    (f"{TRIAL}/progress?run=other", b'{"step": 4}', JSON),
    ("/v1/studies/none/trials/t/progress", b'{"step": 4}', JSON),
    *((f"{TRIAL}/workers/{rank}", ATTACHED, JSON) for rank in RANKS),
    (WORKER + "/detach", b"{}", JSON),
    (f"{TRIAL}/pause", b"null", JSON),
    (f"{TRIAL}/status", b'{"status": "finished"}', JSON),
    (f"{TRIAL}/status", b'{"status": "lost"}', JSON),
]  # fmt: skip


async def answers(path: Path) -> list[tuple[int, bytes, str]]:
    path.mkdir()
    journal = Journal(f"sqlite:///{path / 'journal.db'}")
    clock = SteadyClock(lambda: 100.0, lambda: 100.0)
    runtime = made_runtime(ControllerSettings(FABRIC, network_policy("beamer")), journal, clock=clock)
    await runtime.start()
    given = []
    transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://beamer") as client:
        for name, body in ((STUDY, DECLARED), (STAGE, {}), (TRIAL, {}), (ATTEMPT, PLACED)):
            assert (await client.put(name, json=body)).status_code == 200
        for name, content, headers in PUTS:
            answer = await client.put(name, content=content, headers=headers)
            given.append((answer.status_code, answer.content, answer.headers.get("content-type", "")))
    await runtime.stop()
    return given


def test_every_answer_is_the_one_that_fastapi_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI says in words of its own what is wrong with a request, and the API in those of all its refusals."""
    plainly = asyncio.run(answers(tmp_path / "plain"))
    monkeypatch.setattr(PlainRoute, "get_route_handler", APIRoute.get_route_handler)
    usually = asyncio.run(answers(tmp_path / "usual"))
    refused = 0
    for (name, content, _), one, other in zip(PUTS, plainly, usually, strict=True):
        if other[0] in (400, 500) or b'"detail"' in other[1]:
            assert other[0] in (400, 422, 500), (name, content)  # 500: what it is to say is no UTF-8
            assert (one[0], json.loads(one[1])["error"].keys()) == (422, {"field", "value", "expected", "message"}), name
            refused += 1
        else:
            assert one == other, (name, content and content[:40])
    assert 10 < refused < len(PUTS)
    assert {200, 404, 422} <= {status for status, _, _ in plainly}


@pytest.mark.parametrize(
    ("path", "content", "headers", "field", "said"),
    [
        (f"{TRIAL}/progress", None, {}, "body", "a mapping"),
        (f"{TRIAL}/progress", b"[]", JSON, "body", "a mapping"),
        (f"{TRIAL}/progress", b'{"step": 1', JSON, "body", "JSON"),
        (
            f"{TRIAL}/progress",
            b'{"step": 1}',
            {"content-type": "text/plain"},
            "body",
            "JSON, with Content-Type: application/json",
        ),
        (f"{TRIAL}/progress", b'{"stpe": 1}', JSON, "stpe", "step"),
        (f"{TRIAL}/workers/1.5", ATTACHED, JSON, "rank", "a whole number"),
        (
            f"{STUDY}?run=%00",
            b'{"rungs": [{"name": "r", "trials": 1.5, "step": 1}]}',
            JSON,
            "rungs[0].trials",
            "a whole number",
        ),
    ],
)
def test_what_is_refused_is_named(
    tmp_path: Path, path: str, content: bytes | None, headers: dict[str, str], field: str, said: str
) -> None:
    async def refusal() -> tuple[int, dict[str, str]]:
        runtime = made_runtime(
            ControllerSettings(FABRIC, network_policy("fifo")), Journal(f"sqlite:///{tmp_path / 'journal.db'}")
        )
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://beamer") as client:
            answer = await client.put(path, content=content, headers=headers)
        await runtime.stop()
        return answer.status_code, answer.json()["error"]

    status, error = asyncio.run(refusal())
    assert (status, error["field"]) == (422, field), error
    assert said in error["expected"], error
