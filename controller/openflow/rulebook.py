"""The rules and meters that every switch should hold, kept job by job: a change of the plan costs the jobs that it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.connection import FourTuple
from beamer.network.fabric import Fabric
from controller.event_loop.time_slices import CHEAP, Work, batched
from controller.openflow.meters import RateMeter, meter_ids
from controller.openflow.rules import HostPair, JobRules, Rule, Slot, connection_rule, family_of, pair_rules

BySwitch = dict[str, dict[Slot, Rule]]
Change = Mapping[str, Mapping[Slot, Rule | None]]
"""By switch, the slots in which another rule is wanted than before, or none any more."""

Sender = tuple[int, int]
"""A job's registration number and the position of a host in `Fabric.hosts`."""


@dataclass(frozen=True)
class _Entry:
    """A job with the rules of those of its connections that no later job claims."""

    job: JobRules
    rules: BySwitch = field(default_factory=dict)


class RuleBook:
    """What the switches of a fabric should hold beside the rules that no plan changes.

    A connection whose ends are not two hosts of the fabric has no rules. One that several jobs claim is the latest job's.
    """

    def __init__(self, fabric: Fabric, codepoints: Codepoints = LOCAL) -> None:
        self._fabric = fabric
        self._codepoints = codepoints
        self._position = fabric.position_at
        self._position_of = {host.name: i for i, host in enumerate(fabric.hosts)}
        self._entries: dict[int, _Entry] = {}
        self._claims: dict[FourTuple, tuple[int, ...]] = {}  # the jobs that claim a connection, the latest last
        self._meters: dict[Sender, int] = {}

    def change(self, jobs: Sequence[JobRules]) -> Work[Change]:
        """Take in the jobs that there are now, and return what that changes; to be done to its end, one after the other."""
        wanted = {job.seq: job for job in jobs}
        known = ((seq, entry.job, wanted.get(seq)) for seq, entry in self._entries.items())
        altered = [seq for seq, before, now in known if before is not now and before != now]
        altered += [seq for seq in wanted if seq not in self._entries]
        yield 1 + len(wanted) // CHEAP
        dirty = dict.fromkeys(altered)
        for seq in altered:
            yield from self._claim(seq, wanted.get(seq), dirty)
        meters = self._meter_ids(jobs)
        dirty |= dict.fromkeys(seq for seq, _ in dict(meters.items() ^ self._meters.items()))
        self._meters = meters
        before: BySwitch = {name: {} for name in self._fabric.switch}
        after: BySwitch = {name: {} for name in self._fabric.switch}
        for seq in dirty:
            _add(before, self._entries.pop(seq).rules if seq in self._entries else {})
            if seq in wanted:
                self._entries[seq] = entry = _Entry(wanted[seq])
                yield from self._write(entry)
                _add(after, entry.rules)
        found: dict[str, dict[Slot, Rule | None]] = {}
        for switch in self._fabric.switch:
            found[switch] = {}
            yield from _difference(before[switch], after[switch], found[switch])
        return found

    def meters(self) -> dict[str, frozenset[RateMeter]]:
        """Return by switch the meters of the senders that it has to hold to a cap."""
        found: dict[str, set[RateMeter]] = {switch.name: set() for switch in self._fabric.switches}
        for (seq, src), number in self._meters.items():
            host = self._fabric.hosts[src].name
            found[self._fabric.edge_of[host]].add(RateMeter.of(number, self._entries[seq].job.caps[host]))
        return {name: frozenset(meters) for name, meters in found.items()}

    def _claim(self, seq: int, job: JobRules | None, dirty: dict[int, None]) -> Work[None]:
        """Let a job claim its connections and no others; whoever so loses or gets one becomes dirty."""
        before = self._entries[seq].job.connections if seq in self._entries else frozenset()
        after = job.connections if job else frozenset()
        for connection in before ^ after:
            others = tuple(other for other in self._claims.pop(connection, ()) if other != seq)
            claims = tuple(sorted((*others, seq))) if connection in after else others
            if claims:
                self._claims[connection] = claims
            dirty |= dict.fromkeys(others[-1:])
            yield 1

    def _write(self, entry: _Entry) -> Work[None]:
        """Write down the rules of a job."""
        job, written = entry.job, set[tuple[HostPair, int]]()
        for connection in job.connections:
            yield 1
            src, dst = self._position.get(connection[0]), self._position.get(connection[2])
            if self._claims[connection][-1] != job.seq or src is None or dst is None or src == dst:
                continue
            pair = HostPair(job.seq, src, dst)
            switch, rule = connection_rule(self._fabric, connection, pair)
            of_switch = entry.rules.setdefault(switch, {})
            of_switch[rule.slot] = rule
            family = family_of(connection)
            if (pair, family) not in written:
                written.add((pair, family))
                rules = pair_rules(self._fabric, pair, job, self._meters.get((job.seq, src)), self._codepoints, family)
                of_switch.update((rule.slot, rule) for rule in rules)

    def _meter_ids(self, jobs: Sequence[JobRules]) -> dict[Sender, int]:
        senders = ((job.seq, self._position_of[host]) for job in jobs for host in job.caps)
        return meter_ids(senders, len(self._fabric.hosts))


def _add(to: BySwitch, rules: BySwitch) -> None:
    for switch, of_switch in rules.items():
        to[switch].update(of_switch)


def _difference(before: Mapping[Slot, Rule], after: Mapping[Slot, Rule], found: dict[Slot, Rule | None]) -> Work[None]:
    """Find the slots in which two differ, and what they hold afterwards."""
    for slots in batched(dict.fromkeys((*before, *after)), CHEAP):
        found.update((slot, after.get(slot)) for slot in slots if before.get(slot) != after.get(slot))
        yield 1
