"""Hostile HTTP requests against a served controller: of its own OpenAPI document, changed, and such as are no requests at all.

a request    of a path of the document, its body after the schema, names from a few; as it is, or parts replaced
a body       that is no JSON, too deep, too large, of another type, in pieces
bytes        a request with bytes changed, on a connection of its own
"""

import random
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import httpx

from eval.fuzz.controller import FABRIC, LIMITS, PATIENCE_S, FuzzedController, fuzzed_controller
from eval.fuzz.findings import Findings
from eval.fuzz.json_values import HOSTILE, NAMES, hostile_json, to_json, value_of
from eval.fuzz.mutations import mutated

JSON = "application/json"
TYPES = (JSON, JSON, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "\xff/x")
BODIES = (b"", b"{", b"null", b"[" * 20_000, b'{"a":' * 20_000, b"\xff\xfe\x00", b"1" * 9000, b" " * (LIMITS.body_bytes + 1))
REQUESTS = (
    b'PUT /v1/studies/h0 HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{"weight": 2.0}',
    b"PUT /v1/studies/h1 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /v1/plan?run=%ff HTTP/1.1\r\nhost: x\r\n\r\nGET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"GET /v1/agents/h1 HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
)
RETURN_S = 0.2  # An answer to bytes that are no request is awaited so long, perhaps in vain.


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    with fuzzed_controller() as fuzzed:
        fuzzer = HttpFuzzer(fuzzed, random.Random(seed))
        until = time.monotonic() + seconds
        while fuzzed.tally.goes_on(until, most_inputs):
            fuzzer.try_one()
        return fuzzed.tally.findings("http", seed)


class HttpFuzzer:
    """Tries one request after the other on a controller."""

    def __init__(self, fuzzed: FuzzedController, rng: random.Random) -> None:
        self._fuzzed = fuzzed
        self._rng = rng
        document = fuzzed.http.get("/openapi.json").json()
        self._definitions: Mapping[str, Any] = document["components"]["schemas"]
        self._operations = [
            (path, method.upper(), operation) for path, of in document["paths"].items() for method, operation in of.items()
        ]
        self._writes = [operation for operation in self._operations if operation[1] == "PUT"]

    def try_one(self) -> None:
        """Send one input, and look at what it comes to."""
        if self._rng.random() < 0.1:
            self._send_bytes(mutated(self._rng, self._rng.choice(REQUESTS), REQUESTS))
        else:
            self._send_request()

    def _send_request(self) -> None:
        rng = self._rng
        path, method, operation = rng.choice(self._writes if rng.random() < 0.8 else self._operations)
        url = "/".join(self._filled(part) for part in path.split("/"))
        if rng.random() < 0.1:
            url += "?run=" + quote(str(rng.choice((*NAMES, *HOSTILE))).encode("utf-8", "surrogatepass"))
        kind, content = JSON, b""
        if "requestBody" in operation:
            body = value_of(rng, operation["requestBody"]["content"][JSON]["schema"], self._definitions)
            body = self._placed(body)
            content = to_json(hostile_json(rng, body) if rng.random() < 0.5 else body)
        if rng.random() < 0.1:
            content, kind = rng.choice((content, rng.choice(BODIES))), rng.choice(TYPES)
        sent = f"{method} {url} {kind}\n".encode("utf-8", "replace") + content
        try:
            answer = self._fuzzed.http.request(method, url, content=content, headers={b"content-type": kind.encode("latin-1")})
        except httpx.HTTPError as error:
            # Content that is too large is refused before it was all sent.
            lost = None if len(content) > LIMITS.body_bytes else f"no answer: {error!r}"
            self._fuzzed.note(True, lost, sent[:10_000])
        else:
            self._fuzzed.note(answer.status_code >= 400, _fault(answer), sent[:10_000])

    def _filled(self, part: str) -> str:
        """Return a part of a path with its parameter filled in: mostly a name, so that paths lead somewhere."""
        if not part.startswith("{"):
            return part
        if part == "{rank}":
            return str(self._rng.choice((0, 0, 1, 2, -1, 10**400)))
        if self._rng.random() < 0.95:
            return self._rng.choice(NAMES[:2])
        hostile = str(self._rng.choice(HOSTILE)).encode("utf-8", "surrogatepass")
        return quote(hostile, safe="") or "%20"

    def _placed(self, body: Any) -> Any:
        """Return a body whose workers are mostly on hosts of the fabric, with ranks of their own."""
        if isinstance(body, dict) and isinstance(body.get("workers"), list) and self._rng.random() < 0.9:
            hosts = [host.name for host in FABRIC.hosts]
            workers = [{**worker, "rank": i, "host": self._rng.choice(hosts)} for i, worker in enumerate(body["workers"])]
            return {**body, "workers": workers, "collective": self._rng.choice(("ring", "fsdp", "all-to-all", "tree"))}
        return body

    def _send_bytes(self, data: bytes) -> None:
        heard = b""
        try:
            with closing(socket.create_connection(self._fuzzed.served.address, PATIENCE_S)) as connection:
                connection.settimeout(RETURN_S)
                connection.sendall(data)
                while piece := connection.recv(65536):
                    heard += piece
        except OSError:
            pass
        status = heard.partition(b" ")[2][:3]
        fault = f"answered {status.decode()}" if status[:1] == b"5" and status != b"503" else None
        self._fuzzed.note(status[:1] not in (b"1", b"2"), fault, data)


def _fault(answer: httpx.Response) -> str | None:
    """Return what is wrong with an answer, None if nothing is."""
    if answer.status_code >= 500 and answer.status_code != 503:
        return f"answered {answer.status_code}"
    if answer.status_code >= 400:
        try:
            keys = set(answer.json()["error"])
        except (ValueError, KeyError, TypeError):
            keys = set()
        return None if keys == {"field", "value", "expected", "message"} else f"not the form of a refusal: {answer.text[:200]}"
    return None
