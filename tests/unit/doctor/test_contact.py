"""What is said of controllers that answer, do not, or are none, and of clocks that differ."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from beamer.doctor import contact as contact_module
from beamer.doctor.contact import Contact, Reply, ask_leader, explain, judge_clock, judge_reach, make_contact
from beamer.doctor.findings import CheckVerdict, Finding, Unseen

URL = "http://c1:8657"
HEALTH = {
    "status": "ok",
    "journal": {},
    "switches": {"expected": 2, "installed": 1},
    "agents": {"expected": 4, "connected": 3},
}
LEADS = Reply(URL, 200, HEALTH, at_s=1000.0, took_s=0.0, date_s=1000.0)
FOLLOWS = Reply("http://c2:8657", 503, {"error": {"message": "another leads"}})


def reach(*replies: Reply) -> list[Finding]:
    return list(judge_reach(Contact(replies)))


def test_a_leader_a_follower_and_a_silent_controller_are_told_apart() -> None:
    silent = Reply("http://c3:8657", failure="nothing listens there", fix="start it")
    found = reach(LEADS, FOLLOWS, silent)
    assert [one.verdict for one in found] == [CheckVerdict.OK, CheckVerdict.OK, CheckVerdict.WARNING]
    assert [one.verdict for one in reach(silent)] == [CheckVerdict.FAULT]
    assert found[0].found == f"{URL} leads, 3 of 4 agents are connected, 1 of 2 switches installed"
    assert (found[2].found, found[2].fix) == ("http://c3:8657: nothing listens there", "start it")


@pytest.mark.parametrize(
    "reply", [Reply(URL, 200, {"status": "ok"}), Reply(URL, 200, None), Reply(URL, 404, {}), Reply(URL, 503, "busy")]
)
def test_what_answers_otherwise_is_no_controller(reply: Reply) -> None:
    (found,) = reach(reply)
    assert found.verdict is CheckVerdict.FAULT
    assert "is no controller" in found.found
    assert isinstance(Contact((reply,)).leader, Unseen)


def test_followers_alone_are_a_fault() -> None:
    assert [one.verdict for one in reach(FOLLOWS)] == [CheckVerdict.OK, CheckVerdict.FAULT]


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "said"),
    [
        (0, CheckVerdict.OK, f"as that of {URL}"),
        (-3, CheckVerdict.OK, f"as that of {URL}"),
        (20, CheckVerdict.WARNING, "clock is 20 s ahead of"),
        (-3600, CheckVerdict.FAULT, "clock is 3600 s behind"),
    ],
)
def test_clocks_that_differ_are_named(ahead_s: float, verdict: CheckVerdict, said: str) -> None:
    (found,) = judge_clock(Contact((FOLLOWS, replace(LEADS, at_s=LEADS.at_s + ahead_s + 0.5))))
    assert found.verdict is verdict
    assert said in found.found


def test_without_a_date_clocks_are_not_checked() -> None:
    assert [one.verdict for one in judge_clock(Contact((FOLLOWS,)))] == [CheckVerdict.NOT_CHECKED]


def _refused(message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "refused")
    error.verify_message = message
    return error


def _ssl(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "failed")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "secure", "found", "fix"),
    [
        (_refused("certificate has expired"), True, "certificate has expired", "--renew"),
        (_refused("Hostname mismatch"), True, "refused: Hostname mismatch", "BEAMER_CA"),
        (_ssl("WRONG_VERSION_NUMBER"), True, "does not speak TLS", "http://"),
        (_ssl("TLSV1_ALERT"), True, "TLS fails: TLSV1_ALERT", "one authority"),
        (ConnectionRefusedError(), False, "nothing listens", "start beamer-controller --http c1:8657"),
        (socket.gaierror(-2, "Name not known"), False, "Name not known", "/etc/hosts"),
        (TimeoutError(), False, "no answer within", "firewall"),
        (http.client.RemoteDisconnected("closed"), False, "no HTTP", "https://"),
        (OSError("Network is unreachable"), False, "unreachable", "--url"),
    ],
)
def test_each_failure_has_its_words_and_its_fix(error: Exception, secure: bool, found: str, fix: str) -> None:
    said, to_do = explain(error, secure, "c1:8657")
    assert found in said
    assert fix in to_do


@pytest.mark.parametrize(
    ("url", "environment", "said"),
    [
        ("ftp://c1", {}, "--url cannot be used: got 'ftp://c1'"),
        ("http://c1:port", {}, "--url cannot be used"),
        ("http://10.0.0.1:1", {"BEAMER_TOKEN": "abc.def"}, "url beside BEAMER_TOKEN cannot be used"),
        ("http://127.0.0.1:1", {"BEAMER_TOKEN_FILE": "/absent"}, "BEAMER_TOKEN_FILE cannot be used: got '/absent'"),
        ("https://127.0.0.1:1", {"BEAMER_CA": "/absent"}, "ca cannot be used: got '/absent'"),
    ],
)
def test_what_cannot_be_used_is_a_fault_that_names_the_option(url: str, environment: dict[str, str], said: str) -> None:
    (found,) = judge_reach(make_contact(url, environment))
    assert found.verdict is CheckVerdict.FAULT
    assert said in found.found
    assert found.fix


@contextmanager
def answering(*parts: bytes) -> Iterator[str]:
    """Answer one connection with bytes, and keep it open until the end."""
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            peer.recv(4096)
            for part in parts:
                peer.sendall(part)
            done.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact_module, "_PATIENCE_S", 0.2)
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") as url:
        (found,) = judge_reach(make_contact(url, {}))
    assert found.verdict is CheckVerdict.FAULT


def test_what_speaks_no_http_is_no_controller(tmp_path: Path) -> None:
    with answering(b"SSH-2.0-server\r\n") as url:
        made = make_contact(url, {})
    (found,) = judge_reach(made)
    assert found.verdict is CheckVerdict.FAULT
    assert "no HTTP" in found.found
    assert isinstance(ask_leader(made, "/v1/plan"), Unseen)


def test_the_date_and_the_health_of_an_answer_are_read() -> None:
    body = b'{"status": "ok", "journal": {}, "switches": {}, "agents": {}}'
    head = f"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:16:40 GMT\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with answering(head, body) as url:
        made = make_contact(url, {})
    assert isinstance(made.leader, Reply)
    assert made.leader.date_s == 1000.0
    assert [one.verdict for one in judge_reach(made)] == [CheckVerdict.OK]
    assert [one.verdict for one in judge_clock(made)] == [CheckVerdict.FAULT]


def test_a_timer_that_comes_late_does_no_harm() -> None:
    contact_module._shut(SimpleNamespace(sock=None))  # type: ignore[arg-type]
