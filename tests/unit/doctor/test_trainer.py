"""`beamer doctor trainer`: the token, the host's name, and the whole command against a controller that is served."""

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import beamer.cli
from beamer.doctor.agent_socket import AgentSocket, Namespaces
from beamer.doctor.contact import Contact, Reply
from beamer.doctor.findings import Check, CheckVerdict, Finding, Unseen
from beamer.doctor.trainer import CHECKS, TrainerFacts, judge_host, judge_sockets, judge_token, token_claims
from beamer.testing.fabrics import star
from controller.identity.credentials import Credentials
from controller.identity.tokens import DAY_S, Claims, TokenKey, TokenRole, sign_token
from tests.support.commands import run_here
from tests.support.served_controller import Served, served

KEY = TokenKey(secrets.token_bytes(32))
FABRIC = star(2)
NOW = 1_000_000.0
URL = "http://127.0.0.1:8657"
HEADERS = (("Authorization", "Bearer a.b.c"),)
GOOD = TrainerFacts(
    contact=Contact(headers=HEADERS),
    hosts=Reply(URL, 200, {"hosts": {"h1": "10.0.0.1", "h2": "10.0.0.2"}}),
    claims={"study": "resnet", "role": "trainer", "exp": NOW + 10 * DAY_S},
    names=("localhost", "h1"),
    addresses=("192.0.2.7", "10.0.0.1"),
    agent=AgentSocket("/run/agent.sock"),
    own=Namespaces(1, 2),
    certificates=(),
    now=NOW,
)


def one(check: Check[TrainerFacts], facts: TrainerFacts) -> Finding:
    (found,) = check(facts)
    return found


def refusal(status: int, message: str) -> Reply:
    return Reply(URL, status, {"error": {"message": message}})


@pytest.mark.parametrize(
    ("facts", "verdict", "said"),
    [
        (GOOD, CheckVerdict.OK, "takes the token, until 1970-01-22"),
        (replace(GOOD, contact=Contact(), claims=None), CheckVerdict.OK, "asks for none"),
        (replace(GOOD, claims=None), CheckVerdict.OK, "takes the token"),
        (replace(GOOD, claims={"exp": float("inf"), "study": 3}), CheckVerdict.OK, "takes the token"),
        (replace(GOOD, claims={"exp": NOW + 3600}), CheckVerdict.WARNING, "expires at 1970-01-12 14:46"),
        (replace(GOOD, claims={"role": "reader"}), CheckVerdict.FAULT, "reader"),
        (replace(GOOD, hosts=refusal(401, "the token has expired")), CheckVerdict.FAULT, "the token has expired"),
        (replace(GOOD, hosts=refusal(401, "none"), contact=Contact()), CheckVerdict.FAULT, "there is none"),
        (replace(GOOD, hosts=refusal(403, "may not read")), CheckVerdict.FAULT, "may not read"),
        (replace(GOOD, hosts=refusal(503, "busy")), CheckVerdict.NOT_CHECKED, "busy"),
        (replace(GOOD, hosts=Reply(URL, failure="gone")), CheckVerdict.NOT_CHECKED, "gone"),
    ],
)
def test_the_token_is_judged_by_what_the_controller_answers(facts: TrainerFacts, verdict: CheckVerdict, said: str) -> None:
    found = one(judge_token, facts)
    assert found.verdict is verdict
    assert said in found.found
    assert bool(found.fix) == (verdict in (CheckVerdict.FAULT, CheckVerdict.WARNING))


@pytest.mark.parametrize(
    ("facts", "verdict", "said"),
    [
        (GOOD, CheckVerdict.OK, "this machine is h1, by its address 10.0.0.1"),
        (replace(GOOD, addresses=("192.0.2.7",)), CheckVerdict.FAULT, "h1 has the address 10.0.0.1"),
        (replace(GOOD, addresses=(), names=("other",)), CheckVerdict.FAULT, "none of the network's 2 hosts"),
        (replace(GOOD, hosts=refusal(401, "no token")), CheckVerdict.NOT_CHECKED, "no token"),
        (replace(GOOD, hosts=Reply(URL, 200, {"hosts": {"h1": [1]}})), CheckVerdict.NOT_CHECKED, "does not say its hosts"),
    ],
)
def test_the_machine_is_looked_for_among_the_hosts(facts: TrainerFacts, verdict: CheckVerdict, said: str) -> None:
    found = one(judge_host, facts)
    assert found.verdict is verdict
    assert said in found.found


def test_an_address_of_a_host_shows_the_network_namespace() -> None:
    assert one(judge_sockets, GOOD).verdict is CheckVerdict.OK
    for facts in (replace(GOOD, addresses=()), replace(GOOD, hosts=Unseen("no controller"))):
        assert one(judge_sockets, facts).verdict is CheckVerdict.NOT_CHECKED


def test_claims_of_a_token_are_read_and_others_are_none() -> None:
    token = sign_token(KEY, Claims("resnet", TokenRole.TRAINER), NOW, DAY_S)
    claims = token_claims((("Authorization", f"Bearer {token}"),))
    assert claims is not None
    assert (claims["study"], claims["role"], claims["exp"]) == ("resnet", "trainer", NOW + DAY_S)
    for other in ("Bearer abc", "Bearer a.!.c", "Bearer a.W10.c", ""):
        assert token_claims((("Authorization", other),)) is None


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(FABRIC, tmp_path_factory.mktemp("doctor") / "journal.db", credentials=Credentials(tokens=KEY)) as started:
        yield started


def examined(url: str, *arguments: str, code: int, **environment: str) -> dict[str, Any]:
    env = {"BEAMER_AGENT": "/absent/agent.sock", **environment}
    done = run_here(beamer.cli.main, "doctor", "trainer", "--url", url, "--json", *arguments, env=env)
    assert done.returncode == code, done.stderr
    document = json.loads(done.stdout[done.stdout.index("{\n") :])  # The served controller logs to the same output.
    assert {check["check"] for check in document["checks"]} == set(CHECKS)
    return {check["check"]: check for check in document["checks"]}


def test_the_command_asks_a_controller_with_the_token_of_its_study(controller: Served, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(sign_token(KEY, Claims("res net/1", TokenRole.TRAINER), time.time(), 30 * DAY_S))
    found = examined(controller.url, code=1, BEAMER_TOKEN_FILE=str(file))
    assert {name: found[name]["verdict"] for name in ("controller", "clock", "token")} == dict.fromkeys(
        ("controller", "clock", "token"), "ok"
    )
    assert "0 of 2 agents are connected" in found["controller"]["found"]
    assert "none of the network's 2 hosts is this machine" in found["host"]["found"]
    assert found["agent"]["found"] == "/absent/agent.sock: there is no such socket"
    assert found["agent"]["fix"].startswith("start it: beamer-hostagent --name")
    other = examined(controller.url, "--study", "other", code=1, BEAMER_TOKEN_FILE=str(file))
    assert other["token"]["verdict"] == "fault"
    assert "may not read the study 'other'" in other["token"]["found"]


def test_a_token_that_has_expired_or_is_absent_is_a_fault(controller: Served) -> None:
    old = sign_token(KEY, Claims("resnet", TokenRole.TRAINER), time.time() - DAY_S, 60)
    assert "the token has expired" in examined(controller.url, code=1, BEAMER_TOKEN=old)["token"]["found"]
    assert "there is none" in examined(controller.url, code=1)["token"]["found"]


def test_without_a_controller_the_rest_is_examined() -> None:
    found = examined("http://127.0.0.1:9", code=1)
    assert "nothing listens there" in found["controller"]["found"]
    assert found["token"]["verdict"] == "not checked"


def test_a_study_that_cannot_be_is_refused_before_anything_is_asked() -> None:
    done = run_here(beamer.cli.main, "doctor", "trainer", "--study", " x", env={})
    assert (done.returncode, done.stdout) == (2, "")
    assert "--study" in done.stderr
