"""The search for the largest packet that arrives, and what is said of it."""

import errno
import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from beamer.doctor.findings import CheckVerdict, Finding, Unseen
from beamer.errors import PlatformError
from hostagent.doctor import host
from hostagent.doctor.path_mtu import LEAST_BYTES, MOST_BYTES, EchoProber, PathMtu, judge_path, largest, measure, settled


@pytest.mark.parametrize("most", [LEAST_BYTES, 1500, 9000, MOST_BYTES])
@pytest.mark.parametrize("limit", [0, 575, 576, 577, 1280, 1400, 1499, 1500, 9000, 65_535])
def test_the_largest_size_that_passes_is_found_in_few_questions(most: int, limit: int) -> None:
    asked: list[int] = []

    def passes(size: int) -> bool:
        asked.append(size)
        return size <= limit

    found = largest(most, passes)
    assert found == (min(limit, most) if limit >= LEAST_BYTES else 0)
    assert len(asked) <= 2 + math.ceil(math.log2(max(most - LEAST_BYTES, 1))) <= 18
    assert all(LEAST_BYTES <= size <= most for size in asked)


def one(path: PathMtu) -> Finding:
    (found,) = judge_path(path)
    return found


def test_a_path_that_carries_less_than_the_interface_sends_is_a_fault() -> None:
    assert one(PathMtu("10.0.0.2", "ens1", 9000, 9000)).verdict is CheckVerdict.OK
    assert one(PathMtu("10.0.0.2", "ens1", 9000, 0)).verdict is CheckVerdict.NOT_CHECKED
    found = one(PathMtu("10.0.0.2", "ens1", 9000, 1500))
    assert (found.verdict, found.found) == (
        CheckVerdict.FAULT,
        "packets of 9000 bytes do not pass from ens1 to 10.0.0.2, and those of 1500 do",
    )
    assert "ip link set ens1 mtu 1500" in found.fix


def test_this_machine_answers_itself() -> None:
    try:
        assert measure("127.0.0.1", "lo", 65_536) == PathMtu("127.0.0.1", "lo", MOST_BYTES, MOST_BYTES)
    except PlatformError:
        pytest.skip("this user may send no ICMP echo requests")


@dataclass
class Peer:
    """A peer that answers packets up to `limit` bytes, on a clock of its own.

    delay_s: of the next answer. step_s: what passes whenever the clock is looked at, as on a busy machine. says_too_large: a
    router says so of larger packets, at the next call.
    """

    limit: int
    delay_s: Callable[[], float] = lambda: 0.001
    step_s: float = 0.0
    says_too_large: bool = False
    now_s: float = 0.0
    sent: int = 0
    answers: list[tuple[float, bytes]] = field(default_factory=list)
    timeout_s: float = 0.0
    is_refused: bool = False

    def clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def settimeout(self, value: float | None, /) -> None:
        self.timeout_s = value or 0.0

    def send(self, data: bytes, /) -> int:
        self._refuse()
        self.sent += 1
        if 20 + len(data) <= self.limit:
            self.answers.append((self.now_s + self.delay_s(), struct.pack("!B", 0) + data[1:]))
            self.answers.sort()
        else:
            self.is_refused = self.says_too_large
        return len(data)

    def recv(self, size: int, /) -> bytes:
        self._refuse()
        if self.answers and self.answers[0][0] <= self.now_s + self.timeout_s:
            at_s, data = self.answers.pop(0)
            self.now_s = max(self.now_s, at_s)
            return data
        self.now_s += self.timeout_s
        raise TimeoutError if self.timeout_s else BlockingIOError

    def _refuse(self) -> None:
        if self.is_refused:
            self.is_refused = False
            raise OSError(errno.EMSGSIZE, "Message too long")

    def passing(self, most: int) -> int:
        prober = EchoProber(self, is_raw=False, clock=self.clock)
        return settled(most, prober.passes_quickly, prober.passes)


@pytest.mark.parametrize("limit", [0, 576, 1400, 1500])
@pytest.mark.parametrize("step_s", [0.0, 0.2, 5.0])
def test_what_this_process_waits_for_a_processor_is_no_loss(limit: int, step_s: float) -> None:
    peer = Peer(limit, step_s=step_s)
    assert peer.passing(1500) == limit
    assert peer.sent <= 40


def test_an_answer_that_comes_after_the_next_question_counts() -> None:
    assert Peer(MOST_BYTES, delay_s=lambda: 5.0).passing(MOST_BYTES) == MOST_BYTES


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("says_too_large", [False, True])
def test_answers_of_any_delay_give_the_same_size(seed: int, says_too_large: bool) -> None:
    chance = random.Random(seed)
    limit, slow_s, share = chance.randint(576, 9000), chance.uniform(0.2, 4.0), chance.random()
    peer = Peer(limit, lambda: slow_s if chance.random() < share else 0.001, says_too_large=says_too_large)
    assert peer.passing(9000) == limit


def test_no_answer_at_all_is_known_in_seconds() -> None:
    peer = Peer(0)
    assert peer.passing(9000) == 0
    assert peer.now_s < 10


def test_a_path_is_measured_over_ipv4_and_that_none_is_over_ipv6_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = [SimpleNamespace(root="htb", name="ens1", mtu=1500)]
    monkeypatch.setattr(host, "interfaces_with", lambda addresses: ())
    monkeypatch.setattr(host, "measure", lambda peer, interface, sends: PathMtu(peer, interface, sends, sends))
    assert host._measured(found, None, {"h2": "fd00::2", "h3": "10.0.0.3"}) == PathMtu("10.0.0.3", "ens1", 1500, 1500)
    for peer, hosts in ((None, {"h2": "fd00::2"}), ("fd00::2", {})):
        unseen = host._measured(found, peer, hosts)
        assert isinstance(unseen, Unseen)
        assert unseen.reason.startswith("no path over IPv6 is measured, as to fd00::2")
