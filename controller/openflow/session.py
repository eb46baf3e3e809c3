"""Reconciles one connected switch with its target: read, compare, change, wait for the barrier, read again now and then.

Open vSwitch's userspace datapath adds packets to a rule's counters only when its revalidator passes (every 500 ms, and at any
change of a table), and then to the rule that matches *by then*. Hence two waits: before the rules of a connection, whose
packets meet other rules so far, an unchanged rule is written again, which makes the revalidator pass, so that what was
counted reaches the rules that were in force; and a rule without purpose is removed only when no packet has met it for a
while, see `controller.openflow.held_rules`. A change of class needs no such wait: packets say which class they were marked
with; a host that keeps marking with a class that its job has lost has it for no longer than that.

What grows with the rules is done in slices, of which all switches together have one in a turn of the event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from controller.event_loop.time_slices import TimeSlices, batched
from controller.limited_log import LimitedLog
from controller.openflow import held_rules, wire
from controller.openflow.capabilities_question import ask_capabilities
from controller.openflow.channel import Channel, RefusedError, describe
from controller.openflow.flow_counts import FlowCounts, added
from controller.openflow.forms import RuleForm
from controller.openflow.frames import RuleChanges
from controller.openflow.held_rules import HeldRules, Wanted
from controller.openflow.meters import RateMeter
from controller.openflow.reports import SwitchChanges, SwitchEvent, SwitchInstalled
from controller.openflow.rule_watch import RuleWatch, WatchRation
from controller.openflow.rules import ACCESS_RULE, HARD_S, Rule, RuleKey, Slot, Table
from controller.openflow.survey import Survey
from controller.openflow.switch_target import NOBODY, FormCalls, SwitchTarget, UnknownNeighbours

FLUSH_S = 0.02
AUDIT_S = HARD_S / 5
RETRY_S = 5.0

BATCH = 128  # messages written in one turn of the loop: some 10 ms


@dataclass(frozen=True)
class _Refusal:
    """A change that a switch has refused. kind: the error's type and code."""

    reason: str
    kind: tuple[int, int]


class SwitchSession:
    """One switch from its connecting to its loss.

    final: takes the counts of removed rules. report: called with every generation that is installed. term: of the controller's
    leadership: the switch obeys the latest leader alone. outdo: returns a later term than one that a switch has obeyed, or
    raises `RefusedError`. turns: of all switches. limited: the log of what switches refuse. survey: of the network, if there
    is one. ration: of all switches, one of its own if there is none. forms: are told what the switch can hold.
    """

    def __init__(
        self,
        switch: str,
        channel: Channel,
        final: FlowCounts,
        report: Callable[[SwitchEvent], None],
        term: int,
        outdo: Callable[[int], Awaitable[int]],
        turns: TimeSlices,
        limited: LimitedLog,
        survey: Survey | None = None,
        ration: WatchRation | None = None,
        forms: FormCalls = FormCalls(),  # noqa: B008  # It is frozen.
    ) -> None:
        self._switch = switch
        self._survey = survey
        self._turns = turns
        self._term = term
        self._outdo = outdo
        self._limited = limited
        self._channel = channel
        self._final = final
        self._report = report
        self._target: SwitchTarget | None = None
        self._installed: int | None = None
        self._unknown = NOBODY  # as of the target
        self._dependent = set[Slot]()  # What was wanted there depends on these neighbours.
        self._form: RuleForm | None = None  # of the generation that was reported last, unless the target's is another one
        self._held = HeldRules()
        self._meters: dict[int, RateMeter] = {}
        self._asked: set[int] = set()  # the transactions whose refusals are of interest
        self._refused: dict[int, _Refusal] = {}
        self._forms = forms
        self._is_full = False  # It is set while rules that have lost their purpose have to make room.
        self._audit_at = 0.0
        self._meters_at = 0.0
        self._ration = ration or WatchRation()
        self._questions = self._ration.questions
        self._watch = RuleWatch(switch, channel, turns, self._ration, survey)
        self._wake = asyncio.Event()
        self._awaited: list[asyncio.Future[None]] = []  # Callers that wait until the switch is at its target.
        channel.on_message = self._on_message

    def set_target(self, target: SwitchTarget | None, changed: Iterable[Slot] | None) -> None:
        """Replace the target; None: the switch is left as it is.

        changed: the slots in which it differs from the one before, None where that may be any.
        """
        self._target = target
        if target is None or target.unknown is not self._unknown:
            self._unknown = NOBODY if target is None else target.unknown
            self._held.mark_dirty(self._dependent)
            self._dependent = set()
        if target is None or target.form != self._form:
            self._installed = None
            if self._form is not None:
                self._form = None
                self._report(SwitchChanges(self._switch))
        self._held.mark_dirty(changed)
        self._wake.set()

    async def run(self) -> None:
        """Keep the switch at its target. Raises `ChannelError` when it is gone, `RefusedError` where a later leader has it."""
        loop = asyncio.get_running_loop()
        await self._lead()
        await self._forms.answered(await ask_capabilities(self._switch, self._channel, self._questions))
        if self._survey is not None:
            await self._survey.joined(self._switch, self._channel)
        while True:
            if loop.time() >= self._audit_at:
                await self._audit(loop.time())
            elif self._target is not None and loop.time() >= self._watch.at:
                await self._look(loop.time())
            self._wake.clear()
            awaited, self._awaited = self._awaited, []
            wake_at = await self._step(loop.time())
            for caller in awaited:
                if not caller.done():  # A future is done if its caller has given up waiting.
                    caller.set_result(None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._wake.wait()

    def at_target(self) -> asyncio.Future[None]:
        """Return what is done once the switch has taken in, or refused, its present target; never where it is gone."""
        reached = asyncio.get_running_loop().create_future()
        self._awaited.append(reached)
        self._wake.set()
        return reached

    async def count(self) -> tuple[FlowCounts, FlowCounts]:
        """Return the counts of the rules in force, and of those removed by the time of that reading."""
        live = FlowCounts()
        read = await self._read_rules(Table.CLASS)
        final = self._final.copy()  # Rules that are removed from now on are in the reading as well.
        await self._turns.do(added(live, read))
        return live, final

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
        self._held.begin_reading()
        read = await self._read_rules()
        await self._turns.do(self._held.replace(rule for rule, _, _ in read))
        self._watch.begin(self._held, now)
        self._meters = await self._read_meters()
        in_use = (r for r in self._held if r.counts and r.key not in self._held.retired and wire.is_ours(r))
        await self._send(partial(wire.renewal, self._channel.datapath), in_use)
        self._audit_at = now + AUDIT_S

    async def _look(self, now: float) -> None:
        """Find what other programs have changed since the last reading: `_step` mends it."""
        await self._watch.look(self._held, now)
        if self._meters and now >= self._meters_at:  # No switch announces their changes.
            self._meters = await self._read_meters()
            self._meters_at = self._ration.next_reading(len(self._meters), now)

    async def _step(self, now: float) -> float:
        """Make the changes that are due; return the time of the next ones, or of the next look."""
        target = self._target
        if target is None:
            return self._audit_at
        metered = await self._give_meters(target.meters)
        wanted: Wanted = target.rules.get if metered else partial(self._without_missing_meter, target.rules)
        if target.unknown:
            wanted = partial(self._as_found, wanted, target.unknown)
        change = await self._turns.do(self._held.compare(wanted, target.rules, now))
        if self._is_full:
            self._is_full = False
            await self._change(wire.removal, [self._held[key] for key in self._held.retired if key in self._held])
        if change.add and not await self._change(wire.addition, change.add):
            self._installed = None
            # The target is another one since the switch has refused this one, or there is something that can make room.
            if self._target is not target or (self._is_full and self._held.retired):
                return now
            self._audit_at = now + RETRY_S
            return self._audit_at
        self._forms.took_all()
        if not metered:
            self._audit_at = now + RETRY_S
        elif target.generation != self._installed and self._target is not None and self._target.form == target.form:
            self._installed, self._form = target.generation, target.form
            self._report(SwitchInstalled(self._switch, target.generation, len(change)))
        if self._survey is not None:
            self._survey.has_rules(self._switch, probes=target.form.ethernet, queues=target.form.queues)
        due = await self._unused([key for key, retired in self._held.retired.items() if retired.due <= now], now)
        # A rule may have become wanted again while counters were read: compare once more before removing.
        if due and not self._wake.is_set():
            await self._change(wire.removal, [self._held[key] for key in due if key in self._held])
            return now
        await self._remove_meters(target.meters)
        return min((self._audit_at, self._watch.at, *(retired.due for retired in self._held.retired.values())))

    async def _read_rules(self, table: int = ofp.OFPTT_ALL) -> list[tuple[Rule, int, int]]:
        """Return our rules on the switch, each with its bytes and packets."""
        read = await self._channel.request(wire.stats_request(self._channel.datapath, table))
        return [each for each in read if isinstance(each[0], Rule)]

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
        place = self._turns.begin()
        for batch in batched(sorted(different, key=lambda meter: meter.id), BATCH):
            await self._channel.drained()
            await self._turns.granted(place)
            self._ask(
                wire.meter_change(datapath, meter, ofp.OFPMC_MODIFY if meter.id in self._meters else ofp.OFPMC_ADD)
                for meter in batch
            )
        await self._channel.request(wire.barrier(datapath))
        self._meters = await self._read_meters()
        missing = [meter for meter in different if self._meters.get(meter.id) != meter]
        if missing:
            reasons = sorted({refusal.reason for refusal in self._refused.values()})
            what = {"switch": self._switch, "meters": len(missing), "reasons": reasons}
            self._limited.error("switch holds no such meters", self._switch, tuple(reasons), **what)
        return not missing

    def _without_missing_meter(self, rules: Mapping[Slot, Rule], slot: Slot) -> Rule | None:
        """Let a rule go without a meter that the switch does not have: its class is more than nothing."""
        rule = rules.get(slot)
        return rule if rule is None or rule.meter is None or rule.meter in self._meters else replace(rule, meter=None)

    def _as_found(self, wanted: Wanted, unknown: UnknownNeighbours, slot: Slot) -> Rule | None:
        """Leave what depends on switches that are not known yet."""
        rule, depends = unknown.as_found(wanted(slot), slot, self._held.at(slot))
        if depends:
            self._dependent.add(slot)
        return rule

    async def _remove_meters(self, wanted: frozenset[RateMeter]) -> None:
        """Remove the meters that neither the target nor any rule still there refers to."""
        unwanted = self._meters.keys() - {meter.id for meter in wanted}
        in_use = {rule.meter for rule in self._held} if unwanted else set()
        unused = [self._meters.pop(number) for number in sorted(unwanted - in_use)]
        await self._send(partial(wire.meter_change, self._channel.datapath, command=ofp.OFPMC_DELETE), unused)
        if unused:
            await self._channel.request(wire.barrier(self._channel.datapath))

    async def _unused(self, keys: list[RuleKey], now: float) -> list[RuleKey]:
        """Return those of the retired rules that no packet has met since the last reading, or that are `LINGER_S` old."""
        counting = {key for key in keys if key in self._held and self._held[key].counts}
        if not counting:
            return keys
        packets = {rule.key: count for rule, _, count in await self._read_rules(Table.CLASS)}
        unused = []
        place = self._turns.begin()
        for some in batched(keys, BATCH):
            await self._turns.granted(place)
            for key in some:
                before, count = self._held.retired.get(key), packets.get(key)
                if before is None:
                    continue  # The rule timed out while an answer was awaited, or is wanted again.
                if key not in counting or count == before.packets or before.since + held_rules.LINGER_S <= now:
                    unused.append(key)
                else:
                    self._held.retired[key] = replace(before, idle_since=now, packets=count)
        return unused

    async def _change(self, message: Callable[[Any, Rule], Any], rules: Sequence[Rule]) -> bool:
        """Send one message per rule and wait for the barrier; return whether the switch took them all."""
        datapath = self._channel.datapath
        if message is wire.addition and ACCESS_RULE.key in self._held and any(rule.table == Table.ADMISSION for rule in rules):
            self._channel.send(wire.renewal(datapath, ACCESS_RULE))
            await self._channel.request(wire.barrier(datapath))
            await asyncio.sleep(FLUSH_S)
        self._asked, self._refused = set(), {}
        sent: dict[int, Rule] = {}
        place = self._turns.begin()
        for batch in batched(rules, BATCH):
            await self._channel.drained()
            await self._turns.granted(place)
            sent |= zip(self._ask(message(datapath, rule) for rule in batch), batch, strict=True)
            for rule in batch:
                if message is wire.removal:
                    self._held.pop(rule.key)
                else:
                    self._held.put(rule)
        await self._channel.request(wire.barrier(datapath))
        refused = sorted(sent.keys() & self._refused.keys())
        for xid in refused:
            self._held.lose(sent[xid].key)
        if refused:
            reasons = sorted({self._refused[xid].reason for xid in refused})
            what = {"switch": self._switch, "rules": len(refused), "reasons": reasons, "first": sent[refused[0]]}
            self._limited.error("switch refused rules", self._switch, tuple(reasons), **what)
            if message is wire.addition:
                await self._report_refusals({sent[xid].key: (sent[xid], self._refused[xid].kind) for xid in refused})
        return not refused

    async def _report_refusals(self, refused: Mapping[RuleKey, tuple[Rule, tuple[int, int]]]) -> None:
        """Tell which rules were refused for what they are, or as a table is full: another form may do without them."""
        kinds = [rule for rule, kind in refused.values() if kind in wire.UNSUPPORTED]
        full = {rule.table for rule, kind in refused.values() if kind == wire.TABLE_FULL}
        if kinds or full:
            held = Counter(rule.table for rule in self._held)
            before = self._target
            fits = await self._forms.refused(kinds, {table: held[table] for table in full})
            # What has lost its purpose may still forward. It is given up only for a form that was tried, and then has room.
            self._is_full = bool(full) and fits and self._target is before

    async def _send(self, message: Callable[[Any], Any], about: Iterable[Any]) -> None:
        """Send one message about each of many things."""
        place = self._turns.begin()
        for batch in batched(about, BATCH):
            await self._channel.drained()
            await self._turns.granted(place)
            self._channel.send(*map(message, batch))

    def _ask(self, messages: Iterable[Any]) -> list[int]:
        """Send changes and return their transactions, whose refusals are of interest."""
        xids = self._channel.send(*messages)
        self._asked.update(xids)
        return xids

    def _on_message(self, message: Any) -> None:
        """Take in a message that answers no request."""
        if isinstance(message, parser.OFPErrorMsg):
            if message.xid in self._asked:
                self._refused[message.xid] = _Refusal(describe(message), (message.type, message.code))
        elif isinstance(message, parser.OFPFlowRemoved) and (rule := wire.removed(message)) and rule.counts:
            self._final.add(rule, message.byte_count, message.packet_count)
            # A rule that Beamer removed is no longer present; any other timed out, or was removed, and may still be wanted.
            if self._held.lose(rule.key):
                self._watch.deleted += message.reason == ofp.OFPRR_DELETE
                self._wake.set()
        elif isinstance(message, RuleChanges):
            if message.by_others:
                self._watch.announced(asyncio.get_running_loop().time())
                self._wake.set()
        elif self._survey is not None:
            self._survey.take(self._switch, message)
