"""`beamer doctor trainer`: what would keep a worker on this machine from reporting, attaching and being marked."""

import base64
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from beamer.client.credentials import CA_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from beamer.client.lease import AGENT_PATH, AGENT_VARIABLE
from beamer.client.urls import URL, URL_VARIABLE
from beamer.client.values import this_machine
from beamer.doctor.agent_socket import (
    AgentSocket,
    Namespaces,
    judge_agent,
    judge_network_namespace,
    judge_pid_namespace,
    own_namespaces,
    read_agent,
)
from beamer.doctor.certificates import CertificateFile, judge_certificates, read_certificates
from beamer.doctor.contact import (
    ANY_STUDY,
    Contact,
    Reply,
    ask_leader,
    error_of,
    judge_clock,
    judge_reach,
    known_hosts,
    make_contact,
)
from beamer.doctor.findings import Check, Finding, Unseen, examine, fault, not_checked, ok, seen, warning
from beamer.doctor.report import report
from beamer.inspect.options import JsonFlag, UrlOption
from beamer.studies.model import Worker, check_name

_EVERY_STUDY = "*"
_SOON_S = 86_400.0
_NEW_TOKEN = "where the key is: beamer token --key /etc/beamer/token.key --study NAME --role trainer; its file in"
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403

StudyOption = Annotated[
    str | None, typer.Option("--study", help="A study that this machine is to train for.  [default: the token's]")
]


@dataclass(frozen=True)
class TrainerFacts:
    """What was observed on a machine that trains.

    hosts: the answer with the network's hosts. claims: of the token, as it says itself, None without one. names, addresses: of
    this machine. now: Unix time.
    """

    contact: Contact
    hosts: Reply | Unseen
    claims: Mapping[str, Any] | None
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    agent: AgentSocket
    own: Namespaces
    certificates: tuple[CertificateFile, ...]
    now: float


def trainer(url: UrlOption = None, study: StudyOption = None, as_json: JsonFlag = False) -> None:
    """Examine a machine that trains: controller, token, this host's name, agent and namespaces.

    Ends with 1 where there is a fault, and with 2 where nothing could be examined.
    """
    report("trainer", examine(CHECKS, gather(url, study, os.environ)), as_json)


def gather(url: str | None, study: str | None, environment: Mapping[str, str]) -> TrainerFacts:
    """Observe this machine and what it reaches. Raises `InputError` for a study that cannot be."""
    contact = make_contact(url or environment.get(URL_VARIABLE) or URL, environment)
    claims = token_claims(contact.headers)
    here = this_machine([Worker(0, socket.gethostname())]) or {"names": [], "addresses": []}
    return TrainerFacts(
        contact,
        ask_leader(contact, f"/v1/studies/{quote(_study(study, claims), safe='', errors='replace')}/hosts"),
        claims,
        tuple(here["names"]),
        tuple(here["addresses"]),
        read_agent(environment.get(AGENT_VARIABLE) or AGENT_PATH),
        own_namespaces(),
        tuple(read_certificates(CA_VARIABLE, contact.ca, signs=True)),
        time.time(),
    )


def token_claims(headers: tuple[tuple[str, str], ...]) -> Mapping[str, Any] | None:
    """Return what a token says of itself, which only the controller can verify; None where there is none that says anything."""
    value = dict(headers).get("Authorization", "")
    try:
        payload = value.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError):
        return None
    return claims if isinstance(claims, dict) else None


def judge_token(facts: TrainerFacts) -> Iterator[Finding]:
    """Yield whether the controller takes the token for a study, and how long it lasts."""
    answer, claims = seen(facts.hosts), facts.claims or {}
    fix = f"{_NEW_TOKEN} {TOKEN_FILE_VARIABLE}"
    expires = _expiry(claims)
    if answer.failure:
        yield not_checked(f"the controller has not answered ({answer.failure})")
    elif answer.status == _UNAUTHORIZED and not facts.contact.headers:
        where = f"name its file in {TOKEN_FILE_VARIABLE}, or give it in {TOKEN_VARIABLE}"
        yield fault("the controller asks for a token, and there is none", f"{where}; {fix}")
    elif answer.status in (_UNAUTHORIZED, _FORBIDDEN):
        yield fault(f"the controller refuses the token: {error_of(answer)}", fix)
    elif answer.status != _OK:
        yield not_checked(f"the controller answers: {error_of(answer)}")
    elif not facts.contact.headers:
        yield ok("the controller asks for none")
    elif claims.get("role") == "reader":
        yield fault("the token is a reader's, which reports nothing", fix)
    elif expires is not None and expires.timestamp() - facts.now < _SOON_S:
        yield warning(f"the token expires at {expires:%Y-%m-%d %H:%M} UTC", fix)
    else:
        yield ok("the controller takes the token" + ("" if expires is None else f", until {expires:%Y-%m-%d}"))


def judge_host(facts: TrainerFacts) -> Iterator[Finding]:
    """Yield by which of the network's hosts this machine is known."""
    hosts = known_hosts(seen(facts.hosts))
    if isinstance(hosts, Unseen):
        yield not_checked(hosts.reason)
        return
    by_address = sorted(name for name, address in hosts.items() if address in facts.addresses)
    by_name = sorted(name for name in hosts if name in facts.names)
    if by_address:
        yield ok(f"this machine is {', '.join(by_address)}, by its address {hosts[by_address[0]]}")
    elif by_name:
        name = by_name[0]
        yield fault(
            f"the network's {name} has the address {hosts[name]}, and this machine of that name has {_listed(facts.addresses)}",
            f"correct the address in the network's file, or: ip address add {hosts[name]}/PREFIX dev INTERFACE",
        )
    else:
        yield fault(
            f"none of the network's {len(hosts)} hosts is this machine, by its addresses ({_listed(facts.addresses)})",
            "add it to the network's file and restart the controller; a tuner that runs no worker needs no entry",
        )


def judge_sockets(facts: TrainerFacts) -> Iterator[Finding]:
    """Yield whether the agent sees sockets that are opened here."""
    hosts = Unseen("") if isinstance(facts.hosts, Unseen) else known_hosts(facts.hosts)
    is_host_here = not isinstance(hosts, Unseen) and not set(hosts.values()).isdisjoint(facts.addresses)
    return judge_network_namespace(facts.agent, facts.own, is_host_here)


def judge_trusted(facts: TrainerFacts) -> Iterator[Finding]:
    """Yield until when the authority is valid that the controller is trusted by."""
    if not facts.certificates:
        yield ok(f"the system's authorities are trusted: {CA_VARIABLE} names none")
    yield from judge_certificates(facts.certificates, datetime.fromtimestamp(facts.now, UTC))


CHECKS: Mapping[str, Check[TrainerFacts]] = {
    "controller": lambda facts: judge_reach(facts.contact),
    "authority": judge_trusted,
    "clock": lambda facts: judge_clock(facts.contact),
    "token": judge_token,
    "host": judge_host,
    "agent": lambda facts: judge_agent(facts.agent),
    "process namespace": lambda facts: judge_pid_namespace(facts.agent, facts.own),
    "sockets": judge_sockets,
}
"""What is examined on a machine that trains, by the name that its findings have."""


def _expiry(claims: Mapping[str, Any]) -> datetime | None:
    """Return until when a token says that it is valid, None where it says no such time."""
    try:
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def _study(given: str | None, claims: Mapping[str, Any] | None) -> str:
    """Return the study whose hosts are asked for. Raises `InputError` for a name that no study can have."""
    if given is not None:
        check_name(given, "--study")
        return given
    own = (claims or {}).get("study")
    return own if isinstance(own, str) and own != _EVERY_STUDY else ANY_STUDY


def _listed(addresses: tuple[str, ...]) -> str:
    return ", ".join(addresses) or "none but loopback"
