"""What a survey makes of the queues that switches show."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from controller.openflow import queue_use
from controller.openflow.survey import LOST
from tests.support.surveyed_network import FABRIC, Site, Wires, hasten, run


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def test_a_switch_that_sets_no_queue_is_not_asked_to() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        for name, link in site.links.items():
            link.sets_queues = False
            site.survey.has_rules(name, queues=False)
        await site.rounds(2 * LOST)
        assert site.texts() == []
        assert site.dead() == frozenset()
        site.survey.has_rules("s1")
        await site.rounds(2 * LOST)
        assert site.dead() == {("l1", "s1"), ("l2", "s1")}

    run(scenario)


NO_QUEUES = "l1 port 3 has no queues, and no agent makes any: no class goes before another there"


def test_a_port_without_queues_is_named_until_it_has_some() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.links["l1"].queued = (1, 2)
        known = site.wires.changes
        await site.survey._read_all_queues()
        assert site.texts() == [NO_QUEUES]
        changes = site.wires.changes
        assert changes > known, "it is reported"
        await site.survey._read_all_queues()
        assert (site.texts(), site.wires.changes) == ([NO_QUEUES], changes)
        site.survey.left("l1")
        assert site.texts() == []
        await site.join("l1")
        await site.survey._read_all_queues()
        assert site.texts() == [], "it has queues by now"
        site.links["l1"].queued = (1, 2)
        await site.survey._read_all_queues()
        site.links["l1"].queued = (1, 2, 3)
        await site.survey._read_all_queues()
        assert site.texts() == []

    run(scenario)


WITH_DATABASE = replace(FABRIC, switches=(replace(FABRIC.switches[0], ovsdb="unix:/db"), *FABRIC.switches[1:]))


def test_that_a_port_has_no_queues_is_not_known_any_more_either() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        site.links["l1"].queued = (1, 2)
        await site.survey._read_all_queues()
        assert site.texts() == [NO_QUEUES]
        site.links["l1"].shows_queues = False
        for _ in range(queue_use.UNANSWERED):
            assert site.texts() == [NO_QUEUES]
            await site.survey._read_all_queues()
        assert site.texts() == []

    run(scenario)


TOLD = "does not queue as told: its queues count none of the packets that rules choose a queue for"


@pytest.mark.parametrize("counts", [True, False])
def test_whether_a_switch_uses_the_queues_that_the_controller_makes_is_seen_by_its_probes(counts: bool) -> None:
    async def scenario() -> None:
        site = Site(Wires(WITH_DATABASE))
        await site.join()
        link = site.links["l1"]
        link.queues, link.counts = tuple(range(9)), counts
        assert site.survey.unused == {"l1"}, "nothing is known yet"
        for _ in range(3):
            await site.rounds(queue_use.MISSED)
            before, known = site.wires.changes, site.survey.unused
            await site.survey._read_all_queues()
            assert site.wires.changes > before or site.survey.unused == known
        assert site.survey.unused == frozenset()
        assert site.texts() == ([] if counts else [f"l1 {TOLD}"])
        site.status("l1", 1, up=False)
        site.status("l1", 1, up=True)
        assert site.survey.unused == {"l1"}, "it is to be seen anew"
        site.survey.left("l1")
        assert site.survey.unused == {"l1"}, "of a switch that shows no ports nothing is known"
        link.queues = (0, 1, 2)
        await site.join("l1")
        site.links["l1"].queues = (0, 1, 2)
        await site.survey._read_all_queues()
        assert [text.partition(":")[0] for text in site.texts()] == [
            f"l1 port {port} has no queues, although its database has them" for port in (1, 2, 3)
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize("counts", [True, False])
def test_the_use_of_queues_is_not_known_any_more_after_some_questions_without_an_answer(counts: bool) -> None:
    async def scenario() -> None:
        site = Site(Wires(WITH_DATABASE))
        await site.join()
        link = site.links["l1"]
        link.queues, link.counts = tuple(range(9)), counts
        for _ in range(3):
            await site.rounds(queue_use.MISSED)
            await site.survey._read_all_queues()
        known = site.texts()
        assert (site.survey.unused, bool(known)) == (frozenset(), not counts)
        for answers in (*[False] * (queue_use.UNANSWERED - 1), True, *[False] * (queue_use.UNANSWERED - 1)):
            link.shows_queues = answers
            await site.survey._read_all_queues()
            assert (site.survey.unused, site.texts()) == (frozenset(), known)
        before = site.wires.changes
        await site.survey._read_all_queues()
        assert (site.survey.unused, site.texts()) == ({"l1"}, [])
        assert site.wires.changes > before, "it is reported"
        link.shows_queues = True
        for _ in range(3):
            await site.rounds(queue_use.MISSED)
            await site.survey._read_all_queues()
        assert (site.survey.unused, site.texts()) == (frozenset(), known)

    asyncio.run(scenario())


def test_of_queues_that_a_switch_does_not_show_nothing_is_said_but_once_that_it_does_not() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        site.links["l1"].shows_queues = False
        with capture_logs() as logs:
            for _ in range(4):
                await site.survey._read_all_queues()
        assert site.texts() == []
        assert [(entry["switch"], entry["event"]) for entry in logs] == [
            ("l1", "switch does not show its queues, so they are not checked")
        ]

    run(scenario)
