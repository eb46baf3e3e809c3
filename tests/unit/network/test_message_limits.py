"""What a receiver takes at most: an assignment beyond it is refused by name, a report beyond it is cut."""

import pytest

from beamer.errors import InputError
from beamer.network.connection import Connection
from beamer.network.message_limits import check_assignment, class_count, fitted
from beamer.network.protocol import (
    Applied,
    Assignment,
    AssignmentLimits,
    ClassCounter,
    Connections,
    Counters,
    LocalWorker,
    Port,
    PortCounters,
    ReportLimits,
    WorkerBytes,
    WorkerId,
    WorkerLease,
    Workers,
)
from beamer.studies.model import Process

TAKES = AssignmentLimits(message_bytes=100_000, ports=2, workers=3, connections=4, addresses=5, classes=25)
WORKER = LocalWorker(job="s/t", rank=0, process=Process(9), klass=0)
CAPPED = WORKER.model_copy(update={"cap_bps": 1})
REPORTS = ReportLimits(message_bytes=100_000, connections=4, leases=3, ports=2, classes=2)
COUNTER = ClassCounter(klass=0, sent_bytes=1, sent_packets=1, dropped_packets=0, backlog_bytes=0)


def connection(port: int) -> Connection:
    return Connection("s/t", 0, "10.0.0.1", port, "10.0.0.2", 9)


def port(name: str) -> Port:
    return Port(interface=name, rate_bps=1000, classify="mark")


@pytest.mark.parametrize(
    ("assignment", "named"),
    [
        (Assignment(generation=1, queues=1, ports=tuple(port(f"e{n}") for n in range(3))), "ports: got 3, expected at most 2"),
        (Assignment(generation=1, workers=(WORKER,) * 4), "workers: got 4, expected at most 3"),
        (Assignment(generation=1, connections=tuple(connection(n) for n in range(1, 6))), "connections: got 5.* at most 4"),
        (Assignment(generation=1, addresses=("10.0.0.1",) * 6), "addresses: got 6, expected at most 5"),
        (
            Assignment(
                generation=1, ports=(port("e0"),), workers=tuple(WORKER.model_copy(update={"cap_bps": 1}) for _ in "ab")
            ),
            None,
        ),
        (Assignment(generation=1, queues=12, ports=(port("e0"), port("e1"))), "classes: got 28, expected at most 25"),
    ],
)
def test_an_assignment_is_checked_against_what_its_agent_takes(assignment: Assignment, named: str | None) -> None:
    if named is None:
        check_assignment(assignment, assignment.model_dump_json(), TAKES)
        return
    with pytest.raises(InputError, match=f"^{named}.* as the agent says"):
        check_assignment(assignment, assignment.model_dump_json(), TAKES)


def test_an_assignment_is_no_longer_than_its_agent_takes() -> None:
    with pytest.raises(InputError, match="message_bytes: got 100001, expected at most 100000"):
        check_assignment(Assignment(generation=1), "x" * 100_001, TAKES)


def test_classes_are_counted_as_they_are_made() -> None:
    capped = tuple(WORKER.model_copy(update={"job": f"s/{n}", "cap_bps": 1}) for n in range(2))
    by_dscp = Port(interface="e1", rate_bps=1000, classify="dscp")
    assert class_count(Assignment(generation=1, queues=3, ports=(port("e0"), by_dscp), workers=(*capped, WORKER))) == 5 + 2 + 5


def test_a_report_within_the_limits_is_sent_as_it_is() -> None:
    for report in (
        Applied(generation=1, changes=0),
        Connections(connections=tuple(connection(n) for n in range(1, 5))),
        Workers(gone=(WorkerId(job="s/t", rank=0),) * 3),
        Counters(at_s=1.0, ports=(PortCounters(interface="e0", classes=(COUNTER,) * 2),) * 2),
    ):
        assert (fitted(report, REPORTS).report, fitted(report, REPORTS).left_out) == (report, ())


def test_of_a_longer_report_the_first_entries_are_sent_and_the_rest_is_said() -> None:
    lease = WorkerLease(study="s", trial="t", rank=0, process=Process(9))
    workers = fitted(Workers(leases=(lease,) * 5, refused=((WorkerId(job="s/t", rank=0), "why"),) * 4), REPORTS)
    assert workers.report == Workers(leases=(lease,) * 3, refused=((WorkerId(job="s/t", rank=0), "why"),) * 3)
    assert workers.left_out == ("2 of 5 leases: the controller takes 3", "1 of 4 refused: the controller takes 3")
    seen = fitted(
        Connections(connections=tuple(connection(n) for n in range(1, 8)), unmatched_bytes={f"s/{n}": n for n in range(6)}),
        REPORTS,
    )
    assert seen.report == Connections(
        connections=tuple(connection(n) for n in range(1, 5)), unmatched_bytes={f"s/{n}": n for n in range(4)}
    )
    counted = fitted(
        Counters(
            at_s=1.0,
            ports=tuple(PortCounters(interface=f"e{n}", classes=(COUNTER,) * 3) for n in range(3)),
            workers=(WorkerBytes(job="s/t", rank=0, sent_bytes=1),) * 4,
        ),
        REPORTS,
    )
    assert counted.report == Counters(
        at_s=1.0,
        ports=tuple(PortCounters(interface=f"e{n}", classes=(COUNTER,) * 2) for n in range(2)),
        workers=(WorkerBytes(job="s/t", rank=0, sent_bytes=1),) * 3,
    )
    assert len(counted.left_out) == 3


def test_the_workers_that_are_left_out_are_named() -> None:
    leases = tuple(WorkerLease(study="s", trial=f"t{n}", rank=n, process=Process(9 + n)) for n in range(5))
    assert fitted(Workers(leases=leases), REPORTS).workers == {
        WorkerId(job=f"s/t{n}", rank=n): "the controller takes 3 of this agent's 5 leases" for n in (3, 4)
    }
    several = tuple(Connection("s/t", n, "10.0.0.1", 1 + n, "10.0.0.2", 9) for n in range(6))
    assert fitted(Connections(connections=several), REPORTS).workers == {
        WorkerId(job="s/t", rank=n): "the controller takes 4 of this agent's 6 connections" for n in (4, 5)
    }
    assert fitted(Workers(leases=leases[:3]), REPORTS).workers == {}


def test_a_report_is_cut_until_its_message_fits() -> None:
    limits = REPORTS.model_copy(update={"message_bytes": 1000, "connections": 100})
    cut = fitted(Connections(connections=tuple(connection(n) for n in range(1, 51))), limits)
    assert isinstance(cut.report, Connections)
    assert 0 < len(cut.report.connections) < 10
    assert len(cut.report.model_dump_json()) <= 1000
    assert "in 1000 bytes" in cut.left_out[0]


def test_what_cannot_be_cut_is_sent_as_it_is() -> None:
    limits = REPORTS.model_copy(update={"message_bytes": 1})
    assert fitted(Workers(), limits).report == Workers()
