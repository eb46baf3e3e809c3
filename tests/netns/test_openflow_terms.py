"""Real switches obey the latest term, and one that has obeyed another journal is led all the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.errors import TakenError
from controller.openflow.reports import SwitchLost
from tests.netns.lab import NAMES, Lab, Listener, switches

pytestmark = pytest.mark.netns


class JournalInMemory:
    """The term in a journal. taken: whether another controller has written it since."""

    def __init__(self, term: int, taken: bool = False) -> None:
        self.term = term
        self.taken = taken
        self.raised: list[int] = []

    async def raise_term(self, least: int) -> int:
        if self.taken:
            raise TakenError("the journal was written by another process", "start this one again")
        self.raised.append(least)
        self.term = max(self.term, least)
        return self.term


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with switches(tmp_path) as lab:
        yield lab


def test_terms_are_the_switches_own(lab: Lab) -> None:
    async def scenario() -> None:
        before, new, replaced = JournalInMemory(57), JournalInMemory(1), JournalInMemory(57, taken=True)
        async with Listener(before) as listener:
            await listener.install(1)
        rules = {name: lab.flows(name) for name in NAMES}
        async with Listener(new) as listener:  # of a journal that was made anew
            await listener.install(1)
            assert (before.raised, new.term, set(new.raised)) == ([], 58, {58})
            assert {name: lab.flows(name) for name in NAMES} == rules
        async with Listener(replaced) as listener:  # a leader that another one has replaced
            listener.driver.install(1, [])
            async with asyncio.timeout(30):
                while {event.switch for event in listener.events if isinstance(event, SwitchLost)} != NAMES:
                    await asyncio.sleep(0.02)
            assert listener.installed(1) == {}
        async with Listener(new) as listener:
            await listener.install(1)
            assert new.term == 58

    lab.drive(scenario)
