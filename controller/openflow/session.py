"""Reconciles one connected switch with its target: read, compare, change, wait for the barrier, read again now and then.

Open vSwitch's userspace datapath adds packets to a rule's counters only when its revalidator passes (every 500 ms, and at any
change of a table), and then to the rule that matches *by then*. Hence two waits: before the rules of a connection, whose
packets meet other rules so far, an unchanged rule is written again, which makes the revalidator pass, so that what was
counted reaches the rules that were in force; and a rule without purpose is removed only when no packet has met it for
`SETTLE_S`, so that its removal message is complete. A change of class needs no such wait: packets say which class they
were marked with. Some wait for seconds in the queues of their host, so the rule of the class before stays for `LINGER_S`;
a host that keeps marking with a class that its job has lost has it no longer than that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from controller.limited_log import LimitedLog
from controller.openflow import wire
from controller.openflow.channel import Channel, RefusedError, describe
from controller.openflow.meters import RateMeter
from controller.openflow.reconcile import difference
from controller.openflow.reports import SwitchEvent, SwitchInstalled
from controller.openflow.rules import ACCESS_RULE, HARD_S, HostPair, Rule, RuleKey, Table

FLUSH_S = 0.02
SETTLE_S = 1.2  # two readings, further apart than the revalidator's passes
LINGER_S = 15.0
AUDIT_S = HARD_S / 5
RETRY_S = 5.0
MOST_COUNTS = 1 << 17  # pairs and classes per switch whose final counts are kept: some 40 MB; 1000 jobs of 60 pairs

BATCH = 256  # messages written in one turn of the loop: some 20 ms

Item = TypeVar("Item")


@dataclass(frozen=True)
class SwitchTarget:
    """The rules and the meters that one switch should hold, and their generation."""

    generation: int
    rules: frozenset[Rule]
    meters: frozenset[RateMeter] = frozenset()


@dataclass(frozen=True)
class RetiredRule:
    """A rule that has lost its purpose.

    since, idle_since: when it did, when a packet met it last. patience_s: for how long none must have met it before it is
    removed. packets: that have met it.
    """

    since: float
    idle_since: float
    patience_s: float
    packets: int | None = None

    @property
    def due(self) -> float:
        """When to check whether it can be removed."""
        return min(self.idle_since + self.patience_s / 2, self.since + LINGER_S)


@dataclass
class FlowCounts:
    """Bytes and packets by host pair, class and whether the host had marked them with it."""

    by_pair: dict[tuple[HostPair, int, bool], tuple[int, int]] = field(default_factory=dict)

    def add(self, rule: Rule, sent_bytes: int, sent_packets: int) -> None:
        """Add what `rule`, one of a host pair's, has counted; new pairs count no more once there are `MOST_COUNTS`."""
        assert rule.pair is not None
        key = rule.pair, rule.klass, not rule.climbs
        if key not in self.by_pair and len(self.by_pair) >= MOST_COUNTS:
            return
        before_bytes, before_packets = self.by_pair.get(key, (0, 0))
        self.by_pair[key] = before_bytes + sent_bytes, before_packets + sent_packets


class SwitchSession:
    """One switch from its connecting to its loss.

    final: takes the counts of removed rules. report: called with every generation that is installed. clock: Unix seconds.
    term: of the controller's leadership: the switch obeys the latest leader alone. outdo: returns a later term than one that a
    switch has obeyed, or raises `RefusedError`. limited: the log of what switches refuse.
    """

    def __init__(
        self,
        switch: str,
        channel: Channel,
        final: FlowCounts,
        report: Callable[[SwitchEvent], None],
        clock: Callable[[], float],
        term: int,
        outdo: Callable[[int], Awaitable[int]],
        limited: LimitedLog,
    ) -> None:
        self._switch = switch
        self._term = term
        self._outdo = outdo
        self._limited = limited
        self._channel = channel
        self._final = final
        self._report = report
        self._clock = clock
        self._target: SwitchTarget | None = None
        self._installed: int | None = None
        self._present: dict[RuleKey, Rule] = {}
        self._meters: dict[int, RateMeter] = {}
        self._retired: Mapping[RuleKey, RetiredRule] = {}
        self._asked: set[int] = set()  # the transactions whose refusals are of interest
        self._refused: dict[int, str] = {}
        self._audit_at = 0.0
        self._wake = asyncio.Event()
        channel.on_message = self._on_message

    def set_target(self, target: SwitchTarget) -> None:
        """Replace the target."""
        self._target = target
        self._wake.set()

    async def run(self) -> None:
        """Keep the switch at its target. Raises `ChannelError` when it is gone, `RefusedError` where a later leader has it."""
        loop = asyncio.get_running_loop()
        await self._lead()
        while True:
            if loop.time() >= self._audit_at:
                await self._audit(loop.time())
            self._wake.clear()
            wake_at = await self._step(loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._wake.wait()

    async def count(self) -> tuple[FlowCounts, FlowCounts]:
        """Return the counts of the rules in force, and of those removed by the time of that reading."""
        live = FlowCounts()
        for rule, sent_bytes, sent_packets in await self._read_rules(Table.CLASS):
            if rule.counts:
                live.add(rule, sent_bytes, sent_packets)
        return live, self._final

    async def _lead(self) -> None:
        """Have the switch take this controller's changes alone. Raises `RefusedError` where a later leader has it."""
        datapath = self._channel.datapath
        try:
            await self._channel.request(wire.leading(datapath, self._term))
        except RefusedError as error:
            if error.kind != wire.STALE:
                raise
            (known,) = await self._channel.request(wire.role_query(datapath))
            self._term = await self._outdo(known.generation_id)
            await self._channel.request(wire.leading(datapath, self._term))

    async def _audit(self, now: float) -> None:
        """Read what the switch holds and restart the time-outs of pairs that are in use."""
        self._present = {rule.key: rule for rule, _, _ in await self._read_rules()}
        self._meters = await self._read_meters()
        in_use = [r for key, r in self._present.items() if r.counts and key not in self._retired and wire.is_ours(r)]
        for batch in _batches(in_use):
            self._channel.send(*(wire.renewal(self._channel.datapath, rule) for rule in batch))
            await asyncio.sleep(0)
        self._audit_at = now + AUDIT_S

    async def _step(self, now: float) -> float:
        """Make the changes that are due; return the time of the next ones."""
        target = self._target
        if target is None:
            return self._audit_at
        metered = await self._give_meters(target.meters)
        change = difference(self._present.values(), target.rules if metered else self._without_missing_meters(target.rules))
        fresh = change.retire - self._retired.keys()
        in_use = {rule.pair for rule in target.rules if rule.counts}
        self._retired = {
            key: self._retired.get(key, RetiredRule(now, now, _patience_s(self._present[key], in_use))) for key in change.retire
        }
        if change.add and not await self._change(wire.addition, change.add):
            self._audit_at = now + RETRY_S
            return self._audit_at
        if not metered:
            self._audit_at = now + RETRY_S
        elif target.generation != self._installed:
            self._installed = target.generation
            changes = len(change.add) + len(fresh)
            self._report(SwitchInstalled(self._switch, target.generation, changes, self._clock()))
        self._forget_gone()
        due = await self._unused([key for key, retired in self._retired.items() if retired.due <= now], now)
        self._forget_gone()
        # A rule may have become wanted again while counters were read: compare once more before removing.
        if due and not self._wake.is_set():
            await self._change(wire.removal, [self._present[key] for key in due if key in self._present])
            return now
        await self._remove_meters(target.meters)
        return min((self._audit_at, *(retired.due for retired in self._retired.values())))

    async def _read_rules(self, table: int = ofp.OFPTT_ALL) -> list[tuple[Rule, int, int]]:
        """Return our rules on the switch, each with its bytes and packets."""
        return await self._channel.request(wire.stats_request(self._channel.datapath, table), wire.observed)

    async def _read_meters(self) -> dict[int, RateMeter]:
        """Return our meters on the switch; none on one that has no meters at all."""
        try:
            return wire.observed_meters(await self._channel.request(wire.meters_request(self._channel.datapath)))
        except RefusedError:
            return {}

    async def _give_meters(self, wanted: frozenset[RateMeter]) -> bool:
        """Add and change meters, read them back, and return whether the switch has all of them.

        They come before the rules that refer to them, and are removed after these: a switch refuses rules without their meter.
        """
        different = [meter for meter in wanted if self._meters.get(meter.id) != meter]
        if not different:
            return True
        datapath = self._channel.datapath
        self._asked, self._refused = set(), {}
        for batch in _batches(sorted(different, key=lambda meter: meter.id)):
            self._ask(
                (wire.meter_change if meter.id in self._meters else wire.meter_addition)(datapath, meter) for meter in batch
            )
            await asyncio.sleep(0)
        await self._channel.request(wire.barrier(datapath))
        self._meters = await self._read_meters()
        missing = [meter for meter in different if self._meters.get(meter.id) != meter]
        if missing:
            reasons = sorted(set(self._refused.values()))
            what = {"switch": self._switch, "meters": len(missing), "reasons": reasons}
            self._limited.error("switch holds no such meters", self._switch, tuple(reasons), **what)
        return not missing

    def _without_missing_meters(self, rules: frozenset[Rule]) -> frozenset[Rule]:
        """Let rules go without the meters that the switch does not have: their class is more than nothing."""
        return frozenset(
            rule if rule.meter is None or rule.meter in self._meters else replace(rule, meter=None) for rule in rules
        )

    async def _remove_meters(self, wanted: frozenset[RateMeter]) -> None:
        """Remove the meters that neither the target nor any rule still there refers to."""
        in_use = {meter.id for meter in wanted} | {rule.meter for rule in self._present.values()}
        unused = [self._meters.pop(number) for number in sorted(self._meters.keys() - in_use)]
        for batch in _batches(unused):
            self._channel.send(*(wire.meter_removal(self._channel.datapath, meter) for meter in batch))
            await asyncio.sleep(0)
        if unused:
            await self._channel.request(wire.barrier(self._channel.datapath))

    async def _unused(self, keys: list[RuleKey], now: float) -> list[RuleKey]:
        """Return those of the retired rules that no packet has met since the last reading, or that are `LINGER_S` old."""
        counting = {key for key in keys if self._present[key].counts}
        if not counting:
            return keys
        packets = {rule.key: count for rule, _, count in await self._read_rules(Table.CLASS)}
        retired = dict(self._retired)
        unused = []
        for key in keys:
            before, count = retired[key], packets.get(key)
            if key not in counting or count == before.packets or before.since + LINGER_S <= now:
                unused.append(key)
            else:
                retired[key] = replace(before, idle_since=now, packets=count)
        self._retired = retired
        return unused

    def _forget_gone(self) -> None:
        """Forget retired rules that timed out while an answer was awaited."""
        self._retired = {key: retired for key, retired in self._retired.items() if key in self._present}

    async def _change(self, message: Callable[[Any, Rule], Any], rules: Sequence[Rule]) -> bool:
        """Send one message per rule and wait for the barrier; return whether the switch took them all."""
        datapath = self._channel.datapath
        if message is wire.addition and any(rule.table == Table.ADMISSION for rule in rules):
            self._channel.send(wire.renewal(datapath, ACCESS_RULE))
            await self._channel.request(wire.barrier(datapath))
            await asyncio.sleep(FLUSH_S)
        self._asked, self._refused = set(), {}
        sent: dict[int, Rule] = {}
        for batch in _batches(rules):
            sent |= zip(self._ask(message(datapath, rule) for rule in batch), batch, strict=True)
            for rule in batch:
                if message is wire.removal:
                    self._present.pop(rule.key, None)
                else:
                    self._present[rule.key] = rule
            await asyncio.sleep(0)
        await self._channel.request(wire.barrier(datapath))
        refused = sorted(sent.keys() & self._refused.keys())
        for xid in refused:
            self._present.pop(sent[xid].key, None)
        if refused:
            reasons = sorted({self._refused[xid] for xid in refused})
            what = {"switch": self._switch, "rules": len(refused), "reasons": reasons, "first": sent[refused[0]]}
            self._limited.error("switch refused rules", self._switch, tuple(reasons), **what)
        return not refused

    def _ask(self, messages: Iterable[Any]) -> list[int]:
        """Send changes and return their transactions, whose refusals are of interest."""
        xids = self._channel.send(*messages)
        self._asked.update(xids)
        return xids

    def _on_message(self, message: Any) -> None:
        """Take in a message that answers no request."""
        if isinstance(message, parser.OFPErrorMsg):
            if message.xid in self._asked:
                self._refused[message.xid] = describe(message)
        elif isinstance(message, parser.OFPFlowRemoved) and (rule := wire.removed(message)) and rule.counts:
            self._final.add(rule, message.byte_count, message.packet_count)
            # One that Beamer removed is no longer present; any other timed out and may still be wanted.
            if self._present.pop(rule.key, None):
                self._wake.set()


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield items in groups of `BATCH`: the loop turns between them, as writing thousands of messages takes seconds."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _patience_s(rule: Rule, in_use: Collection[HostPair | None]) -> float:
    """Return how long no packet must have met a retired rule: longer where packets with its mark may be in flight."""
    return LINGER_S if rule.counts and not rule.climbs and rule.pair in in_use else SETTLE_S
