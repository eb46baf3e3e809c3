"""What a receiver of the agents' protocol takes at most, as its sender respects it. Pure.

An assignment beyond its agent's limits is not sent. Of a report beyond the controller's, as much is sent as fits: an agent
whose reports were refused would be cut off again and again. The workers that this leaves out are named to the controller.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from beamer.errors import InputError
from beamer.network.protocol import (
    Assignment,
    AssignmentLimits,
    Connections,
    Counters,
    Message,
    ReportLimits,
    WorkerId,
    Workers,
)
from beamer.studies.model import trial_key

T = TypeVar("T")

_SHRINK = 0.9  # by which a report is cut shorter than its length suggests, as its entries differ in length


@dataclass(frozen=True)
class FittedReport:
    """A report that its receiver takes.

    left_out: what the whole one has beyond it, in words. workers: whose lease, or one of whose connections, is left out, and
    why, as `Workers.refused` has it.
    """

    report: Message
    left_out: tuple[str, ...] = ()
    workers: Mapping[WorkerId, str] = field(default_factory=dict)


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


def fitted(report: Message, limits: ReportLimits) -> FittedReport:
    """Return as much of an agent's report as its controller takes: of each part the first entries."""
    left_out: list[str] = []
    whole = report
    for name, limit in _parts(report, limits):
        report = _shortened(report, name, limit, left_out)
    if isinstance(report, Counters):
        report = _with_fewer_classes(report, limits.classes, left_out)
    while (size := len(report.model_dump_json().encode())) > limits.message_bytes:
        parts = [(name, len(getattr(report, name))) for name, _ in _parts(report, limits)]
        if not any(count for _, count in parts):
            break
        for name, count in parts:
            kept = int(count * limits.message_bytes / size * _SHRINK)
            report = _shortened(report, name, kept, left_out, f" in {limits.message_bytes} bytes")
    return FittedReport(report, tuple(left_out), _left_out_workers(whole, report))


def _left_out_workers(whole: Message, cut: Message) -> dict[WorkerId, str]:
    match whole, cut:
        case Workers(leases=all_of_them), Workers(leases=kept):
            reason = f"the controller takes {len(kept)} of this agent's {len(all_of_them)} leases"
            missing = [WorkerId(job=trial_key(one.study, one.trial), rank=one.rank) for one in all_of_them[len(kept) :]]
        case Connections(connections=all_there_are), Connections(connections=kept_ones):
            reason = f"the controller takes {len(kept_ones)} of this agent's {len(all_there_are)} connections"
            missing = [WorkerId(job=one.job, rank=one.rank) for one in all_there_are[len(kept_ones) :]]
        case _:
            return {}
    return dict.fromkeys(missing, reason)


def _parts(report: Message, limits: ReportLimits) -> Iterator[tuple[str, int]]:
    """Yield what a report has several of, and how many there may be."""
    match report:
        case Workers():
            yield from ((name, limits.leases) for name in ("leases", "gone", "refused"))
        case Connections():
            yield from ((name, limits.connections) for name in ("connections", "unmatched_bytes"))
        case Counters():
            yield "ports", limits.ports
            yield "workers", limits.leases


def _shortened(report: Message, name: str, limit: int, left_out: list[str], why: str = "") -> Message:
    entries = getattr(report, name)
    if len(entries) <= limit:
        return report
    left_out.append(f"{len(entries) - limit} of {len(entries)} {name}: the controller takes {limit}{why}")
    return report.model_copy(update={name: _first(entries, limit)})


def _first(entries: "Sequence[T] | dict[str, T]", limit: int) -> "Sequence[T] | dict[str, T]":
    return dict(list(entries.items())[:limit]) if isinstance(entries, dict) else entries[:limit]


def _with_fewer_classes(report: Counters, limit: int, left_out: list[str]) -> Counters:
    most = max((len(port.classes) for port in report.ports), default=0)
    if most <= limit:
        return report
    left_out.append(f"{most - limit} of {most} classes of a port: the controller takes {limit}")
    ports = tuple(port.model_copy(update={"classes": port.classes[:limit]}) for port in report.ports)
    return report.model_copy(update={"ports": ports})
