"""A connection that is held sends nothing new, loses nothing, and goes on by itself when nobody releases it."""

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hostagent.marks import holding
from hostagent.marks.acknowledgements import Acknowledgements
from hostagent.marks.diagnostics import bytes_sent
from hostagent.marks.draining import MAX_DRAINING_S
from hostagent.marks.holding import LASTS_S, HoldRule, hold, is_held, release
from tests.emulation.repetition import until_valid
from tests.netns.bench import Bench, eventually, local_worker
from tests.netns.segments import lost, sent_again
from tests.support.namespaces import Namespace, cabled_namespaces

pytestmark = pytest.mark.netns

TABLE = "beamer_hold"
HELD_S, BY_ITSELF_S = 0.9, 1.3  # TCP tries by itself 0.2, 0.6 and 1.4 s after what it may not send
_ACKED_AT, _SENT_AT = 120, 200  # tcpi_bytes_acked, tcpi_bytes_sent in struct tcp_info


@dataclass
class Line:
    """A connection from one host to another, which reads what arrives."""

    here: Namespace
    there: Namespace
    ours: socket.socket
    theirs: socket.socket
    received: bytearray = field(default_factory=bytearray)
    has_ended: bool = False

    def read(self) -> None:
        while data := self.theirs.recv(1 << 20):
            self.received += data
        self.has_ended = True

    def has_received(self, count: int) -> bool:
        return len(self.received) == count

    @property
    def shown(self) -> str:
        return self.here.run("ss", "-tinH", "sport", "=", f":{self.ours.getsockname()[1]}")

    def findings(self, began_s: float) -> list[str]:
        """Return what a busy machine has done to what was held from `began_s` on and released."""
        eventually(lambda: lost(self.shown) == 0)
        took_s, again = time.monotonic() - began_s, sent_again(self.shown)
        late = [f"it took {took_s:.2f} s, and after 1.4 s TCP tries by itself"] if took_s > BY_ITSELF_S else []
        return [*late, *([f"{again} segments were sent twice"] if again else [])]


@contextmanager
def connected() -> Iterator[Line]:
    with cabled_namespaces("h1", "h2") as (here, there), ExitStack() as stack:
        server = stack.enter_context(there.call(lambda: socket.create_server(("10.77.0.2", 6000))))
        ours = stack.enter_context(here.call(socket.socket))
        ours.connect(("10.77.0.2", 6000))
        made = Line(here, there, ours, stack.enter_context(server.accept()[0]))
        reader = threading.Thread(target=made.read)
        reader.start()
        stack.callback(reader.join)
        stack.callback(ours.shutdown, socket.SHUT_RDWR)
        yield made


@pytest.fixture
def line() -> Iterator[Line]:
    with connected() as made:
        yield made


def counted(sock: socket.socket, at: int) -> int:
    """Return a count of bytes in a socket's `struct tcp_info`."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + 8)
    return int(struct.unpack_from("=Q", info, at)[0])


def acknowledged(sock: socket.socket) -> int:
    return counted(sock, _ACKED_AT)


def tables(space: Namespace) -> str:
    return space.run("nft", "list", "tables")


def test_what_is_held_waits_and_what_arrives_is_acknowledged() -> None:
    def run() -> tuple[None, list[str]]:
        rule = HoldRule()
        with connected() as line:
            line.ours.sendall(bytes(100_000))
            eventually(lambda: line.has_received(100_000))
            assert line.here.call(lambda: rule.ensure(0.0, MAX_DRAINING_S))
            hold(line.ours)
            line.theirs.sendall(b"x" * 1000)
            assert len(line.ours.recv(1000, socket.MSG_WAITALL)) == 1000
            eventually(lambda: acknowledged(line.theirs) == 1000)
            began_s = time.monotonic()
            line.ours.sendall(bytes(50_000))
            line.theirs.sendall(b"x" * 1000)
            time.sleep(HELD_S)
            assert len(line.received) == 100_000
            release(line.ours)
            assert not is_held(line.ours)
            eventually(lambda: line.has_received(150_000))
            eventually(lambda: acknowledged(line.theirs) == 2000)
            findings = line.findings(began_s)
            assert bytes_sent(line.ours) in (150_000, 150_001), "without what was refused"
            assert counted(line.ours, _SENT_AT) > 150_001
            line.here.call(rule.remove)
            assert tables(line.here) == ""
            line.here.call(rule.remove)
            return None, findings

    until_valid(run)


def test_an_end_that_is_closed_while_it_is_held_says_so_after_its_data() -> None:
    def run() -> tuple[None, list[str]]:
        rule = HoldRule()
        with connected() as line:
            assert line.here.call(lambda: rule.ensure(0.0, MAX_DRAINING_S))
            hold(line.ours)
            began_s = time.monotonic()
            line.ours.sendall(b"last")
            line.ours.shutdown(socket.SHUT_WR)
            time.sleep(HELD_S)
            assert (line.received, line.has_ended) == (b"", False)
            release(line.ours)
            eventually(lambda: line.has_ended)
            assert line.received == b"last"
            return None, line.findings(began_s)

    until_valid(run)


def test_an_end_that_has_sent_everything_is_closed_at_once(line: Line) -> None:
    assert line.here.call(lambda: HoldRule().ensure(0.0, MAX_DRAINING_S))
    hold(line.ours)
    line.ours.shutdown(socket.SHUT_WR)
    eventually(lambda: line.has_ended, most_s=LASTS_S / 2)
    assert is_held(line.ours)


def test_an_interface_with_an_agents_rules_keeps_the_rule(line: Line) -> None:
    rule, kept = HoldRule(), Acknowledgements()
    line.here.call(lambda: (kept.reconcile("data"), rule.ensure(0.0, MAX_DRAINING_S), rule.remove()))
    assert TABLE in tables(line.here)
    line.here.call(lambda: (kept.remove("data"), rule.remove()))
    assert tables(line.here) == ""


def test_what_nobody_releases_goes_on_by_itself(line: Line) -> None:
    assert line.here.call(lambda: HoldRule().ensure(0.0, MAX_DRAINING_S))
    hold(line.ours)
    began_s = time.monotonic()
    line.ours.sendall(bytes(50_000))
    time.sleep(MAX_DRAINING_S)
    assert not line.received
    eventually(lambda: line.has_received(50_000), most_s=2 * LASTS_S)
    assert time.monotonic() - began_s > LASTS_S - 0.5
    assert is_held(line.ours)


def test_the_rule_is_installed_again_in_time_and_not_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str | None] = []
    monkeypatch.setattr(holding, "nft", lambda *_, script=None, patience_s=0.0: told.append(script))
    rule = HoldRule()
    for now_s in (0.0, 0.1, LASTS_S - MAX_DRAINING_S - 0.1):
        assert rule.ensure(now_s, MAX_DRAINING_S)
    assert len(told) == 1
    assert rule.ensure(LASTS_S - MAX_DRAINING_S, MAX_DRAINING_S)
    assert len(told) == 2


def test_without_nftables_nothing_is_held_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rule = HoldRule()
    with caplog.at_level(logging.WARNING):
        assert not rule.ensure(0.0, MAX_DRAINING_S)
        assert not rule.ensure(1.0, MAX_DRAINING_S), "and it is not tried for every connection"
    (record,) = caplog.records
    assert "packets sent twice" in record.message


def test_that_rules_may_be_left_is_said_where_nft_lists_none_and_not_without_nft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        HoldRule().remove()
        Acknowledgements().remove("data")
        assert not caplog.records
        nft = tmp_path / "nft"
        nft.write_text("#!/bin/sh\necho 'Error: cache initialization failed' >&2\nexit 1\n")
        nft.chmod(0o755)
        HoldRule().remove()
        Acknowledgements().remove("data")
    assert ["cache initialization failed" in one.message for one in caplog.records] == [True, True]
    assert all("rules of nftables may be left" in one.message for one in caplog.records)


def test_the_rule_goes_with_the_queues(tmp_path: Path) -> None:
    with cabled_namespaces("h1", "h2") as spaces, ExitStack() as stack:
        bench = Bench(spaces, tmp_path, stack)
        agent = bench.agent()
        process, _ = bench.worker("quiet", "10.77.0.2")
        bench.controller.applied(bench.assign(1, local_worker(process, "s/t/j", 3)))
        bench.marked()
        assert TABLE in tables(bench.here)
        agent.terminate()
        agent.wait()
        bench.remove()
        assert tables(bench.here) == ""
