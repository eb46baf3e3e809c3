"""Who may do what over HTTP: whoever has no token for it is refused in the API's form, logged once, and changes nothing."""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from starlette.requests import HTTPConnection

from beamer.studies.events import StudyRegistered
from beamer.studies.journal.store import Journal
from beamer.testing.fabrics import star
from controller.http.api import create_app
from controller.http.authorization import AGENT, HEALTH, MAX_LOGGED, STUDIES, Authorization, DeniedError
from controller.identity.credentials import Credentials
from controller.identity.tokens import DAY_S, Claims, TokenKey, TokenRole, sign_token
from tests.support import plain_http
from tests.support.served_controller import PATIENCE_S, Served, served

FABRIC = star(2)
KEY = TokenKey(secrets.token_bytes(32))
PLACED = {"workers": [{"rank": 0, "host": "h1"}, {"rank": 1, "host": "h2"}], "sync_bytes": 600_000}
TRIAL = "/v1/studies/mnist/trials/one"


def token(study: str, role: TokenRole, key: TokenKey = KEY, valid_s: float = DAY_S) -> str:
    return sign_token(key, Claims(study, role), time.time(), valid_s)


def forged(header: dict[str, str], claims: dict[str, Any], key: TokenKey | None = None) -> str:
    """Return a token as nobody but an attacker writes it."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
    signed = b".".join(parts)
    signature = b"" if key is None else hmac.digest(key.secret, signed, hashlib.sha256)
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def claims_of(study: str, role: str, **more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"iss": "beamer", "aud": "beamer-controller", "study": study, "role": role, "iat": now, "exp": now + 999, **more}


OPERATOR = token("*", TokenRole.OPERATOR)
TRAINER = token("mnist", TokenRole.TRAINER)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(FABRIC, tmp_path / "journal.db", credentials=Credentials(tokens=KEY)) as controller:
        yield controller


def ask(controller: Served, method: str, path: str, bearer: str | None, body: object = None) -> httpx.Response:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    more: dict[str, Any] = {} if body is None else {"json": body}
    return plain_http.request(method, controller.url + path, headers=headers, timeout=PATIENCE_S, **more)


def register(controller: Served, study: str, bearer: str = OPERATOR) -> None:
    for path in ("", "/stages/rung0", "/trials/one"):
        ask(controller, "PUT", f"/v1/studies/{study}{path}", bearer).raise_for_status()
    ask(controller, "PUT", f"/v1/studies/{study}/trials/one/attempts/first", bearer, PLACED).raise_for_status()


def everything(controller: Served) -> Any:
    """Return all that a refused request might have changed; classes change by themselves."""
    studies = ask(controller, "GET", "/v1/studies", OPERATOR).json()["studies"]
    for study in studies:
        for trial in study["trials"]:
            del trial["class"]
    return studies


WRITES: list[tuple[str, object]] = [
    ("/v1/studies/mnist", {"weight": 5}),
    ("/v1/studies/mnist/end", None),
    ("/v1/studies/mnist/stages/rung1", None),
    ("/v1/studies/mnist/stages/rung0/seal", None),
    ("/v1/studies/mnist/trials/two", None),
    (f"{TRIAL}/target", {"step": 9, "stage": "rung0"}),
    (f"{TRIAL}/target/drop", None),
    (f"{TRIAL}/attempts/second", PLACED),
    (f"{TRIAL}/attempts/first/end", {"reason": "paused"}),
    (f"{TRIAL}/pause", None),
    (f"{TRIAL}/workers/0", {"pid": 77, "start": 1}),
    (f"{TRIAL}/workers/0/detach", None),
    (f"{TRIAL}/progress", {"step": 3}),
    (f"{TRIAL}/status", {"status": "killed"}),
]
NETWORK = ["/v1/plan", "/v1/latencies", "/v1/counters", "/metrics"]

UNPROVEN: dict[str, tuple[Callable[[], str | None], str]] = {
    "none": (lambda: None, "there is no token"),
    "expired": (lambda: token("mnist", TokenRole.TRAINER, valid_s=-1), "the token has expired"),
    "foreign": (
        lambda: token("mnist", TokenRole.TRAINER, TokenKey(secrets.token_bytes(32))),
        "not signed by this controller's",
    ),
    "no algorithm": (lambda: forged({"alg": "none", "typ": "JWT"}, claims_of("*", "operator")), "not signed by HS256"),
    "another algorithm": (
        lambda: jwt.encode(claims_of("*", "operator"), KEY.secret * 2, "HS512"),
        "not signed by HS256",
    ),
    "malformed": (lambda: "a.b.c", "cannot be read"),
    "changed": (lambda: TRAINER[:-6] + ("AAAAAA" if TRAINER[-6:] != "AAAAAA" else "BBBBBB"), "not signed by this"),
    "too long": (lambda: "x" * 5000, "more than 4096 characters"),
    "another audience": (
        lambda: forged({"alg": "HS256"}, claims_of("*", "operator", aud="other"), KEY),
        "claims are not",
    ),
    "another issuer": (lambda: forged({"alg": "HS256"}, claims_of("*", "operator", iss="other"), KEY), "claims are not"),
    "another role": (lambda: forged({"alg": "HS256"}, claims_of("*", "root"), KEY), "claims are not"),
    "an operator of one study": (lambda: forged({"alg": "HS256"}, claims_of("mnist", "operator"), KEY), "claims are not"),
    "another claim": (lambda: forged({"alg": "HS256"}, claims_of("*", "operator", admin=1), KEY), "claims are not"),
    "for ever": (
        lambda: forged({"alg": "HS256"}, {k: v for k, v in claims_of("*", "operator").items() if k != "exp"}, KEY),
        "claims are not",
    ),
}


def test_the_unproven_are_signed_as_tokens_are() -> None:
    """Or they would be refused for another reason than the one that each is made for."""
    assert jwt.decode(
        forged({"alg": "HS256"}, claims_of("*", "operator"), KEY), KEY.secret, ["HS256"], audience="beamer-controller"
    )


@pytest.mark.parametrize("kind", UNPROVEN)
def test_who_proves_nothing_is_refused_logged_once_and_changes_nothing(
    kind: str, controller: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    make, reason = UNPROVEN[kind]
    register(controller, "mnist")
    before = everything(controller)
    bearer = make()
    for path, body in WRITES:
        answer = ask(controller, "PUT", path, bearer, body)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        assert reason in answer.json()["error"]["message"]
        assert set(answer.json()["error"]) == {"field", "value", "expected", "message"}
    for path in (STUDIES, "/v1/studies/mnist", TRIAL, *NETWORK):
        assert ask(controller, "GET", path, bearer).status_code == 401, path
    assert everything(controller) == before
    log = capfd.readouterr().out
    assert log.count(reason) == 1
    assert bearer is None or bearer not in log


@pytest.mark.parametrize("header", ["", "Bearer", "Basic dXNlcjpwYXNz", TRAINER, "Bearer " + OPERATOR + ", x"])
def test_a_header_without_a_bearer_token_is_none(controller: Served, header: str) -> None:
    answer = plain_http.get(controller.url + STUDIES, headers={"Authorization": header}, timeout=PATIENCE_S)
    assert answer.status_code == 401


def test_two_tokens_are_none(controller: Served) -> None:
    headers = [("Authorization", f"Bearer {OPERATOR}"), ("Authorization", f"Bearer {TRAINER}")]
    assert plain_http.get(controller.url + STUDIES, headers=headers, timeout=PATIENCE_S).status_code == 401


@pytest.mark.parametrize("role", [TokenRole.TRAINER, TokenRole.READER])
def test_another_studys_trial_is_refused_logged_once_and_nothing_changed(
    role: TokenRole, controller: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    register(controller, "mnist")
    before = everything(controller)
    foreign = token("cifar", role)
    for path, body in WRITES:
        answer = ask(controller, "PUT", path, foreign, body)
        assert answer.status_code == 403, path
        assert "may not write to the study 'mnist'" in answer.json()["error"]["message"]
    for path in ("/v1/studies/mnist", "/v1/studies/mnist/stages/rung0", TRIAL, f"{TRIAL}?run=x"):
        assert ask(controller, "GET", path, foreign).status_code == 403, path
    assert everything(controller) == before
    assert capfd.readouterr().out.count(f"the {role} of study 'cifar' may not") == 1


def test_a_study_in_another_spelling_is_another_study(controller: Served) -> None:
    """What is checked is what is carried out, however the path is written."""
    register(controller, "mnist")
    before = everything(controller)
    foreign = token("cifar", TokenRole.TRAINER)
    for path in (
        "/v1/studies/%6dnist/end",
        "/v1/studies/cifar/../mnist/end",
        "/v1/studies/cifar%2f..%2fmnist/end",
        "/v1/studies//mnist/end",
        "/v1/studies/mnist/end/",
        "/v1/studies/MNIST/end",
    ):
        url = httpx.URL(controller.url).copy_with(raw_path=path.encode())
        answer = plain_http.put(url, headers={"Authorization": f"Bearer {foreign}"}, timeout=PATIENCE_S)
        assert answer.status_code in (307, 403, 404), path
    assert everything(controller) == before


def test_a_trainer_does_all_of_its_own_study_and_sees_no_other(controller: Served) -> None:
    register(controller, "cifar")
    register(controller, "mnist", TRAINER)
    for path, body in [
        (f"{TRIAL}/workers/0", {"pid": 77, "start": 1}),
        (f"{TRIAL}/progress", {"step": 3}),
    ]:
        assert ask(controller, "PUT", path, TRAINER, body).status_code == 200, path
    assert [study["name"] for study in ask(controller, "GET", STUDIES, TRAINER).json()["studies"]] == ["mnist"]
    assert [study["name"] for study in ask(controller, "GET", STUDIES, OPERATOR).json()["studies"]] == ["cifar", "mnist"]
    assert ask(controller, "GET", TRIAL, TRAINER).json()["done"] == 3
    for path in NETWORK:
        assert ask(controller, "GET", path, TRAINER).status_code == 403, path


def test_a_trainer_of_every_study_reads_nothing_of_the_network(controller: Served) -> None:
    every = token("*", TokenRole.TRAINER)
    register(controller, "mnist", every)
    assert len(ask(controller, "GET", STUDIES, every).json()["studies"]) == 1
    assert {ask(controller, "GET", path, every).status_code for path in NETWORK} == {403}


def test_a_reader_reads_and_an_operator_does_everything(controller: Served) -> None:
    register(controller, "mnist")
    reader, own = token("*", TokenRole.READER), token("mnist", TokenRole.READER)
    before = everything(controller)
    for path, body in WRITES:
        for bearer in (reader, own):
            assert ask(controller, "PUT", path, bearer, body).status_code == 403, path
    assert everything(controller) == before
    for path in (STUDIES, "/v1/studies/mnist", "/v1/studies/mnist/stages/rung0", TRIAL, *NETWORK):
        assert ask(controller, "GET", path, reader).status_code == 200, path
        assert ask(controller, "GET", path, OPERATOR).status_code == 200, path
        assert ask(controller, "GET", path, own).status_code == (403 if path in NETWORK else 200), path
    for path, body in WRITES:
        assert ask(controller, "PUT", path, OPERATOR, body).status_code not in (401, 403, 422), path
    assert everything(controller) != before


@pytest.mark.parametrize("ahead_s", [366 * DAY_S, -366 * DAY_S], ids=["ahead", "behind"])
def test_tokens_expire_by_the_clock_whatever_the_journal_says(tmp_path: Path, ahead_s: float) -> None:
    """One write under a wrong clock must lock nobody out, nor let anybody in for longer."""
    with closing(Journal(f"sqlite:///{tmp_path}/journal.db")) as journal:
        journal.append(StudyRegistered(time.time() + ahead_s, "mnist", "1"))
    with served(FABRIC, tmp_path / "journal.db", credentials=Credentials(tokens=KEY)) as controller:
        assert ask(controller, "PUT", "/v1/studies/mnist/stages/rung0", TRAINER).status_code == 200
        expired = token("mnist", TokenRole.TRAINER, valid_s=-1)
        assert ask(controller, "PUT", "/v1/studies/mnist/stages/rung1", expired).status_code == 401
        (stage,) = ask(controller, "GET", "/v1/studies/mnist", OPERATOR).json()["stages"]
        assert stage["name"] == "rung0"
        assert stage["registered_s"] >= time.time() + ahead_s - PATIENCE_S, "time goes on from the journal's all the same"


def test_health_is_open_and_so_is_nothing_else(controller: Served) -> None:
    """Every route that there is, asked for without a token: one that is added later is closed until somebody opens it."""
    assert ask(controller, "GET", HEALTH, None).status_code == 200
    routes = controller.ask(lambda runtime: create_app(runtime).openapi()["paths"])
    assert len(routes) > 15
    assert AGENT not in routes
    for path, methods in routes.items():
        for method in methods if path != HEALTH else ():
            asked = path.format(study="mnist", stage="a", trial="a", attempt="a", rank=0, member="m")
            for body in (None, {}, "{"):
                assert ask(controller, method.upper(), asked, None, body).status_code == 401, (method, path)
            assert ask(controller, method.upper(), asked.replace("/0", "/nonsense"), None).status_code == 401, (method, path)


def test_a_denial_comes_before_what_is_in_the_body(controller: Served) -> None:
    answer = ask(controller, "PUT", f"{TRIAL}/progress", token("cifar", TokenRole.TRAINER), {"nonsense": 1})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("method", "bearer", "may"),
    [
        ("GET", token("*", TokenRole.READER), True),
        ("PUT", token("*", TokenRole.READER), False),
        ("POST", token("*", TokenRole.TRAINER), False),
        ("PUT", OPERATOR, True),
    ],
)
def test_what_concerns_all_studies_is_changed_by_operators_alone(method: str, bearer: str, may: bool) -> None:
    """No such endpoint exists yet: one that is added is closed to readers."""
    authorization = Authorization(KEY, certified=False, clock=time.time)
    asked = HTTPConnection(
        {
            "type": "http",
            "method": method,
            "route": type("Route", (), {"path": "/v1/drain"})(),
            "headers": [(b"authorization", f"Bearer {bearer}".encode())],
            "client": ("10.0.0.1", 1),
        }
    )
    if may:
        assert asyncio.run(authorization(asked)) is not None
    else:
        with pytest.raises(DeniedError, match="may not change what concerns all studies") as denied:
            asyncio.run(authorization(asked))
        assert denied.value.status == 403


def test_denials_from_many_addresses_fill_no_log(controller: Served, capfd: pytest.CaptureFixture[str]) -> None:
    authorization = Authorization(KEY, certified=False, clock=time.time)

    async def denials() -> None:
        route = type("Route", (), {"path": STUDIES})()
        for n in range(3 * MAX_LOGGED):
            scope = {
                "type": "http",
                "method": "GET",
                "route": route,
                "headers": [],
                "client": (f"10.0.{n // 250}.{n % 250}", 1),
            }
            with pytest.raises(DeniedError):
                await authorization(HTTPConnection(scope))

    asyncio.run(denials())
    assert capfd.readouterr().out.count("there is no token") == MAX_LOGGED


def test_without_a_key_nobody_is_asked_for_a_token(tmp_path: Path) -> None:
    with served(FABRIC, tmp_path / "journal.db") as controller:
        for path in (STUDIES, *NETWORK):
            assert ask(controller, "GET", path, None).status_code == 200
