"""A connection that is held sends nothing new, loses nothing, and goes on by itself when nobody releases it."""

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hostagent import holding
from hostagent.draining import MOST_S
from hostagent.holding import LASTS_S, HoldRule, hold, is_held, release
from hostagent.testing import Namespace, cabled_namespaces
from tests.netns.bench import Bench, eventually, local_worker

pytestmark = pytest.mark.netns

TABLE = "beamer_hold"


@dataclass
class Line:
    """A connection from one host to another, which reads what arrives."""

    here: Namespace
    ours: socket.socket
    theirs: socket.socket
    received: bytearray = field(default_factory=bytearray)

    def read(self) -> None:
        while data := self.theirs.recv(1 << 20):
            self.received += data

    def has_received(self, count: int) -> bool:
        return len(self.received) == count

    @property
    def sent_again(self) -> int:
        shown = self.here.run("ss", "-tinH", "sport", "=", f":{self.ours.getsockname()[1]}")
        return int(found[1]) if (found := re.search(r"retrans:\d+/(\d+)", shown)) else 0


@pytest.fixture
def line() -> Iterator[Line]:
    with cabled_namespaces("h1", "h2") as (here, there), ExitStack() as stack:
        server = stack.enter_context(there.call(lambda: socket.create_server(("10.77.0.2", 6000))))
        ours = stack.enter_context(here.call(socket.socket))
        ours.connect(("10.77.0.2", 6000))
        made = Line(here, ours, stack.enter_context(server.accept()[0]))
        reader = threading.Thread(target=made.read)
        reader.start()
        stack.callback(reader.join)
        stack.callback(ours.shutdown, socket.SHUT_RDWR)
        yield made


def tables(space: Namespace) -> str:
    return space.run("nft", "list", "tables")


def test_what_is_held_waits_and_what_arrives_is_acknowledged(line: Line) -> None:
    rule = HoldRule()
    line.ours.sendall(bytes(100_000))
    eventually(lambda: line.has_received(100_000))
    assert line.here.call(lambda: rule.lasts(0.0, MOST_S))
    hold(line.ours)
    line.theirs.sendall(b"x" * 1000)
    assert len(line.ours.recv(1000, socket.MSG_WAITALL)) == 1000
    unacknowledged = "ss", "-tinH", "dport", "=", f":{line.ours.getsockname()[1]}"
    assert "unacked" not in line.here.run(*unacknowledged)
    line.ours.sendall(bytes(50_000))
    time.sleep(0.3)
    assert len(line.received) == 100_000
    release(line.ours)
    assert not is_held(line.ours)
    eventually(lambda: line.has_received(150_000), every_s=0.001, most_s=0.15)  # before any time-out of TCP's
    assert line.sent_again == 0
    line.here.call(rule.remove)
    assert tables(line.here) == ""
    line.here.call(rule.remove)


def test_what_nobody_releases_goes_on_by_itself(line: Line) -> None:
    assert line.here.call(lambda: HoldRule().lasts(0.0, MOST_S))
    hold(line.ours)
    began_s = time.monotonic()
    line.ours.sendall(bytes(50_000))
    time.sleep(MOST_S)
    assert not line.received
    eventually(lambda: line.has_received(50_000), most_s=2 * LASTS_S)
    assert time.monotonic() - began_s > LASTS_S - 0.5
    assert is_held(line.ours)


def test_the_kernel_is_told_again_in_time_and_not_every_time(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str | None] = []
    monkeypatch.setattr(holding, "nft", lambda *_, script=None: told.append(script))
    rule = HoldRule()
    for now_s in (0.0, 0.1, LASTS_S - MOST_S - 0.1):
        assert rule.lasts(now_s, MOST_S)
    assert len(told) == 1
    assert rule.lasts(LASTS_S - MOST_S, MOST_S)
    assert len(told) == 2


def test_without_nftables_nothing_is_held_and_a_warning_says_so(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rule = HoldRule()
    with caplog.at_level(logging.WARNING):
        assert not rule.lasts(0.0, MOST_S)
        assert not rule.lasts(1.0, MOST_S), "and it is not tried for every connection"
    (record,) = caplog.records
    assert "packets sent twice" in record.message


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
