"""What controllers answer a machine: whether they can be reached, lead, take its token, and have its time.

The client's transport keeps neither the date of an answer nor why TLS failed, so a request is made here. The address, the token
and the authority are those of every other command.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

from beamer.client.controllers import NOT_LEADING
from beamer.client.credentials import CA_VARIABLE, controller_access
from beamer.client.transport import trust
from beamer.client.urls import URL_VARIABLE
from beamer.doctor.certificates import RENEW
from beamer.doctor.findings import Finding, Unseen, fault, not_checked, ok, warning
from beamer.errors import InputError
from beamer.ports import HTTP_PORT
from beamer.protocol_version import HEADER, format_header

HEALTH = "/v1/health"
ANY_STUDY = "doctor"  # A controller lists its hosts for every study, registered or not.
_OURS = {"status", "journal", "switches", "agents"}  # Keys of a controller's health, of every version.
_PATIENCE_S = 5.0
_MAX_BYTES = 1 << 22
_PORTS = {"http": 80, "https": 443}
_OK = 200
CLOCK_WARNING_S, CLOCK_FAULT_S = 5.0, 60.0
"""By how much clocks may differ: a date of HTTP is exact to a second; beyond a minute tokens are refused or live on."""
_ELSEWHERE = f"name another controller with --url or {URL_VARIABLE}"


@dataclass(frozen=True)
class Reply:
    """What came back for a request to one controller.

    status: of HTTP, 0 where nothing answered. body: as JSON, None for what is none. at_s, took_s: when it was asked, Unix time,
    and for how long. date_s: the controller's clock. failure, fix: why nothing answered, and what to do.
    """

    url: str
    status: int = 0
    body: Any = None
    at_s: float = 0.0
    took_s: float = 0.0
    date_s: float | None = None
    failure: str = ""
    fix: str = ""

    @property
    def is_controllers(self) -> bool:
        """Whether a controller has answered for its health."""
        if self.status == NOT_LEADING:
            return isinstance(self.body, Mapping) and "error" in self.body
        return self.status == _OK and isinstance(self.body, Mapping) and self.body.keys() >= _OURS

    @property
    def leads(self) -> bool:
        """Whether the controller that has answered leads."""
        return self.status == _OK and self.is_controllers


@dataclass(frozen=True)
class Contact:
    """The controllers that a machine is to reach.

    replies: about their health. refused: why the token, its file or the URL cannot be used. headers, ca, context: for further
    requests.
    """

    replies: tuple[Reply, ...] = ()
    refused: InputError | None = None
    headers: tuple[tuple[str, str], ...] = ()
    ca: str | None = None
    context: ssl.SSLContext | None = None

    @property
    def leader(self) -> Reply | Unseen:
        """The controller that leads."""
        return next((one for one in self.replies if one.leads), Unseen("no controller that leads can be reached"))


def make_contact(urls: str, environment: Mapping[str, str], ca: str | None = None) -> Contact:
    """Ask each of the controllers at `urls`, separated by commas, for its health. ca: None: the environment's."""
    chosen_ca = ca or environment.get(CA_VARIABLE) or None
    try:
        access = controller_access(urls, environment, ca=ca)
        secure = any(_origin(one)[0] == "https" for one in access.urls)
        context = trust(access.ca) if secure else None
    except InputError as error:
        return Contact(refused=error, ca=chosen_ca)
    replies = tuple(ask(one, HEALTH, (), context) for one in access.urls)
    return Contact(replies, None, access.headers, access.ca, context)


def ask_leader(contact: Contact, path: str) -> Reply | Unseen:
    """Return what the controller that leads answers to a request with the token."""
    leader = contact.leader
    return leader if isinstance(leader, Unseen) else ask(leader.url, path, contact.headers, contact.context)


def ask(url: str, path: str, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None) -> Reply:
    """Return what one controller answers, or why it does not. Ends within some seconds of the name being found.

    context: of TLS, for https.
    """
    scheme, host, port, prefix = _origin(url)
    secure = scheme == "https"
    connection = (
        http.client.HTTPSConnection(host, port, timeout=_PATIENCE_S, context=context)
        if secure
        else http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    )
    at_s, began_s = time.time(), time.monotonic()
    with closing(connection):
        end = Timer(_PATIENCE_S, _shut, (connection,))  # An answer that drips would last for ever.
        end.daemon = True
        try:
            connection.connect()
            end.start()
            connection.request("GET", prefix + path, headers={HEADER: format_header(), **dict(headers)})
            answer = connection.getresponse()
            content = answer.read(_MAX_BYTES)
        except (OSError, http.client.HTTPException) as error:
            failure, fix = explain(error, secure, f"{host}:{port}")
            return Reply(url, at_s=at_s, failure=failure, fix=fix)
        finally:
            end.cancel()
    took_s = time.monotonic() - began_s
    return Reply(url, answer.status, _json(content), at_s, took_s, _date_s(answer.getheader("Date")))


def explain(error: Exception, secure: bool, at: str) -> tuple[str, str]:
    """Return what a request failed of, in words, and its fix."""
    match error:
        case ssl.SSLCertVerificationError() if "expired" in error.verify_message:
            return "the controller's certificate has expired", RENEW.replace("copy the new files here", "copy them to it")
        case ssl.SSLCertVerificationError():
            fix = f"name its authority with --ca or {CA_VARIABLE}, and the controller as its certificate does"
            return f"the controller's certificate is refused: {error.verify_message}", fix
        case ssl.SSLError() if error.reason == "WRONG_VERSION_NUMBER":
            return "it does not speak TLS", "give it an http:// URL, or the controller its certificate"
        case ssl.SSLError():
            return f"TLS fails: {error.reason or error}", "give controller and machine certificates of one authority"
        case ConnectionRefusedError():
            return "nothing listens there", f"start beamer-controller --http {at} there, or {_ELSEWHERE}"
        case socket.gaierror():
            return f"the name is not found ({error.strerror})", f"add it to /etc/hosts or the name service, or {_ELSEWHERE}"
        case TimeoutError():
            return f"no answer within {_PATIENCE_S:g} s", f"see whether the machine runs and a firewall passes TCP to {at}"
        case http.client.HTTPException() | ConnectionResetError() if not secure:
            return f"no HTTP ({type(error).__name__})", f"give it an https:// URL if it speaks TLS, or {_ELSEWHERE}"
        case _:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return said, f"see whether packets reach {at}, or {_ELSEWHERE}"


def judge_reach(contact: Contact) -> Iterator[Finding]:
    """Yield whether each controller answers, and whether one leads."""
    if contact.refused is not None:
        error = contact.refused
        yield fault(f"{error.field} cannot be used: got {error.value!r}", f"give {error.expected}")
        return
    is_led = not isinstance(contact.leader, Unseen)
    for one in contact.replies:
        if one.failure:
            yield (warning if is_led else fault)(f"{one.url}: {one.failure}", one.fix)
        elif one.leads:
            yield ok(f"{one.url} leads, {_connected(one.body)}")
        elif one.is_controllers:
            yield ok(f"{one.url} follows")
        else:
            yield fault(f"{one.url}: what answers is no controller (HTTP {one.status})", _ELSEWHERE)
    if contact.replies and all(one.is_controllers and not one.leads for one in contact.replies):
        yield fault("none of these controllers leads", "look at the controllers' logs, and whether they share one journal")


def judge_clock(contact: Contact) -> Iterator[Finding]:
    """Yield by how much this machine's clock differs from a controller's."""
    dated = [one for one in contact.replies if one.date_s is not None]
    if not dated:
        yield not_checked("no controller has said its time")
    for one in dated[:1]:
        assert one.date_s is not None
        # A date is cut to whole seconds, and was taken somewhere between question and answer.
        ahead_s = one.at_s + one.took_s / 2 - (one.date_s + 0.5)
        off = f"this machine's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of {one.url}"
        fix = "synchronise both by one source, such as chronyd; until then: chronyc makestep"
        if abs(ahead_s) > CLOCK_FAULT_S:
            yield fault(off, fix)
        elif abs(ahead_s) > CLOCK_WARNING_S:
            yield warning(off, fix)
        else:
            yield ok(f"as that of {one.url}, to {CLOCK_WARNING_S:g} s")


def known_hosts(answer: Reply) -> Mapping[str, str] | Unseen:
    """Return the address of each host of the network, by name."""
    hosts = answer.body.get("hosts") if answer.status == _OK and isinstance(answer.body, Mapping) else None
    if not isinstance(hosts, Mapping) or not all(isinstance(one, str) for one in hosts.values()):
        return Unseen(f"the controller does not say its hosts ({answer.failure or error_of(answer)})")
    return hosts


def error_of(reply: Reply) -> str:
    """Return what a controller's refusal says."""
    error = reply.body.get("error") if isinstance(reply.body, Mapping) else None
    text = error.get("message") if isinstance(error, Mapping) else None
    return text if isinstance(text, str) else f"HTTP {reply.status}"


def _connected(health: Mapping[str, Any]) -> str:
    try:
        agents, switches = health["agents"], health["switches"]
        return (
            f"{agents['connected']} of {agents['expected']} agents are connected,"
            f" {switches['installed']} of {switches['expected']} switches installed"
        )
    except (KeyError, TypeError):
        return "and its health is another version's"


def _origin(url: str) -> tuple[str, str, int, str]:
    """Return the parts of a URL. Raises `InputError`."""
    expected = f"the controller's URL, such as http://127.0.0.1:{HTTP_PORT}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError("--url", url, expected) from error
    if parts.scheme not in _PORTS or not host or parts.username is not None:
        raise InputError("--url", url, expected)
    return parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/")


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _date_s(text: str | None) -> float | None:
    try:
        return None if text is None else parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def _shut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    try:
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # The connection has ended meanwhile.
        return
