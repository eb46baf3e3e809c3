"""Peers that send what no switch sends, or too much of it, or nothing: they lose their connection, and nobody else anything."""

import asyncio
import struct
from collections.abc import Callable

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import TimeSlices
from controller.openflow import channel, driver, flow_counts, held_rules, session
from controller.openflow.channel import Channel, ChannelError, ExcessError
from controller.openflow.reconcile import difference
from controller.openflow.reports import SwitchInstalled, SwitchLost
from controller.openflow.rules import Band, HostPair, Rule, SetQueue, Table, match
from tests.support import openflow_samples as samples
from tests.support.openflow_samples import IPV4, METADATA, features_reply, flow_entry, flow_removed, frame, hello, multipart
from tests.support.openflow_switch import FakeSwitch
from tests.unit.controller.openflow.test_driver import Bench, bench, job

ENDLESS_HELLO = frame(ofp.OFPT_HELLO, struct.pack("!HH", 1, 0))


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "SETTLE_S", 0.1)
    monkeypatch.setattr(held_rules, "LINGER_S", 0.1)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(session, "RETRY_S", 0.05)


class RawPeer:
    """A client that sends the bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, made: Bench, data: bytes = b"") -> "RawPeer":
        peer = cls(*await asyncio.open_connection(*made.driver.address))
        peer.writer.write(data)
        return peer

    @classmethod
    async def identified(cls, made: Bench, dpid: int) -> "RawPeer":
        return await cls.to(made, hello() + features_reply(dpid))

    async def request(self, kind: int, passing: bool = False) -> int:
        """Return the transaction of the next request of this type; the request to lead is granted on the way.

        What its tables can do, it does not say. passing: whether barriers on the way are answered, too.
        """
        while True:
            _, got, length, xid = struct.unpack("!BBHI", await self.reader.readexactly(8))
            body = await self.reader.readexactly(length - 8)
            if got == ofp.OFPT_MULTIPART_REQUEST and struct.unpack_from("!H", body)[0] == ofp.OFPMP_TABLE_FEATURES:
                asked = await self.request(ofp.OFPT_BARRIER_REQUEST)
                self.writer.write(frame(ofp.OFPT_BARRIER_REPLY, xid=asked))
                continue
            if got == kind:
                return int(xid)
            if got == ofp.OFPT_ROLE_REQUEST:
                self.writer.write(frame(ofp.OFPT_ROLE_REPLY, body, xid=xid))
            elif passing and got == ofp.OFPT_BARRIER_REQUEST:
                self.writer.write(frame(ofp.OFPT_BARRIER_REPLY, xid=xid))

    async def ended(self) -> bool:
        """Wait until the driver has closed the connection."""
        try:
            async with asyncio.timeout(10):
                while await self.reader.read(1 << 16):
                    pass
        except ConnectionError:
            pass
        self.writer.close()
        return True


async def good(made: Bench, dpid: int = 1) -> FakeSwitch:
    switch = FakeSwitch(dpid)
    made.connect(switch)
    await made.installed(1)
    return switch


def endings(text: str, word: str) -> int:
    return sum("switch connection ended" in line and word in line for line in text.splitlines())


@pytest.mark.parametrize(
    "data",
    [
        ENDLESS_HELLO,
        frame(ofp.OFPT_HELLO, struct.pack("!HHI", 1, 3, 0)),
        frame(ofp.OFPT_BARRIER_REPLY),
        b"\x04\x00\x00\x00\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\nHost: beamer\r\n\r\n",
        hello() + frame(ofp.OFPT_FEATURES_REPLY, bytes(3)),
        hello() + frame(ofp.OFPT_ECHO_REQUEST, bytes(channel.HANDSHAKE_BYTES)),
        hello() + frame(ofp.OFPT_ECHO_REQUEST) * (channel.HANDSHAKE_FRAMES + 1),
    ],
    ids=["endless hello", "short hello element", "no hello", "no length", "http", "features", "large", "many"],
)
def test_a_malformed_handshake_ends_that_connection_alone(data: bytes) -> None:
    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            switch = await good(b)
            assert await (await RawPeer.to(b, data)).ended()
            b.driver.install(2, [job(3)])
            await b.installed(2)
            assert SwitchLost("s1") not in b.events
            assert switch.entries

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        lambda xid: multipart(ofp.OFPMP_FLOW, bytes(56), xid=xid),
        lambda xid: multipart(ofp.OFPMP_FLOW, flow_entry(samples.match(IPV4), bytes(8)), xid=xid),
        lambda xid: multipart(ofp.OFPMP_METER_CONFIG, samples.meter(1, samples.band()), xid=xid),
        lambda xid: frame(ofp.OFPT_BARRIER_REPLY, xid=xid),
        lambda xid: multipart(ofp.OFPMP_FLOW, samples.ENTRY, flags=ofp.OFPMPF_REPLY_MORE, xid=xid) * 2000,
        lambda xid: multipart(ofp.OFPMP_FLOW, flags=ofp.OFPMPF_REPLY_MORE, xid=xid) * 2000,
    ],
    ids=["endless entry", "endless instruction", "meters for flows", "barrier for flows", "no end", "no end of nothing"],
)
def test_an_answer_that_cannot_be_ends_that_connection_alone(
    answer: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "HOST_RULES", 100)
    monkeypatch.setattr(driver, "QUEUE_ENTRIES", 100)

    async def scenario() -> None:
        async with bench(two_spines()) as b:
            b.driver.install(1, [])
            await good(b)
            peer = await RawPeer.identified(b, dpid=2)
            peer.writer.write(answer(await peer.request(ofp.OFPT_MULTIPART_REQUEST)))
            assert await peer.ended()
            b.driver.install(2, [])
            await b.installed(2)
            assert SwitchLost("l1") not in b.events
            assert SwitchLost("l2") in b.events

    asyncio.run(scenario())


def test_os_kens_own_faults_end_the_connection_too(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def faulty(*_: object) -> None:
        raise KeyError("no such type")

    async def scenario() -> None:
        async with bench() as b:
            peer = await RawPeer.to(b, hello())
            await peer.request(ofp.OFPT_FEATURES_REQUEST)
            monkeypatch.setattr("os_ken.ofproto.ofproto_v1_3_parser.msg_parser", faulty)
            peer.writer.write(features_reply(1))
            assert await peer.ended()

    asyncio.run(scenario())
    assert endings(capfd.readouterr().out, "os-ken cannot read: KeyError") == 1


def test_what_a_rule_under_our_cookie_says_wrongly_disturbs_nothing() -> None:
    counting = Band.PAIR.number << 40 | samples.COOKIE_PREFIX << 48
    odd = [
        flow_entry(samples.match(IPV4), cookie=counting),  # a pair's, that names none
        flow_entry(samples.match(field_masked(2, 8)), cookie=counting),
        flow_entry(samples.match(IPV4, METADATA), samples.apply_actions(samples.element(77, bytes(4))), cookie=counting),
        flow_entry(samples.match(IPV4, METADATA), samples.goto(3), cookie=counting, priority=0xFFFF),
    ]

    async def answer(peer: RawPeer) -> None:
        while True:  # the reading before the odd rules are removed may come first
            asked = await peer.request(ofp.OFPT_MULTIPART_REQUEST, passing=True)
            peer.writer.write(multipart(ofp.OFPMP_FLOW, *odd, xid=asked))

    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [job(2)])
            peer = await RawPeer.identified(b, dpid=1)
            xid = await peer.request(ofp.OFPT_MULTIPART_REQUEST)
            peer.writer.write(multipart(ofp.OFPMP_FLOW, *odd, xid=xid))
            peer.writer.write(multipart(ofp.OFPMP_METER_CONFIG, xid=await peer.request(ofp.OFPT_MULTIPART_REQUEST)))
            peer.writer.write(flow_removed(samples.match(IPV4), cookie=counting))
            while not any(isinstance(e, SwitchInstalled) for e in b.events):
                peer.writer.write(frame(ofp.OFPT_BARRIER_REPLY, xid=await peer.request(ofp.OFPT_BARRIER_REQUEST)))
                await asyncio.sleep(0.01)
            answering = asyncio.create_task(answer(peer))
            assert [count.sent_bytes for count in await b.driver.counters()] == [1400]
            answering.cancel()
            assert SwitchLost("s1") not in b.events
            peer.writer.close()

    asyncio.run(scenario())


def field_masked(number: int, size: int) -> bytes:
    return samples.field(number, bytes(size), bytes(size))


def test_a_pair_is_not_put_above_a_priority_that_leaves_no_room() -> None:
    metadata = HostPair(1, 0, 1).metadata
    wanted = Rule(samples.COOKIE, Table.CLASS, Band.PAIR.priority, match(eth_type=0x0800, metadata=metadata), (SetQueue(3),))
    for priority in (Band.MARKED.priority - 1, 0xFFFF):
        highest = Rule(samples.COOKIE, Table.CLASS, priority, wanted.match, (SetQueue(1),))
        change = difference([highest], [wanted])
        assert change.add == (wanted,)
        assert change.retire == {highest.key}


def test_a_peer_that_never_reads_is_dropped_before_its_answers_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(channel, "ECHO_S", 0.05)
    monkeypatch.setattr(channel, "SILENCE_S", 0.5)
    waiting: list[int] = []

    async def scenario() -> None:
        async with bench() as b:
            peer = await RawPeer.identified(b, dpid=1)
            await b.until(lambda: b.events)
            served = b.driver._served["s1"]
            burst = frame(ofp.OFPT_ECHO_REQUEST, bytes(60_000))

            async def flood() -> None:
                while SwitchLost("s1") not in b.events:
                    peer.writer.write(burst)
                    await asyncio.wait({asyncio.create_task(peer.writer.drain())}, timeout=0.01)
                    waiting.append(served._unread_bytes)

            await asyncio.wait_for(flood(), 10)
            peer.writer.transport.abort()

    asyncio.run(scenario())
    assert max(waiting) <= channel.ECHO_UNREAD_BYTES + 60_008
    assert endings(capfd.readouterr().out, "it has read nothing") == 1


def test_what_is_sent_has_a_bound_where_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "UNREAD_BYTES", 1 << 16)

    async def scenario() -> None:
        connected: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(
            lambda r, w: connected.set_result(Channel(r, w, lambda _: None, TimeSlices())), "127.0.0.1", 0
        )
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        talk = await connected
        rules = [channel.parser.OFPEchoRequest(talk.datapath, data=bytes(50_000)) for _ in range(20)]

        def send_on() -> None:
            for _ in range(100):
                talk.send(*rules)

        with pytest.raises(ExcessError, match="waiting for it to read"):
            send_on()
        assert talk._unread_bytes < 3_000_000
        talk.close()
        writer.close()
        server.close()

    asyncio.run(scenario())


def test_an_endless_stream_of_echo_requests_leaves_the_loop_to_others() -> None:
    async def scenario() -> None:
        async with bench(two_spines()) as b:
            b.driver.install(1, [])
            peer = await RawPeer.identified(b, dpid=2)

            async def flood() -> None:
                while True:
                    peer.writer.write(frame(ofp.OFPT_ECHO_REQUEST) * 1000)
                    await peer.writer.drain()
                    await peer.reader.read(1 << 20)

            flooding = asyncio.create_task(flood())
            await good(b)
            for generation in range(2, 12):
                b.driver.install(generation, [])
                await b.installed(generation)
            assert not flooding.done()
            flooding.cancel()
            peer.writer.close()

    asyncio.run(scenario())


def test_a_peer_whose_messages_are_costly_leaves_as_much_time_to_others() -> None:
    costly = multipart(ofp.OFPMP_FLOW, *[flow_entry(samples.match())] * 1000, xid=0xFFFF)  # nobody has asked for it
    messages = 40

    async def scenario() -> int:
        async with bench() as b:
            peer = await RawPeer.identified(b, dpid=1)
            await b.until(lambda: b.events)
            peer.writer.write(costly * messages + frame(ofp.OFPT_ECHO_REQUEST))
            answered = asyncio.create_task(peer.request(ofp.OFPT_ECHO_REPLY))
            turns = 0
            while not answered.done():
                await asyncio.sleep(0)
                turns += 1
            peer.writer.close()
            return turns

    # Without pauses there is a turn or two per message; one lasts milliseconds, and as many fit a hundred turns of nothing.
    assert asyncio.run(scenario()) > 20 * messages


def test_connections_that_say_nothing_make_room_for_switches(capfd: pytest.CaptureFixture[str]) -> None:
    most = driver.UNSERVED + 2

    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            silent = [await RawPeer.to(b) for _ in range(most + 200)]
            await b.until(lambda: len(b.driver._connections) == most)
            await good(b)
            for peer in silent[:200]:
                assert await peer.ended()
            assert len(b.driver._connections) <= most + 1
            for peer in silent:
                peer.writer.close()

    asyncio.run(scenario())
    assert endings(capfd.readouterr().out, "not served; the oldest is dropped") == 1


def test_a_flood_of_refusals_is_logged_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with bench() as b:
            for _ in range(50):
                assert await (await RawPeer.to(b, ENDLESS_HELLO)).ended()
                assert await (await RawPeer.identified(b, dpid=0xBAD)).ended()

    asyncio.run(scenario())
    out = capfd.readouterr().out
    assert endings(out, "hello element at byte 8: length 0") == 1
    assert endings(out, "0000000000000bad") == 1


def test_of_any_number_that_claim_to_be_a_switch_the_served_one_stays(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            switch = await good(b)
            impostors = [FakeSwitch(dpid=1) for _ in range(8)]
            for impostor in impostors:
                b.connect(impostor)
            async with asyncio.timeout(10):
                await asyncio.gather(*b.connections[1:])
            assert [impostor.mods for impostor in impostors] == [[]] * 8
            b.driver.install(2, [job(1)])
            await b.installed(2)
            assert SwitchLost("s1") not in b.events
            assert switch.entries

    asyncio.run(scenario())
    assert endings(capfd.readouterr().out, "connected already") == 1


def test_of_any_number_that_come_while_the_served_one_is_dead_one_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ALIVE_S", 0.2)

    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            switch = await good(b)
            switch.answering.clear()
            for _ in range(8):
                b.connect(FakeSwitch(dpid=1))
            await b.installed(1, times=2)
            await b.until(lambda: len([task for task in b.connections if task.done()]) == 7)
            assert b.events.count(SwitchLost("s1")) == 1
            switch.answering.set()

    asyncio.run(scenario())


def test_whoever_waits_for_an_answer_of_a_displaced_connection_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ALIVE_S", 0.2)

    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            switch = await good(b)
            switch.answering.clear()
            asked = asyncio.create_task(b.driver._sessions["s1"].count())
            b.connect(FakeSwitch(dpid=1))
            with pytest.raises(ChannelError, match="closed"):
                await asyncio.wait_for(asked, channel.ANSWER_S / 2)
            switch.answering.set()

    asyncio.run(scenario())


def test_final_counts_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_counts, "MAX_FINAL_COUNTS", 100)
    counts = flow_counts.FlowCounts()
    for number in range(1000):
        rule = Rule(samples.COOKIE, Table.CLASS, 1000, match(eth_type=0x0800, metadata=number))
        counts.add(rule, 1, 1)
        counts.add(rule, 1, 1)
    assert list(counts.by_pair.values()) == [(2, 2)] * 100


def test_errors_that_nobody_asked_for_are_not_kept() -> None:
    async def scenario() -> None:
        async with bench() as b:
            b.driver.install(1, [])
            peer = await RawPeer.identified(b, dpid=1)
            await b.until(lambda: b.events)
            error = struct.pack("!HH", ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL)
            experimenter = struct.pack("!HHI", ofp.OFPET_EXPERIMENTER, 1, 2)
            for xid in range(1000, 1100):
                peer.writer.write(frame(ofp.OFPT_ERROR, error, xid=xid) + frame(ofp.OFPT_ERROR, experimenter, xid=xid))
            peer.writer.write(frame(ofp.OFPT_ECHO_REQUEST))
            await peer.request(ofp.OFPT_ECHO_REPLY)
            assert b.driver._sessions["s1"]._refused == {}
            peer.writer.close()

    asyncio.run(scenario())
