"""Notices what other programs change in a switch's tables: as it announces, by numbers, and by reading as often as is cheap.

Open vSwitch announces at once what another connection changes (flow monitors, ONF EXT-187). Any switch counts its rules for
next to nothing, so a rule of Beamer's that was removed, or one of another program's that came, is noticed at the next count
anyway. A rule that was changed in place shows only when all rules are read. That takes some microseconds for each, so that
reading unasked is rationed among all switches that announce nothing. What differs is written again. Other programs' rules are
left alone, and named where packets meet them before Beamer's.
"""

import asyncio
from contextlib import suppress

import structlog

from beamer.log_limit import LogLimit
from controller.event_loop.time_slices import CHEAP, TimeSlices, Work, batched
from controller.limited_log import LINES_AN_HOUR
from controller.openflow import wire
from controller.openflow.channel import Channel, RefusedError
from controller.openflow.held_rules import Deviation, HeldRules
from controller.openflow.questions import Question, Questions
from controller.openflow.rules import Rule
from controller.openflow.survey import Survey

ANNOUNCED_S = 0.2  # What is announced is looked at so much later: changes seldom come alone.
COUNT_S = 2.0
MAX_COUNT_S = 2 * COUNT_S  # where there are many switches
UNHEARD_S = 0.5  # A removal that is to be announced is announced within so long: Open vSwitch takes milliseconds.
COUNTING_S = 4e-4  # of a processor, for asking a switch for its numbers
RULE_S = 8e-6  # of a processor, for reading a rule that was read before and comparing it: 6 microseconds, and room
FIRST_FACTOR = 10  # A rule that is read for the first time takes so much more.
SHARE = 0.01  # Of a processor, the regular readings of all switches together take so much.
ANNOUNCED_SHARE = 0.1  # The same of readings because of announcements, of which one switch has `SHARE`.
AGAIN_S = 1.0  # After such a reading the next one of a switch comes no earlier.
MOST_PAUSE_S = 60.0  # Nor later: by then all is read anyway.
MAX_FOREIGN = 1024  # Of a switch with more rules of other programs these are counted, and not read.
MAX_NAMED = 3  # So many rules of other programs are named in a line.

log = structlog.get_logger("beamer-controller")


class WatchRation:
    """What the watches of all switches share: the time for counting and regular readings, and the lines of the log.

    questions: those that are asked no more.
    """

    def __init__(self) -> None:
        self._counts_at = self._reads_at = self._announced_at = 0.0  # All that was granted before ends then.
        self.lines = LogLimit(LINES_AN_HOUR, 3600.0)
        self.questions = Questions()

    def next_count(self, now: float) -> float:
        """Return when a switch is asked for its numbers next."""
        begins = max(now, self._counts_at)
        self._counts_at = min(begins + COUNTING_S / SHARE, now + MAX_COUNT_S)
        return max(begins, now + COUNT_S)

    def next_reading(self, rules: int, now: float) -> float:
        """Return when so many rules may be read, behind all that were granted before."""
        begins = max(now, self._reads_at)
        self._reads_at = begins + _pause_s(rules)
        return max(begins, now + COUNT_S)

    def may_read(self, rules: int, now: float) -> bool:
        """Take so many rules that are to be read because of an announcement; return whether they may be read now."""
        if now < self._announced_at:
            return False
        self._announced_at = now + rules * RULE_S / ANNOUNCED_SHARE
        return True


class RuleWatch:
    """The watch of one switch while it is connected.

    at: when to look next. deleted: rules whose removal by another program was announced since it was last logged.
    """

    def __init__(
        self, switch: str, channel: Channel, turns: TimeSlices, ration: WatchRation, survey: Survey | None = None
    ) -> None:
        self._switch = switch
        self._channel = channel
        self._turns = turns
        self._ration = ration
        self._survey = survey
        self._read_at: float | None = None
        self._announces: bool | None = None  # It is not known before the switch was asked.
        self._announced = False  # It is set by an announcement until everything has been read.
        self._announced_at = 0.0  # Announcements have everything read no earlier.
        self._counts = True  # It is unset where the switch does not count its rules.
        self._excess = 0  # How many more rules the switch counts than it shows.
        self._unheard = False  # It is set while announcements of removals are awaited.
        self._foreign = 0  # The rules of other programs at the last look.
        self._foreign_at = 0.0  # They are read for their own sake no earlier.
        self._in_the_way: tuple[wire.ForeignRule, ...] = ()
        self.at = 0.0
        self.deleted = 0

    def begin(self, held: HeldRules, now: float) -> None:
        """Take in that everything has been read."""
        self._excess, self._unheard = 0, False
        if self._read_at is None:
            self.at, self._read_at = self._ration.next_count(now), self._ration.next_reading(len(held), now)

    def announced(self, now: float) -> None:
        """Take in that the switch has announced a change of another program's."""
        self._announced = True
        self.at = min(self.at, max(now + ANNOUNCED_S, self._announced_at))

    async def look(self, held: HeldRules, now: float) -> None:
        """Find what others have changed, and take it in.

        To be called after `begin`, while no change of Beamer's is under way. Raises `ChannelError`.
        """
        assert self._read_at is not None
        if self._announces is None:
            await self._subscribe()
        announced = self._announced and now >= self._announced_at and self._ration.may_read(len(held), now)
        self.at = self._ration.next_count(now)
        ours, foreign = await self._count()
        differs = ours is not None and ours != len(held) + self._excess
        came = foreign is not None and foreign != self._foreign and now >= self._foreign_at
        regular = not self._announces and now >= self._read_at
        if regular or differs or came or announced or self._unheard:
            self._announced = False
            new = await self._read(held, ours, foreign, now)
            self._announced_at = now + min(max(AGAIN_S, _pause_s(len(held))), MOST_PAUSE_S)
            if regular:
                self._read_at = self._ration.next_reading(len(held) + FIRST_FACTOR * new, now)
        else:
            self._log_ours(Deviation())

    async def _subscribe(self) -> None:
        """Ask to be told of changes. What changed before is in the numbers that are asked for next, or in the next reading."""
        self._announces = False
        if not self._ration.questions.may_ask(self._switch, Question.CHANGES):
            return
        with suppress(RefusedError), self._ration.questions.asking(self._switch, Question.CHANGES):
            await self._channel.request(wire.announcing(self._channel.datapath))
            self._announces = True

    async def _count(self) -> tuple[int | None, int | None]:
        """Return the numbers of Beamer's rules and of others', None where the switch does not count them."""
        if not self._counts:
            return None, None
        try:
            requests = (wire.count_request(self._channel.datapath, foreign=foreign) for foreign in (False, True))
            ours, every = map(wire.rule_count, await asyncio.gather(*map(self._channel.request, requests)))
        except RefusedError as error:
            self._counts = False
            if self._ration.lines.take((self._switch, "counts")):
                what = "switch does not count its rules, so that it is noticed late what other programs change"
                log.warning(what, switch=self._switch, reason=str(error))
            return None, None
        return ours, max(0, every - ours)

    async def _read(self, held: HeldRules, ours: int | None, foreign: int | None, now: float) -> int:
        """Read all rules of Beamer's, and those of others unless they are too many; return how many were new."""
        with_foreign = foreign is not None and 0 < foreign <= MAX_FOREIGN
        held.begin_reading()
        read = await self._channel.request(wire.stats_request(self._channel.datapath, foreign=with_foreign))
        own = [rule for rule, _, _ in read if isinstance(rule, Rule)]
        deviation = await self._turns.do(held.update(own))
        self._excess = 0 if ours is None else ours - len(held)
        self._unheard = deviation.unheard > 0
        if self._unheard:
            self.at = now + UNHEARD_S
        self._log_ours(deviation)
        if foreign is not None:
            self._foreign_at = now + _pause_s(len(read))
            others = [rule for rule, _, _ in read if isinstance(rule, wire.ForeignRule)]
            await self._take_foreign(len(others) if with_foreign else foreign, others, held)
        return deviation.new

    def _log_ours(self, deviation: Deviation) -> None:
        missing, self.deleted = deviation.missing + self.deleted, 0
        if (missing or deviation) and self._ration.lines.take((self._switch, "ours")):
            what = {"missing": missing, "changed": deviation.changed, "unknown": deviation.unknown}
            log.warning("another program has changed Beamer's rules, which are mended", switch=self._switch, **what)

    async def _take_foreign(self, count: int, rules: list[wire.ForeignRule], held: HeldRules) -> None:
        before, self._foreign = self._foreign, count
        if count > MAX_FOREIGN:
            in_the_way = self._in_the_way
        else:
            lowest = await self._turns.do(_lowest(held)) if rules else {}
            in_the_way = tuple(sorted(rule for rule in rules if rule.priority >= lowest.get(rule.table, 1 << 16)))
        if before == count and in_the_way == self._in_the_way:
            return
        named = tuple(map(str, in_the_way))
        new = in_the_way != self._in_the_way and bool(in_the_way)
        self._in_the_way = in_the_way
        if self._survey is not None:
            self._survey.found_foreign(self._switch, named)
        if not self._ration.lines.take((self._switch, "foreign")):
            return
        if new:
            about = {"in_the_way": len(named), "first": list(dict.fromkeys(named))[:MAX_NAMED]}
            log.warning("rules of other programs come before Beamer's, and are left", switch=self._switch, **about)
        else:
            log.info("other rules of other programs than before", switch=self._switch, before=before, now=count)


def _lowest(held: HeldRules) -> Work[dict[int, int]]:
    """Return the lowest priority of the rules in each table."""
    found: dict[int, int] = {}
    for some in batched(held, CHEAP):
        for rule in some:
            found[rule.table] = min(rule.priority, found.get(rule.table, rule.priority))
        yield 1
    return found


def _pause_s(rules: int) -> float:
    """Return for how long nothing else may be read where so many rules are."""
    return rules * RULE_S / SHARE
