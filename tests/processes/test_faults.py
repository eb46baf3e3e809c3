"""Every fault a few times against real processes: nothing that was acknowledged is lost, and plans are as before."""

import asyncio
import signal
from pathlib import Path

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.studies.journal.location import sqlite_url
from eval.faults import emulated, upgrade
from eval.faults.base import PATIENCE_S, Fault
from eval.faults.catalogue import FAULTS
from eval.faults.kills import repeated_kills
from eval.faults.site import ControllerProcess, ending, http_client
from tests.support.blackhole import blackhole
from tests.support.postgresql import binaries, missing, postgresql
from tests.support.tiers import long

ALWAYS = {"kill-sqlite": 1, "kill-postgresql": 1}
"""How often in every run. Input of all kinds that is garbage is tried there in `tests/unit/eval/fuzz`, a journal that is
damaged, that two write to or whose compacting is cut off after any step in `tests/unit/studies/journal`, one that is locked in
`test_controller_leadership.py`.
"""
MANY = {
    "damaged": 6,  # of 18 kinds; tests/unit/studies/journal/test_damage.py has all of them, without a controller
    "kill-sqlite": 3,
    "kill-compacting": 3,
    "kill-starting": 6,
    "kill-postgresql": 3,
    "garbage-openflow": 60,
    "garbage-http": 200,
    "garbage-agents": 60,
    "garbage-websocket": 60,
    "garbage-attach": 200,
    "garbage-agent-link": 40,
    "garbage-client": 40,
}
"""How often in the long run, where it is not three times."""
WITHOUT_LAB = [fault for fault in FAULTS.values() if fault not in (*emulated.FAULTS, *upgrade.FAULTS)]
"""The others need root and Open vSwitch: `tests/emulation/test_faults.py`."""
CASES = [(fault, ALWAYS[fault.name]) for fault in WITHOUT_LAB if fault.name in ALWAYS]
REPEATED = [(fault, MANY.get(fault.name, 3)) for fault in WITHOUT_LAB]
MEASURED_ELSEWHERE = {name for name in FAULTS if name.startswith("garbage-")} | {"damaged"}
"""Nothing is written while these happen."""


@pytest.mark.timeout(300)  # each takes a quarter of a minute, and twice as long on a machine that does other things
@pytest.mark.parametrize(("fault", "times"), [*CASES, *long(*REPEATED)], ids=lambda value: getattr(value, "name", value))
def test_nothing_that_was_acknowledged_is_lost(fault: Fault, times: int) -> None:
    if reason := fault.missing():
        pytest.skip(reason)
    outcome = fault.run(times, 7)
    assert outcome.is_good, outcome
    assert outcome.times >= times
    assert bool(outcome.acknowledged) == (fault.name not in MEASURED_ELSEWHERE)


HASTY = """
import time
from beamer.studies.journal.store import Journal
from controller.cli import main
from controller.runtime import Runtime

append = Journal.append_encoded

def late(journal, events):
    time.sleep(2)  # longer than a controller lives between two kills
    append(journal, events)

async def at_once(runtime):
    pass

Journal.append_encoded, Runtime.written = late, at_once
main()
"""
"""A controller that acknowledges what it has not committed."""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_was_acknowledged_before_it_was_committed_is_found(tmp_path: Path) -> None:
    outcome = asyncio.run(repeated_kills(tmp_path, sqlite_url(tmp_path / "journal.db"), 3, 7, ("-c", HASTY)))
    assert outcome.lost > 0
    assert not outcome.is_good


async def _hello_of_a_follower(directory: Path, journal: str) -> bytes:
    """Return the first bytes that a follower sends to a switch."""
    leader, follower = both = [ControllerProcess(directory, name, journal) for name in ("leader", "follower")]
    with ending(*both):
        leader.start()
        await leader.answers()
        follower.start()
        await follower.answers(503)
        reader, writer = await asyncio.open_connection(*follower.openflow)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await reader.readexactly(2)
        finally:
            writer.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_switches_connect_to_a_follower_as_well(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    programs = binaries()
    assert programs is not None
    with postgresql(programs) as server:
        assert asyncio.run(_hello_of_a_follower(tmp_path, server.database())) == bytes((ofp.OFP_VERSION, ofp.OFPT_HELLO))


async def _told_to_stop(directory: Path, journal: str) -> tuple[int, int]:
    """Tell a leader to stop while its database is silent and a write waits; return the write's answer, and the exit status."""
    async with blackhole(journal) as hole, http_client(PATIENCE_S) as http:
        leader = ControllerProcess(directory, "leader", hole.url)
        with ending(leader):
            leader.start()
            await leader.answers()
            hole.swallow()
            asked = asyncio.create_task(http.put(f"{leader.url}/v1/studies/s", json={}))
            await asyncio.sleep(0.2)
            leader.signal(signal.SIGTERM)
            status = await leader.ended()
            assert "Traceback" not in leader.log, leader.log
            return (await asked).status_code, status


@pytest.mark.timeout(300)
def test_a_leader_stops_when_it_is_told_to_although_its_database_is_silent(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    programs = binaries()
    assert programs is not None
    with postgresql(programs) as server:
        answered, status = asyncio.run(_told_to_stop(tmp_path, server.database()))
    assert (answered, status) in ((503, 0), (503, 2))


async def _answer_of_a_leader_of_before(directory: Path, journal: str) -> int:
    """Return what a stopped leader, continued, answers to a write that is valid for the one that leads by now."""
    old, new = both = [ControllerProcess(directory, name, journal) for name in ("old", "new")]
    with ending(*both):
        old.start()
        await old.answers()
        new.start()
        await new.answers(503)
        async with http_client(60) as http:
            old.signal(signal.SIGSTOP)
            await new.answers()
            for path in ("/v1/studies/s", "/v1/studies/s/stages/r", "/v1/studies/s/trials/t"):
                (await http.put(new.url + path, json={})).raise_for_status()
            target = {"step": 5, "stage": "r"}
            asked = asyncio.create_task(http.put(f"{old.url}/v1/studies/s/trials/t/target", json=target))
            await asyncio.sleep(0.5)  # it waits in the socket of the stopped process
            old.signal(signal.SIGCONT)
            return (await asked).status_code


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_leader_of_before_refuses_nothing_that_the_new_one_takes(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    programs = binaries()
    assert programs is not None
    with postgresql(programs) as server:
        assert asyncio.run(_answer_of_a_leader_of_before(tmp_path, server.database())) == 503
