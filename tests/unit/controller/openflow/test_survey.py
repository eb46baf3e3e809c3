"""What a survey makes of what switches say, of a network in memory: each frame goes where a cable leads, if it does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from os_ken.lib.packet import arp, ethernet, packet
from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from structlog.testing import capture_logs

from beamer.network.codepoints import LOCAL
from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import PortKey, dead_cables, mismatches
from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import TimeSlices
from controller.openflow import queue_use, survey
from controller.openflow.channel import ChannelError, RefusedError
from controller.openflow.frames import PacketIn
from controller.openflow.probes import host_answer, host_probe
from controller.openflow.rules import PROBE_MAC
from controller.openflow.survey import LOST, Survey

FABRIC = two_spines(1)
DATAPATH = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
HOSTS = {"h1": ("l1", 3), "h2": ("l2", 3)}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "ON_THE_WAY_S", 0.001)
    monkeypatch.setattr(survey, "PROMPT_S", 1000.0)  # This process may wait for a processor.


async def settled() -> None:
    """Wait for nothing."""


def described(number: int, up: bool = True) -> Any:
    state = 0 if up else ofp.OFPPS_LINK_DOWN
    return parser.OFPPort(number, "02:00:00:00:00:01", f"p{number}".encode(), 0, state, 0, 0, 0, 0, 0, 0)


def answer(ip: str, mac: str) -> bytes:
    made = packet.Packet()
    made.add_protocol(ethernet.ethernet(PROBE_MAC, mac, 0x0806))
    made.add_protocol(arp.arp(opcode=arp.ARP_REPLY, src_mac=mac, src_ip=ip, dst_mac=PROBE_MAC))
    made.serialize()
    return bytes(made.data)


@dataclass
class Wires:
    """Where frames go. cables: from port to port. hosts: by port, the addresses there. drops: frames that are lost."""

    fabric: Fabric = FABRIC
    survey: Survey | None = None
    cables: dict[PortKey, PortKey] = field(default_factory=dict)
    hosts: dict[PortKey, tuple[str, str]] = field(default_factory=dict)
    drops: Callable[[PortKey, bytes], bool] = lambda sender, frame: False
    changes: int = 0

    def __post_init__(self) -> None:
        for a, b in FABRIC.cables:
            if b.dst in FABRIC.switch and a.dst in FABRIC.switch:
                self.cables |= {(a.src, a.port): (b.src, b.port), (b.src, b.port): (a.src, a.port)}
        self.hosts = {end: (FABRIC.host[name].ip, FABRIC.host[name].mac) for name, end in HOSTS.items()}
        self.survey = Survey(self.fabric, TimeSlices(), self._changed, settled)

    def _changed(self) -> None:
        self.changes += 1

    def carry(self, sender: PortKey, frame: bytes) -> None:
        assert self.survey is not None
        if self.drops(sender, frame):
            return
        if (at := self.cables.get(sender)) is not None:
            self.survey.take(at[0], PacketIn(0, at[1], frame + bytes(3)))
        elif (host := self.hosts.get(sender)) is not None and frame[: len(host_probe(host[0]))] == host_probe(host[0]):
            self.survey.take(sender[0], PacketIn(0, sender[1], answer(*host)))


@dataclass
class Link:
    """A switch's connection, as far as a survey uses it."""

    name: str
    wires: Wires
    ports: tuple[int, ...] = (1, 2, 3, ofp.OFPP_LOCAL)
    answers: bool = True
    refuses: bool = False
    hangs: bool = False
    takes_s: float = 0
    queued: tuple[int, ...] = (1, 2, 3)
    queues: tuple[int, ...] = (0, 1)
    counts: bool = False
    sent: Counter[int] = field(default_factory=Counter)
    shows_queues: bool = True
    sets_queues: bool = True
    datapath: Any = DATAPATH

    def send(self, *messages: Any) -> None:
        for message in messages:
            message.set_xid(1)
            message.serialize()
            *others, output = message.actions
            if others and not self.sets_queues:
                continue
            self.sent[output.port] += 1
            self.wires.carry((self.name, output.port), message.data)

    async def request(self, message: Any) -> list[Any]:
        await asyncio.sleep(1000 if self.hangs else self.takes_s)
        if not self.answers:
            raise ChannelError("silent")
        if self.refuses:
            raise RefusedError("no")
        if isinstance(message, parser.OFPQueueStatsRequest):
            if not self.shows_queues:
                raise RefusedError("no")
            packets = self.sent if self.counts else Counter[int]()
            return [
                parser.OFPQueueStats(port, queue, 0, packets[port] if queue == 1 else 0, 0, 0, 0)
                for port in self.queued
                for queue in self.queues
            ]
        return [described(number) for number in self.ports] if isinstance(message, parser.OFPPortDescStatsRequest) else [None]


@dataclass
class Site:
    """A survey under test with the connections of its switches."""

    wires: Wires = field(default_factory=Wires)
    links: dict[str, Link] = field(default_factory=dict)

    @property
    def survey(self) -> Survey:
        assert self.wires.survey is not None
        return self.wires.survey

    async def join(self, *names: str, with_rules: bool = True) -> None:
        for name in names or FABRIC.switch:
            ports = (1, 2, 3, ofp.OFPP_LOCAL) if name.startswith("l") else (1, 2)
            self.links[name] = link = Link(name, self.wires, ports)
            await self.survey.joined(name, link)  # type: ignore[arg-type]
            if with_rules:
                self.survey.has_rules(name)

    async def rounds(self, number: int = 1) -> None:
        for _ in range(number):
            await self.survey._round()

    def texts(self) -> list[str]:
        return [one.text for one in mismatches(self.wires.fabric, self.survey.observation())]

    def dead(self) -> frozenset[tuple[str, str]]:
        seen = self.survey.observation()
        return dead_cables(FABRIC, mismatches(FABRIC, seen), seen.silent)

    def status(self, switch: str, number: int, up: bool, reason: int = ofp.OFPPR_MODIFY) -> None:
        self.survey.take(switch, parser.OFPPortStatus(DATAPATH, reason, described(number, up)))


def run(scenario: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(Site()))


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


def test_what_a_host_is_sent_is_no_probe_of_another_port() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        at_host, of_trunk = site.survey._probes["l1", 3][0], site.survey._probes["l1", 1][0]
        secret = next(word for word in of_trunk.split() if len(word) >= 32)
        assert secret not in at_host
        before = site.survey.observation()
        site.survey.take("l1", PacketIn(0, 3, at_host))
        assert site.survey.observation().leads_to == {**before.leads_to, ("l1", 3): ("l1", 3)}

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


def test_swapped_hosts_are_found_by_asking_for_others() -> None:
    async def scenario(site: Site) -> None:
        one, other = site.wires.hosts.values()
        site.wires.hosts = {HOSTS["h1"]: other, HOSTS["h2"]: one}
        await site.join()
        await site.rounds(2)
        assert site.texts() == ["at l1 port 3 is h2; the file says h1", "at l2 port 3 is h1; the file says h2"]
        await site.rounds(LOST)
        changes = site.wires.changes
        await site.rounds(3 * LOST)
        assert site.texts() == ["at l1 port 3 is h2; the file says h1", "at l2 port 3 is h1; the file says h2"]
        assert site.wires.changes == changes
        site.wires.hosts = {HOSTS["h1"]: one, HOSTS["h2"]: other}
        await site.rounds()
        assert site.texts() == []

    run(scenario)


def test_a_host_that_falls_silent_is_named() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        del site.wires.hosts[HOSTS["h2"]]
        await site.rounds(LOST - 1)
        assert site.texts() == []
        await site.rounds()
        assert site.texts() == ["h2 (10.77.0.2) does not answer at l2 port 3"]

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


def forged() -> Iterator[tuple[str, bytes]]:
    other = Survey(FABRIC, TimeSlices(), lambda: None, settled)
    yield "another controller's probe", other._probes["l1", 1][0]
    yield "nothing", b""
    yield "half an answer", answer("10.77.0.1", "02:00:00:00:00:01")[:30]
    yield "an address that no host has", answer("10.99.0.1", "02:00:00:00:00:01")
    yield "a request", host_probe("10.77.0.1")


@pytest.mark.parametrize(("what", "frame"), tuple(forged()), ids=lambda one: one if isinstance(one, str) else "")
def test_what_is_no_answer_to_a_probe_changes_nothing(what: str, frame: bytes) -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        before, changes = site.survey.observation(), site.wires.changes
        site.survey.take("s2", PacketIn(0, 2, frame))
        site.survey.take("nobody", PacketIn(0, 2, frame))
        assert (site.survey.observation(), site.wires.changes) == (before, changes)

    run(scenario)


def test_an_answer_is_read_with_its_addresses() -> None:
    assert host_answer(answer("10.77.0.1", "02:00:00:00:00:01")) == ("10.77.0.1", "02:00:00:00:00:01")
    assert host_answer(answer("10.77.0.1", "02:00:00:00:00:01")[:41]) is None


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
