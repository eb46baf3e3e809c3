"""An agent speaks of its own hosts' workers alone, and numbers of connections grow no faster than they are taken in."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from beamer.network.connection import Connection
from beamer.network.policies import network_policy
from beamer.network.protocol import Applied, Connections
from beamer.studies.events import AttemptStarted, StudyRegistered, TrialRegistered
from beamer.studies.journal.store import Journal
from beamer.studies.model import Profile, Worker
from controller.limited_log import LINES_AN_HOUR
from controller.openflow.reports import SwitchConnected, SwitchLost
from controller.runtime import Runtime
from controller.settings import ControllerSettings
from tests.support.served_controller import made_runtime
from topologies.single import build

FABRIC = build(hosts=3)
A, B, C = FABRIC.hosts
AGENT_A, AGENT_C = f"{A.agent}", f"{C.agent}"
WORKERS = (Worker(0, A.name), Worker(1, B.name))
OWN = Connection("m/t", 0, A.ip, 4000, B.ip, 5000)


def scene(path: Path, play: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        journal = Journal(f"sqlite:///{path / 'journal.db'}")
        runtime = made_runtime(ControllerSettings(FABRIC, network_policy("fifo")), journal)
        await runtime.start()
        runtime.record(StudyRegistered(1.0, "m"))
        runtime.record(TrialRegistered(1.0, "m", "t"))
        runtime.record(AttemptStarted(1.0, "m/t", "one", WORKERS, Profile(1000)))
        try:
            await play(runtime)
        finally:
            await runtime.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "foreign",
    [
        Connection("m/t", 1, B.ip, 4000, A.ip, 5000),  # another host's
        Connection("m/t", 0, "192.0.2.1", 4000, B.ip, 5000),  # nobody's
        Connection("m/t", 1, A.ip, 4001, B.ip, 5000),  # a rank that runs elsewhere
        Connection("m/t", 7, A.ip, 4001, B.ip, 5000),  # a rank that the trial does not have
        Connection("m/other", 0, A.ip, 4001, B.ip, 5000),  # a trial that is not known
    ],
)
def test_what_is_not_an_agents_own_is_left_out(tmp_path: Path, foreign: Connection) -> None:
    async def play(runtime: Runtime) -> None:
        runtime.on_agent_message(AGENT_A, Connections(connections=(foreign, OWN), unmatched_bytes={"m/t": 5, foreign.job: 6}))
        assert runtime.network.connections[AGENT_A] == (OWN,)
        runtime.on_agent_message(AGENT_C, Connections(connections=(OWN, foreign), unmatched_bytes={"m/t": 99}))
        assert AGENT_C not in runtime.network.connections
        assert runtime.unmatched.by_trial() == {"m/t": 6 if foreign.job == "m/t" else 5}

    scene(tmp_path, play)


def test_foreign_connections_are_logged_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def play(runtime: Runtime) -> None:
        for port in range(1, 50):
            runtime.on_agent_message(AGENT_C, Connections(connections=(Connection("m/t", 0, A.ip, port, B.ip, 5000),)))

    scene(tmp_path, play)
    assert capfd.readouterr().out.count("left out") == 1


def test_an_agent_that_fails_again_and_again_fills_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def play(runtime: Runtime) -> None:
        for generation in range(500):
            runtime.on_agent_message(AGENT_A, Applied(generation=generation, changes=0, error="no such device"))
        runtime.on_agent_message(AGENT_C, Applied(generation=7, changes=0, error="not permitted"))

    scene(tmp_path, play)
    logged = capfd.readouterr().out
    assert logged.count("no such device") == LINES_AN_HOUR
    assert logged.count("not permitted") == 1


def test_a_switch_that_comes_and_goes_fills_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def play(runtime: Runtime) -> None:
        for _ in range(200):
            runtime._delivery._on_switch_event(SwitchLost("s1"))
            runtime._delivery._on_switch_event(SwitchConnected("s1"))

    scene(tmp_path, play)
    assert capfd.readouterr().out.count("switch lost") == LINES_AN_HOUR
