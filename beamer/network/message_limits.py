"""What a receiver of the agents' protocol takes at most, as its sender respects it. Pure.

A message that its receiver refused would end the connection, again and again, and with it everything else on that host. So a
sender leaves out what is beyond the receiver's limits. Of connections and workers each owner has an equal share of a limit, and
what some do not need the others have (max-min fairness, Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): one worker
with many connections displaces those of no other. What is left out is counted, and its workers are named to the controller.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from beamer.errors import InputError
from beamer.network.connection import Connection
from beamer.network.protocol import (
    Assignment,
    AssignmentLimits,
    Connections,
    Counters,
    LocalWorker,
    Message,
    ReportLimits,
    WorkerId,
    Workers,
)
from beamer.studies.model import trial_key

Fitting = TypeVar("Fitting", bound=Message)
Owner = TypeVar("Owner", bound=Hashable)

REPORT_LIMITS_OF_VERSION_1 = ReportLimits(message_bytes=1024 * 1024, connections=4096, leases=1024, ports=1024, classes=64)
"""What a controller of 0.1.0 takes unless its site has set other limits: it does not say so."""

_SHRINK = 0.9  # A part is cut shorter by this factor than its length suggests, as its entries differ in length.
PARTS: Mapping[type[Message], Mapping[str, str]] = {
    Workers: {"refused": "leases", "gone": "leases", "leases": "leases"},
    Connections: {"unmatched_bytes": "connections", "connections": "connections"},
    Counters: {"workers": "leases", "ports": "ports"},
    Assignment: {"connections": "connections", "workers": "workers", "addresses": "addresses", "ports": "ports"},
}
"""What a message has several of, with the name of its limit: of a message that is too long the first ones are cut first."""


@dataclass(frozen=True)
class FittedReport:
    """A report that its receiver takes.

    left_out: how many entries the whole one has beyond it, by part. workers: whose lease, or some of whose connections, it
    leaves out, and why, as `Workers.refused` has it.
    """

    report: Message
    left_out: Mapping[str, int] = field(default_factory=dict)
    workers: Mapping[WorkerId, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FittedAssignment:
    """An assignment that its agent takes. message: as it is sent. left_out: as of a report, by part; `caps` of jobs."""

    message: str
    left_out: Mapping[str, int] = field(default_factory=dict)


def fitted(report: Message, limits: ReportLimits) -> FittedReport:
    """Return as much of an agent's report as its controller takes."""
    whole, classes_left_out = report, 0
    report = _within_counts(report, limits)
    if isinstance(report, Counters):
        report, classes_left_out = _with_fewer_classes(report, limits.classes)

    def marked(cut: Message) -> Message:
        left_out = _left_out(whole, cut) | ({"classes": classes_left_out} if classes_left_out else {})
        return cut.model_copy(update={"left_out": left_out}) if left_out else cut

    report = marked(_within_bytes(report, limits.message_bytes, lambda cut: marked(cut).model_dump_json()))
    left_out: Mapping[str, int] = getattr(report, "left_out", {})
    return FittedReport(report, left_out, _left_out_workers(whole, report, limits))


def fitted_assignment(
    assignment: Assignment, limits: AssignmentLimits, encoded: Callable[[Assignment], str]
) -> FittedAssignment:
    """Return as much of an assignment as its agent takes. encoded: returns it as it is sent.

    Jobs lose their caps before ports lose their queues: without its cap a class still has its place in the order. Raises
    `InputError` where nothing of it is short enough.
    """
    whole, left_out = assignment, dict[str, int]()
    if class_count(assignment) > limits.classes:
        left_out["caps"] = len({worker.job for worker in assignment.workers if worker.cap_bps is not None})
        uncapped = tuple(worker.model_copy(update={"cap_bps": None}) for worker in assignment.workers)
        most_ports = limits.classes // (assignment.queues + 2)
        assignment = assignment.model_copy(update={"workers": uncapped, "ports": assignment.ports[:most_ports]})
    assignment = _within_counts(assignment, limits)
    message = encoded(assignment)
    if len(message.encode()) > limits.message_bytes:
        assignment = _within_bytes(assignment, limits.message_bytes, encoded)
        message = encoded(assignment)
    check_assignment(assignment, message, limits)
    counts = left_out | _left_out(whole, assignment)
    return FittedAssignment(message, {name: count for name, count in counts.items() if count})


def class_count(assignment: Assignment) -> int:
    """Return how many classes an assignment makes on all ports of its agent together."""
    capped = len({worker.job for worker in assignment.workers if worker.cap_bps is not None})
    return sum(assignment.queues + 2 + (capped if port.classify == "mark" else 0) for port in assignment.ports)


def check_assignment(assignment: Assignment, message: str, limits: AssignmentLimits) -> None:
    """Check that an agent takes an assignment. message: as it would be sent. Raises `InputError` that names the limit."""
    for name in ("ports", "workers", "connections", "addresses"):
        _at_most(name, len(getattr(assignment, name)), getattr(limits, name), "of them in an assignment")
    _at_most("classes", class_count(assignment), limits.classes, "on all ports together")
    _at_most("message_bytes", len(message.encode()), limits.message_bytes, "bytes in a message")


def _at_most(name: str, size: int, limit: int, what: str) -> None:
    if size > limit:
        raise InputError(name, size, f"at most {limit} {what}, as the agent says")


def fair_shares(wanted: Mapping[Owner, int], limit: int) -> dict[Owner, int]:
    """Return how many of `limit` places each owner has, so that nobody has fewer for another's sake who has more."""
    shares: dict[Owner, int] = {}
    left = limit
    # Equal counts keep their order.
    for place, (owner, count) in enumerate(sorted(wanted.items(), key=lambda entry: entry[1])):
        shares[owner] = min(count, left // (len(wanted) - place))
        left -= shares[owner]
    return shares


def _within_counts(message: Fitting, limits: ReportLimits | AssignmentLimits) -> Fitting:
    for name, limit in PARTS.get(type(message), {}).items():
        message = _shortened(message, name, getattr(limits, limit))
    return message


def _within_bytes(message: Fitting, most_bytes: int, encoded: Callable[[Fitting], str]) -> Fitting:
    """Return a message without what makes it too long, part by part. encoded: returns it as it is sent."""

    def size_of(one: Fitting) -> int:
        return len(encoded(one).encode())

    for name in PARTS.get(type(message), {}):
        while (size := size_of(message)) > most_bytes and (count := len(getattr(message, name))):
            rest = size_of(_shortened(message, name, 0))
            kept = int(count * (most_bytes - rest) / (size - rest) * _SHRINK) if rest < most_bytes else 0
            message = _shortened(message, name, min(kept, count - 1))
    return message


def _shortened(message: Fitting, name: str, limit: int) -> Fitting:
    entries = getattr(message, name)
    if len(entries) <= limit:
        return message
    return message.model_copy(update={name: _selected(entries, limit)})


def _selected(entries: Any, limit: int) -> Any:
    """Return as many entries of a part, in their order: of each owner the first ones, which stay the same in later messages."""
    if isinstance(entries, dict):
        return dict(list(entries.items())[:limit])
    if not (entries and isinstance(entries[0], Connection | LocalWorker)):
        return entries[:limit]
    shares = fair_shares(Counter(map(_owner, entries)), limit)
    kept = set[int]()
    for place in sorted(range(len(entries)), key=lambda place: _is_local(entries[place])):
        owner = _owner(entries[place])
        if shares[owner]:
            shares[owner] -= 1
            kept.add(place)
    return tuple(entry for place, entry in enumerate(entries) if place in kept)


def _owner(entry: Connection | LocalWorker) -> Hashable:
    """Return who shares a limit with others: the workers of a host by their connections, jobs by their workers."""
    return (entry.job, entry.rank) if isinstance(entry, Connection) else entry.job


def _is_local(entry: Connection | LocalWorker) -> bool:
    """Return whether an entry is a connection within a host, which no switch carries: it is left out first."""
    return isinstance(entry, Connection) and entry.is_local


def _left_out(whole: Message, cut: Message) -> dict[str, int]:
    """Return how many entries a message has fewer than the whole one, by part."""
    counts = {name: len(getattr(whole, name)) - len(getattr(cut, name)) for name in PARTS.get(type(whole), {})}
    return {name: count for name, count in counts.items() if count}


def _left_out_workers(whole: Message, cut: Message, limits: ReportLimits) -> dict[WorkerId, str]:
    """Return whose entries are left out, and why: in words that stay the same while numbers change."""
    match whole, cut:
        case Workers(leases=leases), Workers(leases=kept):
            what, most = "leases", limits.leases
            missing = [WorkerId(job=trial_key(one.study, one.trial), rank=one.rank) for one in leases[len(kept) :]]
        case Connections(connections=connections), Connections(connections=kept_ones):
            what, most = "connections", limits.connections
            fewer = Counter((one.job, one.rank) for one in connections) - Counter((one.job, one.rank) for one in kept_ones)
            missing = [WorkerId(job=job, rank=rank) for job, rank in fewer]
        case _:
            return {}
    reason = f"this agent has more {what} than the controller takes, {most} in {limits.message_bytes} bytes"
    return dict.fromkeys(missing, reason)


def _with_fewer_classes(report: Counters, limit: int) -> tuple[Counters, int]:
    """Return a report with no more classes of a port than `limit`, and how many were left out."""
    beyond = sum(max(0, len(port.classes) - limit) for port in report.ports)
    if not beyond:
        return report, 0
    ports = tuple(port.model_copy(update={"classes": port.classes[:limit]}) for port in report.ports)
    return report.model_copy(update={"ports": ports}), beyond
