"""What anybody may send to the controller: it is answered in words, and nothing else is disturbed."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from beamer.errors import InputError, PlatformError
from beamer.log_limit import LogLimit
from beamer.studies.model import MAX_RANK, MAX_SECONDS, MAX_STEPS, MAX_SYNC_BYTES
from controller.http.bounded_requests import BoundedRequests
from controller.http.connections import OpenConnections, connections_within
from controller.limits import Limits, read_limits
from tests.support import plain_http
from tests.support.checkout import ROOT
from tests.support.served_controller import PATIENCE_S, Served, served
from topologies.single import build

FABRIC = build(hosts=3)
HOSTS = FABRIC.hosts
STUDY = "/v1/studies/mnist"
STAGE = f"{STUDY}/stages/rung0"
TRIAL = f"{STUDY}/trials/one"
ATTEMPT = f"{TRIAL}/attempts/first"
PLACED = {"workers": [{"rank": 0, "host": HOSTS[0].name}, {"rank": 1, "host": HOSTS[1].name}], "sync_bytes": 600_000}
SMALL = Limits(
    body_bytes=2000, header_bytes=1000, request_s=2, connections=20, connections_per_address=10, requests=5, studies=3,
    past_runs=2, rungs=3, stages=3, trials=3, declared_trials=30, targets=3, attempts=3, jobs=2, workers=6, transfers=12,
    running_workers=9,
)  # fmt: skip


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def controller(tmp_path: Path, limits: Limits) -> Iterator[Served]:
    with served(FABRIC, tmp_path / "journal.db", "beamer", limits) as controller:
        yield controller


def put(controller: Served, path: str, body: object = None, **more: Any) -> httpx.Response:
    if body is not None:
        more["json"] = body
    return plain_http.put(controller.url + path, timeout=PATIENCE_S, **more)


def get(controller: Served, path: str) -> Any:
    answer = plain_http.get(controller.url + path, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def register(controller: Served, name: str = "one") -> None:
    for path, body in (
        (STUDY, {}), (STAGE, None), (f"{STUDY}/trials/{name}", {}),
        (f"{STUDY}/trials/{name}/target", {"step": 5, "stage": "rung0"}),
        (f"{STUDY}/trials/{name}/attempts/first", PLACED),
    ):  # fmt: skip
        assert put(controller, path, body).status_code == 200
    assert controller.until(lambda runtime: f"mnist/{name}" in runtime.plan.jobs)


def refused(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert answer.status_code in statuses, answer.text[:300]
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"field", "value", "expected", "message"}
    assert len(answer.content) < 10_000, "not everything that came in"
    return error


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (STUDY, {"weight": 1e300}),
        (STUDY, {"weight": 1e-300}),
        (STUDY, {"rungs": [{"name": "r", "trials": 2**50, "step": 1}]}),
        (STUDY, {"rungs": [{"name": "r", "trials": 1, "step": MAX_STEPS + 1}]}),
        (TRIAL, {"budget": MAX_STEPS + 1}),
        (f"{TRIAL}/target", {"step": MAX_STEPS + 1}),
        (f"{TRIAL}/progress", {"step": MAX_STEPS + 1}),
        (f"{TRIAL}/attempts/two", {**PLACED, "sync_bytes": MAX_SYNC_BYTES + 1}),
        (f"{TRIAL}/attempts/two", {**PLACED, "compute_s": MAX_SECONDS + 1}),
        (f"{TRIAL}/attempts/two", {**PLACED, "compute_s": 1e308}),
        (f"{TRIAL}/attempts/two", {**PLACED, "overlap": 1e308}),
        (f"{TRIAL}/attempts/two", {"workers": [{"rank": MAX_RANK + 1, "host": HOSTS[0].name}]}),
        (f"{TRIAL}/workers/0", {"pid": 9, "start": 2**64}),
        (f"{TRIAL}/workers/0", {"pid": 9, "namespace": 2**64}),
    ],
)
def test_a_number_that_no_machine_reaches_in_a_year_is_refused(controller: Served, path: str, body: object) -> None:
    register(controller)
    plan = get(controller, "/v1/plan")
    error = refused(put(controller, path, body), 422)
    assert error["field"]
    assert error["expected"]
    assert get(controller, "/v1/plan") == plan
    register(controller, "two")  # decisions are made as before


@pytest.mark.parametrize("policy", ["beamer", "beamer-plan", "fifo", "fair"])
def test_the_largest_numbers_that_are_taken_are_decided_on(tmp_path: Path, policy: str) -> None:
    """Again after a restart, and with a loss that is no number."""
    placed = {**PLACED, "sync_bytes": MAX_SYNC_BYTES, "compute_s": MAX_SECONDS, "overlap": 1.0}
    with served(FABRIC, tmp_path / "journal.db", policy) as controller:
        rungs = [{"name": "rung0", "trials": 1000, "step": MAX_STEPS - 1}, {"name": "last", "trials": 9, "step": MAX_STEPS}]
        assert put(controller, STUDY, {"weight": 1e6, "rungs": rungs}).status_code == 200
        assert put(controller, "/v1/studies/small", {"weight": 1e-6, "barriers": False}).status_code == 200
        assert put(controller, STAGE).status_code == 200
        for study in (STUDY, "/v1/studies/small"):
            for name in ("a", "b"):
                trial = f"{study}/trials/{name}"
                writes: list[tuple[str, object]] = [
                    (trial, {"budget": MAX_STEPS}),
                    (f"{trial}/target", {"step": MAX_STEPS, "stage": "rung0"} if study == STUDY else {"step": MAX_STEPS}),
                    (f"{trial}/attempts/1", placed),
                    (f"{trial}/progress", {"step": 1, "loss": 1e308}),
                    (f"{trial}/progress", {"step": 2, "loss": "inf"}),
                    (f"{trial}/progress", {"step": 3, "loss": -1e308}),
                    (f"{trial}/progress", {"step": MAX_STEPS - 2, "loss": "nan"}),
                ]
                for path, body in writes:
                    assert put(controller, path, body).status_code == 200, (path, body)
        assert controller.until(lambda runtime: len(runtime.plan.jobs) == 4)
    with served(FABRIC, tmp_path / "journal.db", policy) as controller:
        assert controller.until(lambda runtime: len(runtime.plan.jobs) == 4)
        register(controller, "c")


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        *(
            (path, '{"x": 1}', JSON)
            for path in (STUDY, STAGE, f"{STAGE}/seal", f"{STUDY}/end", TRIAL, f"{TRIAL}/pause", ATTEMPT)
        ),
        *((path, b'{"\\ud800": 1}', JSON) for path in (STUDY, STAGE, TRIAL, ATTEMPT)),
        (STUDY, b'{"run": "\\ud800"}', JSON),
        (STUDY, b'{"run": "a\\u0000b"}', JSON),
        (ATTEMPT, b'{"workers": [{"rank": 0, "host": "\\udfff"}]}', JSON),
        (ATTEMPT, b'{"workers": [{"rank": 0, "host": "h1"}], "collective": "\\ud800\\u0000"}', JSON),
        (STUDY, "[" * 100_000, JSON),
        (STUDY, '{"run":' * 50_000, JSON),
        (STUDY, b"\xff\xfe", JSON),
        (STUDY, b'{"run": "\xed\xa0\x80"}', JSON),
        (STUDY, "{", JSON),
        (STUDY, "[1]", JSON),
        (STUDY, "17", JSON),
        (STUDY, '{"weight": 1' + "0" * 9000 + "}", JSON),
        (f"{TRIAL}/progress", '{"step": 1' + "0" * 9000 + "}", JSON),
        (STUDY, '{"run": "b"}', {"content-type": "text/plain"}),
        (STUDY, '{"run": "b"}', {"content-type": "application/x-www-form-urlencoded"}),
        (STUDY, '{"run": "b"}', {"content-type": "multipart/form-data; boundary=x"}),
        (STUDY, '{"run": "b"}', {"content-type": "\xff/\x01".encode("latin-1")}),
        (ATTEMPT, b'{"workers": [' + b"1," * 100_000 + b"1]}", JSON),
        (ATTEMPT, b'{"workers": [{"rank": 0, "host": "' + b"h" * 100_000 + b'"}]}', JSON),
        (ATTEMPT, json.dumps({f"key{i}": i for i in range(10_000)}), JSON),
        (f"{TRIAL}/workers/{10**400}", '{"pid": 9}', JSON),
        (f"{TRIAL}/workers/-1", '{"pid": 9}', JSON),
        ("/v1/studies/%00", "{}", JSON),
        ("/v1/studies/%ed%a0%80", "{}", JSON),
        (f"/v1/studies/{'x' * 10_000}", "{}", JSON),
        (f"{TRIAL}/progress?run=%ed%a0%80", '{"step": 1}', JSON),
        (f"{TRIAL}/progress?run={'r' * 9000}", '{"step": 1}', JSON),
        (f"{TRIAL}/progress?run=a&run=b", '{"step": 1}', JSON),
    ],
)
def test_whatever_is_sent_is_refused_in_words(controller: Served, path: str, content: str | bytes, headers: Any) -> None:
    register(controller)
    plan = get(controller, "/v1/plan")
    refused(put(controller, path, content=content, headers=headers), 400, 404, 409, 422)
    assert get(controller, "/v1/plan") == plan
    assert [study["name"] for study in get(controller, "/v1/studies")["studies"]] == ["mnist"]


def test_null_is_as_good_as_missing(controller: Served) -> None:
    for body in ({"weight": 2.0, "barriers": False}, {"weight": None, "rungs": None, "barriers": None, "run": None}):
        assert put(controller, STUDY, body).status_code == 200
    study = get(controller, STUDY)
    assert (study["weight"], study["barriers"], study["rungs"]) == (2.0, False, [])


@pytest.mark.parametrize("query", ["?", "?run", "?run=", "?x=%00", "?%ff=%ff", "?run=1&x[]=2", "?" + "a&" * 3000])
def test_whatever_is_asked_is_answered(controller: Served, query: str) -> None:
    register(controller)
    for path in ("/v1/studies", STUDY, STAGE, TRIAL, "/v1/plan", "/v1/latencies", "/v1/counters", "/v1/health", "/metrics"):
        answer = plain_http.get(controller.url + path + query)
        assert answer.status_code in (200, 404), (path, answer.text)


def exchanged(controller: Served, sent: bytes) -> bytes:
    """Return everything that comes back on a connection of its own until it is closed."""
    with closing(socket.create_connection(controller.address, PATIENCE_S)) as connection:
        connection.sendall(sent)
        came = b""
        while piece := connection.recv(65536):
            came += piece
        return came


HEAD = b"PUT /v1/studies/mnist HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"PUT  / HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{} ", 400),
        (HEAD + b"content-length: -2\r\n\r\n{}", 400),
        (HEAD + b"content-length: two\r\n\r\n{}", 400),
        (HEAD + b"transfer-encoding: gzip\r\n\r\n{}", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"b" * 20_000, 400),
        (b"GET /v1/health HTTP/1.1\r\n\r\n", 400),
        (b"GET http://[/v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 404),
        (b"GET /v1/plan/ HTTP/1.1\r\nhost: elsewhere\r\nconnection: close\r\n\r\n", 404),
        (b"BREW /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 405),
        (b"GET /v1/agents/h1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 404),
    ],
)
def test_what_is_no_request_gets_an_answer(controller: Served, request_: bytes, status: int) -> None:
    answer = exchanged(controller, request_)
    line, _, rest = answer.partition(b"\r\n")
    assert line.split()[1] == str(status).encode(), answer[:300]
    assert set(json.loads(rest.partition(b"\r\n\r\n")[2])["error"]) == {"field", "value", "expected", "message"}
    assert get(controller, "/v1/health")["status"] == "ok"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_said_to_be_json_is_told_what_to_say(controller: Served, kind: str) -> None:
    error = refused(put(controller, STUDY, content='{"run": "b"}', headers={"content-type": kind}), 422)
    assert "Content-Type: application/json" in error["expected"]


def test_a_method_that_a_path_does_not_have_is_told_which_it_has(controller: Served) -> None:
    answer = plain_http.delete(controller.url + STUDY)
    refused(answer, 405)
    assert set(answer.headers["allow"].split(", ")) <= {"GET", "PUT"}


def test_a_body_in_pieces_is_as_good_as_one_in_one(controller: Served) -> None:
    chunked = HEAD + b'connection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"run\r\n7\r\n": "a"}\r\n0\r\n\r\n'
    assert b'{"changed":true}' in exchanged(controller, chunked)
    assert get(controller, STUDY)["run"] == "a"


class TestLimits:
    @pytest.fixture
    def limits(self) -> Limits:
        return SMALL

    def test_a_body_beyond_the_limit_is_not_read(self, controller: Served) -> None:
        for head in (
            HEAD + b"content-length: 100000000\r\n\r\n",
            HEAD + b"transfer-encoding: chunked\r\n\r\n7d1\r\n" + b" " * 2001,
        ):
            answer = exchanged(controller, head)
            assert answer.startswith(b"HTTP/1.1 413 "), answer
            assert b"at most 2000 bytes" in answer
        fits = b"content-length: 2000\r\nconnection: close\r\n\r\n{" + b" " * 1998 + b"}"
        assert exchanged(controller, HEAD + fits).startswith(b"HTTP/1.1 200 ")

    @pytest.mark.parametrize(
        ("path", "body", "field"),
        [
            (STUDY, {"rungs": [{"name": f"r{i}", "trials": 1, "step": 1 + i} for i in range(4)]}, "rungs"),
            (STUDY, {"rungs": [{"name": f"r{i}", "trials": 16, "step": 1 + i} for i in range(2)]}, "rungs.trials"),
            (f"{TRIAL}/attempts/two", {"workers": [{"rank": i, "host": HOSTS[0].name} for i in range(7)]}, "workers"),
            (
                f"{TRIAL}/attempts/two",
                {"workers": [{"rank": i, "host": HOSTS[0].name} for i in range(5)], "collective": "all-to-all"},
                "workers",
            ),
        ],
    )
    def test_too_many_in_one_request(self, controller: Served, path: str, body: object, field: str) -> None:
        register(controller)
        error = refused(put(controller, path, body), 422)
        assert error["field"] == field
        assert "at most" in error["expected"]

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/studies/s{}", {}),
            (STUDY + "/stages/s{}", None),
            (STUDY + "/trials/t{}", {}),
            (TRIAL + "/target", {"step": "{}"}),
        ],
    )
    def test_too_many_one_after_the_other(self, controller: Served, path: str, body: dict[str, str] | None) -> None:
        register(controller)

        def one(i: int) -> httpx.Response:
            return put(controller, path.format(i), {"step": 10 + i} if body else body)

        answers = [one(i) for i in range(5)]
        taken = [answer.status_code for answer in answers].count(200)
        assert taken == 2
        assert "at most 3" in refused(answers[-1], 422)["expected"]
        assert one(0).json() == {"changed": False}, "what is known may be repeated"

    def test_too_many_that_run_at_once(self, controller: Served) -> None:
        for i in range(3):
            assert put(controller, STUDY, {}).status_code == 200
            assert put(controller, f"{STUDY}/trials/t{i}", {}).status_code == 200
        answers = [put(controller, f"{STUDY}/trials/t{i}/attempts/1", PLACED) for i in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 422]
        assert put(controller, f"{STUDY}/trials/t0/attempts/2", PLACED).status_code == 200, "one that runs may move"
        assert put(controller, f"{STUDY}/trials/t0/status", {"status": "killed"}).status_code == 200
        assert put(controller, f"{STUDY}/trials/t2/attempts/1", PLACED).status_code == 200

    def test_too_many_workers_that_run_at_once(self, controller: Served) -> None:
        assert put(controller, STUDY, {}).status_code == 200
        for name in ("a", "b"):
            assert put(controller, f"{STUDY}/trials/{name}", {}).status_code == 200

        def start(name: str, attempt: int, workers: int) -> httpx.Response:
            placed = [{"rank": rank, "host": HOSTS[0].name} for rank in range(workers)]
            return put(controller, f"{STUDY}/trials/{name}/attempts/{attempt}", {"workers": placed})

        assert start("a", 1, 6).status_code == 200
        assert start("b", 1, 3).status_code == 200
        error = refused(start("b", 2, 4), 422)
        assert (error["field"], error["value"]) == ("workers", 4)
        assert "6 others run, and at most 9" in error["expected"]
        assert start("b", 1, 3).json() == {"changed": False}, "what is known may be repeated"
        assert start("a", 2, 5).status_code == 200
        assert start("b", 2, 4).status_code == 200
        assert put(controller, f"{STUDY}/trials/a/pause", {}).status_code == 200
        assert start("b", 3, 6).status_code == 200

    def test_what_is_over_is_forgotten(self, controller: Served) -> None:
        register(controller)
        started = get(controller, TRIAL)["attempts"][0]["started_s"]
        for i in range(6):
            assert put(controller, f"{TRIAL}/attempts/a{i}", {**PLACED, "sync_bytes": i}).status_code == 200
        attempts = get(controller, TRIAL)["attempts"]
        assert [attempt["name"] for attempt in attempts] == ["first", "a4", "a5"]
        assert attempts[0]["started_s"] == started, "the makespan begins with it"
        for i in range(6):
            assert put(controller, STUDY, {"run": f"r{i}"}).status_code == 200
        assert get(controller, STUDY)["past_runs"] == ["r3", "r4"]

    def test_slow_requests_and_answers_are_given_up(self, controller: Served) -> None:
        """None of them sends anything that could be answered: they are closed, and counted no more."""
        for slow in (b"", b"GET /v1/hea", HEAD + b"content-length: 50\r\n\r\n{"):
            assert exchanged(controller, slow) == b""
        assert get(controller, "/v1/health")["status"] == "ok"

    def test_surplus_connections_are_closed_at_once(self, controller: Served, capfd: pytest.CaptureFixture[str]) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(socket.create_connection(controller.address, PATIENCE_S)) for _ in range(100)]
            closed = [connection for connection in connections if is_closed(connection)]
            assert len(closed) >= 90, "10 of an address"
        deadline = time.monotonic() + PATIENCE_S
        while True:  # until it is seen that the others are gone
            try:
                assert get(controller, "/v1/health")["status"] == "ok"
                break
            except httpx.HTTPError:
                assert time.monotonic() < deadline
        assert capfd.readouterr().out.count("surplus connections") <= 1


def is_closed(connection: socket.socket) -> bool:
    """Say whether the other side closes a connection on which it was sent nothing, sooner than it gives up slow requests."""
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_connections_are_counted_by_address_and_in_all() -> None:
    counted = OpenConnections(3, 2, LogLimit(1, 60.0))
    assert [counted.admit(address) for address in "aaabbc"] == [True, True, False, True, False, False]
    counted.leave("a")
    assert (counted.total, counted.admit("c")) == (3 - 1, True)


@pytest.mark.parametrize(("descriptors", "expected"), [(10_000, 100), (-1, 100), (300, 28)])
def test_descriptors_are_kept_for_switches_and_agents(descriptors: int, expected: int) -> None:
    assert connections_within(descriptors, Limits(connections=100), 20) == expected


def test_too_few_descriptors_are_named() -> None:
    with pytest.raises(PlatformError, match="may open 200 files"):
        connections_within(200, Limits(), 20)


def test_requests_beyond_the_limit_are_put_off() -> None:
    """Those that wait for their body hold one: the next is told to come later, and the first ones are served."""

    async def play() -> None:
        gate = asyncio.Event()
        answers: list[int] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})

        bounded = BoundedRequests(app, Limits(requests=2))

        async def receive() -> Any:
            await gate.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(bounded({"type": "http", "headers": []}, receive, send))
            while not answers:
                await asyncio.sleep(0)
            assert answers == [503]
            gate.set()
        assert answers == [503, 200, 200]

    asyncio.run(play())


def test_limits_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text("studies: 7\nbody_bytes: 100\n")
    assert read_limits(path) == Limits(studies=7, body_bytes=100)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("study: 7", "limits.study: got 7, expected one of .* \\(did you mean 'studies'"),
        ("studies: 0", "limits.studies: got 0, expected an integer above 0"),
        ("studies: true", "limits.studies: got True"),
        ("studies: many", "limits.studies: got 'many'"),
        ("- studies", "--limits: .* expected a mapping"),
        ("{", "--limits: .* expected valid YAML"),
    ],
)
def test_limits_that_cannot_be_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_limits(path)


def test_every_limit_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "operate.md").read_text("utf-8")
    documented = {name: int(default) for name, default in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}
    assert documented == asdict(Limits())


def test_what_is_taken_in_grows_with_what_comes_in(controller: Served) -> None:
    """Fifteen times as many registrations take no more than several times fifteen as much of the processor."""

    def seconds(first: int, count: int) -> float:
        began = time.process_time()
        with plain_http.Client(base_url=controller.url, timeout=PATIENCE_S) as client:
            for i in range(first, first + count):
                assert client.put(f"{STUDY}/trials/t{i}", json={}).status_code == 200
        return time.process_time() - began

    assert put(controller, STUDY, {}).status_code == 200
    seconds(0, 20)
    few, many = seconds(20, 40), seconds(60, 600)
    assert many < 15 * 6 * few
