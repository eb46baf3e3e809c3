"""What a survey makes of what switches say of their ports, and of probes between them."""

import asyncio
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp
from structlog.testing import capture_logs

from beamer.network.codepoints import LOCAL
from beamer.network.observed_fabric import PortKey
from controller.openflow import survey
from controller.openflow.frames import PacketIn
from controller.openflow.survey import LOST
from tests.support.surveyed_network import Link, Site, answer, hasten, run


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def test_a_right_network_is_known_after_one_round_and_nothing_changes_afterwards() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        seen = site.survey.observation()
        assert seen.leads_to == site.wires.cables
        assert seen.answers == {end: dict([address]) for end, address in site.wires.hosts.items()}
        assert (seen.silent, seen.mute) == (frozenset(), frozenset())
        changes = site.wires.changes
        await site.rounds(2 * LOST)
        assert (site.wires.changes, site.texts()) == (changes, [])

    run(scenario)


def test_a_cable_that_carries_nothing_is_dead_after_some_rounds_and_not_before() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.wires.drops = lambda sender, frame: sender == ("l1", 1)
        await site.rounds(LOST - 1)
        assert site.texts() == []
        changes = site.wires.changes
        await site.rounds()
        assert site.wires.changes > changes
        assert site.texts() == ["what l1 port 1 sends arrives nowhere; the file says at s1 port 1"]
        site.wires.drops = lambda sender, frame: False
        await site.rounds()
        assert site.texts() == []

    run(scenario)


def test_a_full_queue_of_unregistered_traffic_is_no_dead_cable() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        # Only packets that carry the codepoint of class 0 pass.
        site.wires.drops = lambda sender, frame: frame[12:14] != b"\x08\x00" or frame[15] >> 2 != LOCAL.of(0)
        await site.rounds(2 * LOST)
        assert not [text for text in site.texts() if "arrives nowhere" in text]

    run(scenario)


@pytest.mark.parametrize("busy", ["l1", "s1"])
def test_probes_of_a_switch_that_does_not_answer_and_for_one_are_not_lost(busy: str) -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.links[busy].answers = False
        site.wires.drops = lambda sender, frame: sender == ("l1", 1)
        await site.rounds(2 * LOST)
        assert site.texts() == []

    run(scenario)


def test_loss_of_light_is_known_at_once_and_a_probe_is_sent_as_soon_as_it_is_back() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.status("l1", 1, up=False)
        assert site.texts() == ["l1 port 1 has no link; the file connects it to s1"]
        site.status("l1", 1, up=True)
        assert site.texts() == []
        site.status("l1", 1, up=True, reason=ofp.OFPPR_DELETE)
        assert site.texts() == ["l1 has no port 1, to which the file connects s1; it has 2, 3"]
        site.status("l1", ofp.OFPP_LOCAL, up=False)
        site.status("l1", 9, up=False)
        site.status("l1", 1, up=True, reason=ofp.OFPPR_ADD)
        await site.rounds()
        assert site.texts() == []

    run(scenario)


def test_what_is_sent_in_class_0_is_the_last_probe_of_a_cable_between_switches_alone() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        sent: list[PortKey] = []

        def in_class_0(sender: PortKey, frame: bytes) -> bool:
            if frame[12:14] == b"\x08\x00":
                sent.append(sender)
            return True

        site.wires.drops = in_class_0
        await site.rounds(LOST - 1)
        assert sent == []
        await site.rounds(2)
        assert set(sent) == site.wires.cables.keys()
        sent.clear()
        await site.rounds()
        assert set(sent) == site.wires.cables.keys(), "one that is dead may only be full"

    run(scenario)


def test_a_dead_cable_stays_dead_until_a_probe_has_passed_it_whoever_leaves() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.wires.drops = lambda sender, frame: sender in (("l1", 1), ("s1", 1))
        await site.rounds(LOST)
        for left in ("s1", "l1"):
            site.survey.left(left)
            assert site.dead() == {("l1", "s1")}
        await site.join("s1", "l1")
        assert site.dead() == {("l1", "s1")}
        await site.rounds(LOST)
        assert site.dead() == {("l1", "s1")}
        site.wires.drops = lambda sender, frame: False
        await site.rounds()
        assert site.dead() == frozenset()

    run(scenario)


def test_a_cable_to_the_wrong_switch_stays_dead_when_both_ends_leave() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.wires.cables["l1", 1] = ("s2", 1)
        await site.rounds()
        assert ("l1", "s1") in site.dead()
        site.survey.left("l1")
        site.survey.left("s1")
        assert ("l1", "s1") in site.dead()

    run(scenario)


def test_light_that_returns_before_the_switch_does_is_not_enough() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.status("l1", 1, up=False)
        site.survey.left("s1")
        assert site.dead() == {("l1", "s1")}
        site.status("l1", 1, up=True)
        await site.rounds(2 * LOST)
        assert site.dead() == {("l1", "s1")}
        await site.join("s1")
        await site.rounds()
        assert site.dead() == frozenset()

    run(scenario)


def test_probes_to_a_switch_that_has_no_rules_yet_are_not_lost() -> None:
    async def scenario(site: Site) -> None:
        await site.join("l1", "l2", "s2")
        await site.join("s1", with_rules=False)
        site.wires.drops = lambda sender, frame: "s1" in (sender[0], site.wires.cables.get(sender, ("", 0))[0])
        await site.rounds(2 * LOST)
        assert site.texts() == []
        site.survey.has_rules("s1")
        await site.rounds(LOST)
        assert site.dead() == {("l1", "s1"), ("l2", "s1")}

    run(scenario)


def test_the_loss_of_probes_says_nothing_of_a_switch_whose_rules_hand_none_over() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        site.survey.has_rules("s1", probes=False)  # before: others
        site.wires.drops = lambda sender, frame: site.wires.cables.get(sender, ("", 0))[0] == "s1"
        await site.rounds(2 * LOST)
        assert site.texts() == []
        assert site.dead() == frozenset()

    run(scenario)


def test_a_cable_that_was_dead_counts_as_whole_once_its_switch_hands_no_probe_over() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        site.wires.drops = lambda sender, frame: site.wires.cables.get(sender, ("", 0))[0] == "s1"
        await site.rounds(LOST)
        assert site.dead() == {("l1", "s1"), ("l2", "s1")}
        changes = site.wires.changes
        site.survey.has_rules("s1", probes=False)
        assert site.dead() == frozenset(), "nothing would ever show that it carries packets again"
        assert site.wires.changes > changes
        await site.rounds(2 * LOST)
        assert site.texts() == []

    run(scenario)


def test_a_switch_that_leaves_or_hangs_does_not_hold_up_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "BARRIER_S", 0.05)

    async def scenario(site: Site) -> None:
        await site.join()
        site.links["s1"].hangs = True
        async with asyncio.timeout(30):
            await site.rounds(2)
        assert site.survey.observation().leads_to["l1", 2] == ("s2", 1)

    run(scenario)


def test_who_floods_the_controller_is_named_and_not_listened_to() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        changes = site.wires.changes
        with capture_logs() as logs:
            for number in range(2000):
                forged = answer("10.77.0.1", f"02:00:00:00:09:{number % 256:02x}")
                site.survey.take("l1", PacketIn(0, 3, forged))
        assert site.wires.changes - changes <= survey.TAKEN
        assert [entry["event"] for entry in logs] == ["a port hands over packets that are no answers to probes"]
        await site.rounds()
        assert site.texts() == []

    run(scenario)


def test_a_fault_in_a_round_is_reported_and_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "ROUND_S", 0.001)

    async def scenario(site: Site) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        await site.join()
        round_, site.survey._round = site.survey._round, broken  # type: ignore[method-assign]
        task = asyncio.create_task(site.survey.run())
        while not faults:
            await asyncio.sleep(0.001)
        site.survey._round = round_  # type: ignore[method-assign]
        while site.survey.observation().leads_to != site.wires.cables:
            await asyncio.sleep(0.001)
        task.cancel()

    async def broken() -> int:
        raise RuntimeError("a defect")

    run(scenario)


def test_nothing_is_said_of_a_switch_that_is_gone_or_does_not_describe_its_ports() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.survey.left("s1")
        site.survey.left("s1")
        site.wires.cables.clear()
        await site.rounds(LOST)
        assert all("s1" not in text for text in site.texts())
        assert site.survey.switches == 3
        refusing = Link("s1", site.wires, refuses=True)
        await site.survey.joined("s1", refusing)  # type: ignore[arg-type]
        assert "s1" not in site.survey.observation().ports
        site.status("s1", 1, up=False)
        assert all(not text.startswith("s1") for text in site.texts())

    run(scenario)


def test_rounds_go_on_until_they_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "ROUND_S", 0.001)

    async def scenario(site: Site) -> None:
        await site.join()
        task = asyncio.create_task(site.survey.run())
        while site.survey.observation().leads_to != site.wires.cables:
            await asyncio.sleep(0.001)
        site.wires.drops = lambda sender, frame: sender == ("l1", 1)
        while not site.texts():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)


def test_rules_of_other_programs_are_shown_while_their_switch_is_connected() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        changes = site.wires.changes
        for _ in range(2):
            site.survey.found_foreign("l1", ("table 0",))
        assert site.survey.observation().foreign == {"l1": ("table 0",)}
        assert site.wires.changes == changes + 1
        site.survey.left("l1")
        site.survey.found_foreign("l1", ("table 0",))
        await site.join("l1")
        assert site.survey.observation().foreign == {}

    run(scenario)


@pytest.mark.parametrize("busy", ["l1", "s1"])
def test_what_busy_switches_lose_counts_half(busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "PROMPT_S", 0.02)

    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        site.links[busy].takes_s = 0.03
        site.wires.drops = lambda sender, frame: sender == ("l1", 1)
        await site.rounds(2 * LOST - 1)
        assert site.dead() == frozenset()
        await site.rounds()
        assert site.dead() == {("l1", "s1")}
        site.wires.drops = lambda sender, frame: False
        await site.rounds()
        assert site.dead() == frozenset()

    run(scenario)
