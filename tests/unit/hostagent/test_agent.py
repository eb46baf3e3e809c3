"""An agent's exchange with its controller, over a fake kernel."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import PlatformError
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Hello, Port, PortCounters, WorkerId, Workers
from hostagent import agent as module
from hostagent.agent import Agent, AgentOptions
from hostagent.desired import DesiredState
from hostagent.enforce import PollResult
from hostagent.expiry.state import StateDirectory
from hostagent.limits import MAX_MESSAGE_BYTES
from hostagent.workers.attach import listening
from tests.support.agent_doubles import FakeController

PORT = Port(interface="data", rate_bps=20_000_000, classify="mark")
BROKEN = PlatformError("data: the kernel refused", "see the kernel's log")
LATER = OSError(105, "No buffer space available")


class Here:
    """Stands in for a namespace: this very one."""

    def call(self, function: Callable[[], Any]) -> Any:
        return function()


class FakeEnforcer:
    """Fails as often as it has failures left, or for ever at the generations in `hopeless`."""

    def __init__(self, *failures: Exception, hopeless: tuple[int, ...] = ()) -> None:
        self.failures, self.hopeless = list(failures), hopeless
        self.verifying: Exception | None = None
        self.gone: tuple[WorkerId, ...] = ()
        self.refused: tuple[tuple[WorkerId, str], ...] = ()
        self.attempts: list[tuple[int, float]] = []
        self.ports: tuple[str, ...] = ("data",)
        self.expired = False
        self.misfits: dict[str, str] = {}
        self.mending: dict[str, int] = {}

    def mended(self) -> dict[str, int]:
        found, self.mending = self.mending, {}
        return found

    def apply(self, wanted: DesiredState) -> int:
        generation = wanted.assignment.generation
        self.attempts.append((generation, time.monotonic()))
        if generation in self.hopeless:
            raise BROKEN
        if self.failures:
            raise self.failures.pop(0)
        return 3

    def poll(self) -> PollResult:
        return PollResult(Connections(connections=()), True, self.gone, self.refused, self.verifying)

    def found(self) -> PollResult:
        return PollResult(Connections(connections=()), True, self.gone, self.refused)

    draining = False

    def drain(self) -> bool:
        return False

    def verify(self) -> int:
        if self.verifying:
            raise self.verifying
        return 0

    def counters(self) -> tuple[PortCounters, ...]:
        return tuple(PortCounters(interface=name, classes=()) for name in self.ports)

    def worker_bytes(self) -> tuple[()]:
        return ()

    def expire(self) -> None:
        self.expired = True

    def close(self) -> None: ...


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until, "did not come true"
        time.sleep(0.02)


class NoGuard:
    def __init__(self, _: StateDirectory) -> None: ...

    def ensure(self) -> None: ...


@pytest.fixture
def controller(own_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeController]:
    monkeypatch.setattr(module, "Guard", NoGuard)
    monkeypatch.setattr(module, "_FIRST_ATTEMPT_S", 0.05)
    monkeypatch.setattr(module, "_LAST_ATTEMPT_S", 0.1)
    with FakeController(Here(), own_port) as made:
        made.confirming = False  # or it would send everything again at every report
        yield made


@contextmanager
def serving(
    enforcer: FakeEnforcer,
    controller: FakeController,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expiry_s: float = 60,
    attaching: socket.socket | None = None,
) -> Iterator[None]:
    """Run an agent over `enforcer` in a thread until the block ends; it has to end at once then."""
    monkeypatch.setattr(module, "Enforcer", lambda _: enforcer)
    agent = Agent(AgentOptions("h1", (controller.url,), expiry_s, counters_s=0.05), StateDirectory(tmp_path / "h1"), attaching)
    loop, started = asyncio.new_event_loop(), threading.Event()

    async def run() -> None:
        nonlocal task
        task = asyncio.create_task(agent.run())
        started.set()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()

    task: asyncio.Task[None]
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        started.wait()
        controller.wait(Hello)
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(5)
        assert not thread.is_alive(), "the agent does not end"
        loop.close()


def assign(generation: int, **other: object) -> Assignment:
    return Assignment.model_validate({"generation": generation, "ports": (PORT,)} | other)


def answers(controller: FakeController) -> list[Applied]:
    return [m for m in controller.received if isinstance(m, Applied)]


def test_a_failed_assignment_is_tried_again_until_it_succeeds(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer(BROKEN, BROKEN, LATER, LATER)
    with serving(enforcer, controller, tmp_path, monkeypatch):
        controller.assign(assign(7))
        controller.wait(Applied, lambda m: m.error is None)
        controller.disconnect_agents()
        assert controller.wait(Hello, lambda m: m.generation != 0).generation == 7
    assert answers(controller)[:3] == [
        Applied(generation=7, changes=0, error=str(BROKEN)),  # reported once as long as it stays the same
        Applied(generation=7, changes=0, error=str(LATER)),
        Applied(generation=7, changes=3),
    ]
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(enforcer.attempts[:5])]
    assert all(pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.1, 0.1), strict=True)), "the pause grows"


def test_a_newer_assignment_ends_the_attempts_at_the_older_one(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer(hopeless=(1,))
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error == str(BROKEN)
        assert controller.applied(assign(2)) == Applied(generation=2, changes=3)
        time.sleep(0.3)
    assert enforcer.attempts[-1][0] == 2


def test_an_assignment_that_is_wrong_in_itself_is_answered_and_not_tried(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch):
        wrong = assign(1, ports=(PORT.model_copy(update={"rate_bps": 0}),))
        assert "rate_bps" in (controller.applied(wrong).error or "")
        time.sleep(0.2)
        assert enforcer.attempts == []
        assert controller.applied(assign(2)).error is None


def test_an_agent_ends_while_it_still_tries(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_ATTEMPT_S", 60)
    with serving(FakeEnforcer(hopeless=(1,)), controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error


def test_a_defect_is_logged_and_the_agent_connects_again(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), serving(FakeEnforcer(KeyError("defect")), controller, tmp_path, monkeypatch):
        received = len(controller.received)
        controller.assign(assign(1))
        controller.wait(Hello, after=received)
        assert controller.wait(Applied) == Applied(generation=1, changes=3)
    failure = next(record for record in caplog.records if "failed" in record.message)
    assert "KeyError('defect')" in repr(failure.exc_info)


def test_a_defect_at_the_end_does_not_keep_the_agent_alive(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    async def fail_when_cancelled(*_: object) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise KeyError("defect")

    monkeypatch.setattr(Agent, "_apply", fail_when_cancelled)
    with serving(FakeEnforcer(), controller, tmp_path, monkeypatch):
        controller.assign(assign(1))
        assert begun.wait(5)


def test_trouble_with_marks_keeps_no_report_back(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer()
    enforcer.verifying = BROKEN
    with serving(enforcer, controller, tmp_path, monkeypatch):
        controller.applied(assign(1))
        controller.wait(Connections)
        controller.wait(Counters)


def test_workers_are_reported_first_and_whenever_they_change(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    enforcer = FakeEnforcer()
    worker = WorkerId(job="s/t", rank=0)
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.wait(Workers) == Workers()
        assert [type(message) for message in controller.received[:2]] == [Hello, Workers]
        enforcer.gone = (worker,)
        controller.applied(assign(1))
        controller.wait(Workers, lambda m: m == Workers(gone=(worker,)))
        enforcer.gone, enforcer.refused = (), ((worker, "another user's"),)
        for generation in (2, 3, 4):
            controller.applied(assign(generation))
        controller.wait(Workers, lambda m: m == Workers(refused=enforcer.refused))
        received = len(controller.received)
        controller.disconnect_agents()
        controller.wait(Workers, lambda m: m == Workers(refused=enforcer.refused), after=received)
        assert len([m for m in controller.received if isinstance(m, Workers)]) == 4
    assert caplog.text.count("another user's") == 1


GARBAGE: dict[str, str | bytes] = {
    "nothing": "",
    "no JSON": "{",
    "bytes": b"\xff\xfe\x00",
    "a list": "[]",
    "a number": "7",
    "deep": "[" * 100_000,
    "digits": '{"generation": ' + "9" * 100_000 + "}",
    "another message": Hello(agent="h1", generation=1).model_dump_json(),
    "not a number": '{"generation": NaN}',
    "many errors": '{"workers": [' + ",".join(["0"] * 100_000) + "]}",
    "many keys": "{" + ",".join(f'"{n}": 0' for n in range(100_000)) + "}",
}


@pytest.mark.parametrize("frame", GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_no_assignment_changes_nothing_and_is_logged_once(
    controller: FakeController,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    frame: str | bytes,
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error is None
        hellos = [m for m in controller.received if isinstance(m, Hello)]
        for _ in range(5):
            controller.send(frame)
        assert controller.applied(assign(2)).error is None
        assert [m for m in controller.received if isinstance(m, Hello)] == hellos, "the connection lasted"
    assert [generation for generation, _ in enforcer.attempts] == [1, 2]
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert len(errors[0].getMessage()) < 1000


def test_an_assignment_that_is_wrong_is_answered_under_its_number_and_the_one_before_stays(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer(hopeless=(1,))
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error == str(BROKEN)
        after, tried = len(controller.received), len(enforcer.attempts)
        controller.send('{"generation": 2, "ports": [{"interface": "data"}]}')
        refused = controller.wait(Applied, lambda m: m.generation == 2, after)
        assert "rate_bps" in (refused.error or "")
        eventually(lambda: len(enforcer.attempts) > tried + 2)  # The agent goes on trying to apply it.
    assert {generation for generation, _ in enforcer.attempts} == {1}


def test_a_message_that_is_too_large_ends_the_connection_alone(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error is None
        after = len(controller.received)
        controller.send(" " * (MAX_MESSAGE_BYTES + 1))
        assert controller.wait(Hello, after=after).generation == 1
        assert controller.applied(assign(2)).error is None
    assert not enforcer.expired


def test_who_sends_no_assignment_does_not_keep_the_last_one_in_force(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch, expiry_s=1):
        assert controller.applied(assign(1)).error is None
        time.sleep(1.5)
        assert not enforcer.expired, "a controller that has said what it wants need not say it again"
        controller.forget()
        after = len(controller.received)
        controller.disconnect_agents()
        controller.wait(Hello, after=after)
        until = time.monotonic() + 20
        while not enforcer.expired:
            assert time.monotonic() < until
            controller.send("garbage")
            time.sleep(0.05)


def test_an_interface_that_goes_away_is_reported_and_so_is_its_return(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error is None
        time.sleep(0.3)
        assert len(enforcer.attempts) == 1
        after = len(controller.received)
        enforcer.hopeless = (1,)
        enforcer.ports = ()
        assert controller.wait(Applied, after=after).error == str(BROKEN)
        enforcer.hopeless = ()
        enforcer.ports = ("data",)
        assert controller.wait(Applied, lambda m: m.error is None, after) == Applied(generation=1, changes=3)


def test_an_interface_that_does_not_fit_is_reported_and_so_is_its_mending(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error is None
        after = len(controller.received)
        enforcer.hopeless = (1,)
        enforcer.misfits = {"data": "it sends packets that are too large"}
        assert controller.wait(Applied, after=after).error == str(BROKEN)
        enforcer.hopeless = ()
        enforcer.misfits = {}
        assert controller.wait(Applied, lambda m: m.error is None, after) == Applied(generation=1, changes=3)


def test_what_another_program_had_changed_is_logged(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    enforcer = FakeEnforcer()
    with serving(enforcer, controller, tmp_path, monkeypatch):
        assert controller.applied(assign(1)).error is None
        enforcer.mending = {"data": 2}
        controller.wait(Counters, after=len(controller.received) + 1)
    assert "mended: 2 changes of data's queues by another program, which are as they were again" in caplog.text


def test_who_attaches_and_detaches_in_a_loop_does_not_flood_the_controller(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 150
    with listening(tmp_path / "agent.sock") as attaching:
        began = time.monotonic()
        with serving(FakeEnforcer(), controller, tmp_path, monkeypatch, attaching=attaching):
            for rank in range(rounds):
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.settimeout(20)
                    sock.connect(str(tmp_path / "agent.sock"))
                    sock.sendall(f'{{"study": "s", "trial": "t", "rank": {rank}}}\n'.encode())
                    assert b"attached" in sock.recv(4096)
            controller.wait(Workers, lambda m: not m.leases, after=len(controller.received) - 1)
            reports = [m for m in controller.received if isinstance(m, Workers)]
        least = min(rounds, int((time.monotonic() - began) / module._LEASES_PAUSE_S))
    assert len(reports) <= least + 3
