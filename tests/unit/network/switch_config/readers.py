"""Each maker's configuration read back, by its syntax alone: what a switch would do that obeyed it."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jinja2

PORTS = ("Ethernet0", "Ethernet4")


@dataclass(frozen=True)
class ReadConfig:
    """What a configuration says.

    queues: the queue of each DSCP, by DSCP. ranks: of each queue, the larger served first; equal ones share a link. named: the
    queues whose scheduler it sets. trusts: whether ports go by DSCP. rewrites: whether it changes marks.
    """

    queues: tuple[int, ...]
    ranks: Mapping[int, int]
    named: frozenset[int]
    trusts: bool
    rewrites: bool


def by_number(strict: set[int]) -> dict[int, int]:
    """Return ranks where strict queues come first, the larger before the smaller, and all others share what is left."""
    return {queue: queue + 1 if queue in strict else 0 for queue in range(8)}


def commands(text: str, comment: str) -> list[str]:
    """Return the lines of a configuration without those of comment."""
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith(comment.rstrip())]


def sonic(text: str) -> ReadConfig:
    """Read a template as `sonic-cfggen -d -t` renders it, for a switch of two ports."""
    tables = json.loads(jinja2.Environment(trim_blocks=True).from_string(text).render(PORT={port: {} for port in PORTS}))
    assert {*tables} == {"DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "SCHEDULER", "PORT_QOS_MAP", "QUEUE"}
    assert {*tables["PORT_QOS_MAP"]} == {*PORTS}
    (bound,) = {tuple(sorted(one.items())) for one in tables["PORT_QOS_MAP"].values()}
    (classes, queues) = (dict(bound)[name] for name in ("dscp_to_tc_map", "tc_to_queue_map"))
    of_class = tables["TC_TO_QUEUE_MAP"][queues]
    of_dscp = {int(dscp): int(of_class[tc]) for dscp, tc in tables["DSCP_TO_TC_MAP"][classes].items()}
    scheduled: dict[str, set[int]] = {port: set() for port in PORTS}
    for key, queue in tables["QUEUE"].items():
        assert tables["SCHEDULER"][queue["scheduler"]] == {"type": "STRICT"}
        port, _, number = key.partition("|")
        scheduled[port].add(int(number))
    (first, second) = scheduled.values()
    assert first == second
    return ReadConfig(
        tuple(of_dscp[dscp] for dscp in range(64)), by_number(first), frozenset(first), "dscp_to_tc_map" in dict(bound), False
    )


def cumulus(text: str) -> ReadConfig:
    """Read commands of NVUE on top of the guide's defaults: DSCP by its upper three bits, queues by DWRR."""
    lines = commands(text, "# ")
    assert lines[-1] == "nv config apply"
    priority = {dscp: dscp >> 3 for dscp in range(64)}
    queue = {number: number for number in range(8)}
    strict: set[int] = set()
    named: set[int] = set()
    trusts = False
    for line in lines[:-1]:
        if found := re.fullmatch(r"nv set qos mapping default-global dscp ([\d,]+) switch-priority (\d)", line):
            priority |= {int(dscp): int(found[2]) for dscp in found[1].split(",")}
        elif found := re.fullmatch(
            r"nv set qos egress-queue-mapping default-global switch-priority (\d) traffic-class (\d)", line
        ):
            queue[int(found[1])] = int(found[2])
        elif found := re.fullmatch(r"nv set qos egress-scheduler default-global traffic-class ([\d,]+) mode strict", line):
            strict |= {int(one) for one in found[1].split(",")}
            named |= strict
        else:
            assert line == "nv set qos mapping default-global trust l3"
            trusts = True
    queues = tuple(queue[priority[dscp]] for dscp in range(64))
    return ReadConfig(queues, by_number(strict), frozenset(named), trusts, False)


def eos(text: str) -> ReadConfig:
    """Read maps and a profile. A queue that has no line keeps its place by its number."""
    of_class = {number: number for number in range(8)}
    traffic_class: dict[int, int] = {}
    strict: set[int] = {7}
    named: set[int] = set()
    block, queue = "", -1
    applied, trusts = set(), False
    for line in commands(text, "! "):
        if found := re.fullmatch(r"qos map dscp ([\d ]+) to traffic-class (\d)", line):
            traffic_class |= {int(dscp): int(found[2]) for dscp in found[1].split()}
        elif found := re.fullmatch(r"qos map traffic-class (\d) to tx-queue (\d)", line):
            assert found[1] != "7", "its queue cannot be changed"
            of_class[int(found[1])] = int(found[2])
        elif found := re.fullmatch(r"qos profile (\w+)|interface (\S+)", line):
            block = found[1] or "interface"
        elif found := re.fullmatch(r"   tx-queue (\d)", line):
            queue = int(found[1])
            assert block == "BEAMER"
            assert queue != 7, "it cannot be configured"
        elif line == "      priority strict":
            strict.add(queue)
            named.add(queue)
        elif found := re.fullmatch(r"   service-profile (\w+)", line):
            assert block == "interface"
            applied.add(found[1])
        elif line == "   qos trust dscp":
            assert block == "interface"
            trusts = True
        else:
            assert line == "no qos rewrite dscp"
    assert applied == {"BEAMER"}
    queues = tuple(of_class[traffic_class[dscp]] for dscp in range(64))
    return ReadConfig(queues, by_number(strict), frozenset(named), trusts, False)


def nxos(text: str) -> ReadConfig:
    """Read classes, groups and both policies."""
    matched: dict[str, list[int]] = {}
    groups: dict[str, int] = {}
    levels: dict[int, int] = {}
    shares: dict[int, int] = {}
    applied = set()
    kind, name, of = "", "", ""
    for line in commands(text, "! "):
        if found := re.fullmatch(r"class-map type qos match-any (\S+)", line):
            kind, name = "class", found[1]
        elif found := re.fullmatch(r"  match dscp ([\d,]+)", line):
            assert kind == "class"
            matched[name] = [int(dscp) for dscp in found[1].split(",")]
        elif found := re.fullmatch(r"policy-map type (qos|queuing) (\S+)", line):
            kind, name = found[1], found[2]
        elif found := re.fullmatch(r"  class (?:type queuing )?(\S+)", line):
            of = found[1]
        elif found := re.fullmatch(r"    set qos-group (\d)", line):
            assert kind == "qos"
            groups[of] = int(found[1])
        elif found := re.fullmatch(r"    (priority level|bandwidth remaining percent) (\d+)", line):
            assert kind == "queuing"
            queue = 0 if of == "c-out-8q-q-default" else int(of.removeprefix("c-out-8q-q"))
            (levels if found[1] == "priority level" else shares)[queue] = int(found[2])
        elif found := re.fullmatch(r"  service-policy type (queuing output|qos input) (\S+)", line):
            applied.add((kind, found[1], found[2]))
        else:
            found = re.fullmatch(r"(system qos|interface) ?\S*", line)
            assert found, line
            kind = found[1]
    assert applied == {("system qos", "queuing output", "BEAMER-OUT"), ("interface", "qos input", "BEAMER-IN")}
    assert {*levels} | {*shares} == {*range(8)}
    assert sum(shares.values()) == 100
    assert sorted(levels) == [*range(min(levels), 8)], "groups of strict priority are the largest, next to each other"
    assert sorted(levels.values()) == [*range(1, len(levels) + 1)]
    known = {dscp: groups[one] for one, dscps in matched.items() for dscp in dscps}
    assert len(known) == sum(map(len, matched.values())), "a DSCP is in two classes"
    ranks = {queue: 9 - levels[queue] if queue in levels else 0 for queue in range(8)}
    return ReadConfig(
        tuple(known.get(dscp, 0) for dscp in range(64)), ranks, frozenset(levels), bool(applied), "set dscp" in text
    )


def junos(text: str) -> ReadConfig:
    """Read statements on top of the forwarding classes that a QFX switch has by itself."""
    number = {"best-effort": 0, "fcoe": 3, "no-loss": 4, "network-control": 7}
    points: dict[int, str] = {}
    priority: dict[str, str] = {}
    scheduler: dict[str, str] = {}
    applied = set()
    for line in commands(text, "# "):
        statement = line.removeprefix("set class-of-service ")
        assert statement != line
        if found := re.fullmatch(r"forwarding-classes class (\S+) queue-num (\d)", statement):
            assert int(found[2]) not in number.values(), "a queue has one class here"
            number[found[1]] = int(found[2])
        elif found := re.fullmatch(
            r"classifiers dscp beamer forwarding-class (\S+) loss-priority low code-points \[ ([01 ]+) \]", statement
        ):
            for one in found[2].split():
                assert points.setdefault(int(one, 2), found[1]) == found[1]
        elif found := re.fullmatch(r"schedulers (\S+) priority (\S+)", statement):
            priority[found[1]] = found[2]
        elif found := re.fullmatch(r"scheduler-maps beamer forwarding-class (\S+) scheduler (\S+)", statement):
            scheduler[found[1]] = found[2]
        else:
            found = re.fullmatch(r"interfaces et-\* (scheduler-map|unit \* classifiers dscp) beamer", statement)
            assert found, line
            applied.add(found[1])
    assert applied == {"scheduler-map", "unit * classifiers dscp"}
    strict = {number[one] for one, name in scheduler.items() if priority[name] == "strict-high"}
    assert {number[one] for one, name in scheduler.items() if priority[name] == "low"} == {*map(number.get, scheduler)} - strict
    queues = tuple(number[points[dscp]] for dscp in range(64))
    return ReadConfig(queues, by_number(strict), frozenset(strict), True, "rewrite-rules" in text)


def aos_cx(text: str) -> ReadConfig:
    """Read the map, the profile of queues, and the schedule profile strict, under which the larger queue comes first."""
    priority: dict[int, int] = {}
    queue: dict[int, int] = {}
    rest = []
    for line in commands(text, "! "):
        if found := re.fullmatch(r"qos dscp-map (\d+) local-priority (\d)", line):
            priority[int(found[1])] = int(found[2])
        elif found := re.fullmatch(r"    map queue (\d) local-priority (\d)", line):
            queue[int(found[2])] = int(found[1])
        else:
            rest.append(line)
    applied = "apply qos queue-profile BEAMER schedule-profile strict"
    assert rest == ["qos queue-profile BEAMER", "qos trust dscp", applied]
    assert {*queue} == {*range(8)}, "a profile is complete when all local priorities have a queue"
    queues = tuple(queue[priority[dscp]] for dscp in range(64))
    return ReadConfig(queues, {one: one for one in range(8)}, frozenset(), True, False)


READERS: Mapping[str, Callable[[str], ReadConfig]] = {
    "aos-cx": aos_cx,
    "cumulus": cumulus,
    "eos": eos,
    "junos": junos,
    "nxos": nxos,
    "sonic": sonic,
}
