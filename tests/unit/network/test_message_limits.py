"""What a receiver takes at most: an assignment beyond it is refused by name, a report beyond it is cut."""

from collections import Counter

import pytest

from beamer.errors import InputError
from beamer.network.connection import Connection
from beamer.network.message_limits import (
    FittedAssignment,
    check_assignment,
    class_count,
    fair_shares,
    fitted,
    fitted_assignment,
)
from beamer.network.protocol import (
    PARTS,
    Applied,
    Assignment,
    AssignmentLimits,
    ClassCounter,
    Connections,
    Counters,
    LocalWorker,
    Message,
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
        assert (fitted(report, REPORTS).report, fitted(report, REPORTS).left_out) == (report, {})


def test_of_a_longer_report_the_first_entries_are_sent_and_the_rest_is_counted() -> None:
    lease = WorkerLease(study="s", trial="t", rank=0, process=Process(9))
    workers = fitted(Workers(leases=(lease,) * 5, refused=((WorkerId(job="s/t", rank=0), "why"),) * 4), REPORTS)
    assert workers.report == Workers(
        leases=(lease,) * 3,
        refused=((WorkerId(job="s/t", rank=0), "why"),) * 3,
        left_out={"leases": 2, "refused": 1},
    )
    assert workers.left_out == {"leases": 2, "refused": 1}
    seen = fitted(
        Connections(connections=tuple(connection(n) for n in range(1, 8)), unmatched_bytes={f"s/{n}": n for n in range(6)}),
        REPORTS,
    )
    assert seen.report == Connections(
        connections=tuple(connection(n) for n in range(1, 5)),
        unmatched_bytes={f"s/{n}": n for n in range(4)},
        left_out={"connections": 3, "unmatched_bytes": 2},
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
        left_out={"workers": 1, "ports": 1, "classes": 2},
    )


def of_worker(rank: int, count: int, remote: str = "10.0.0.2") -> tuple[Connection, ...]:
    return tuple(Connection("s/t", rank, "10.0.0.1", 1 + n, remote, 9) for n in range(count))


def shares(report: Message) -> Counter[int]:
    assert isinstance(report, Connections)
    return Counter(one.rank for one in report.connections)


def test_a_worker_with_many_connections_displaces_none_of_another_worker() -> None:
    limits = REPORTS.model_copy(update={"connections": 10})
    crowd, others = of_worker(0, 1000), (*of_worker(1, 2), *of_worker(2, 3))
    for connections in ((*crowd, *others), (*others, *crowd)):
        found = fitted(Connections(connections=connections), limits)
        assert shares(found.report) == {0: 5, 1: 2, 2: 3}
        assert found.left_out == {"connections": 995}
        assert found.workers.keys() == {WorkerId(job="s/t", rank=0)}


def test_those_that_are_sent_stay_the_same_while_others_come() -> None:
    limits = REPORTS.model_copy(update={"connections": 10})
    first = fitted(Connections(connections=of_worker(0, 50)), limits).report
    assert fitted(Connections(connections=of_worker(0, 80)), limits).report.model_copy(
        update={"left_out": {"connections": 40}}
    ) == first  # fmt: skip


def test_connections_within_a_host_are_left_out_before_those_that_cross_the_network() -> None:
    found = fitted(Connections(connections=(*of_worker(0, 5, "10.0.0.1"), *of_worker(0, 3))), REPORTS)
    assert isinstance(found.report, Connections)
    assert [one.is_local for one in found.report.connections] == [True, False, False, False]


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [
        ({"a": 2, "b": 9}, 20, {"a": 2, "b": 9}),
        ({"a": 2, "b": 9}, 8, {"a": 2, "b": 6}),
        ({"a": 9, "b": 9, "c": 1}, 8, {"a": 3, "b": 4, "c": 1}),
        ({"a": 1, "b": 1}, 1, {"a": 0, "b": 1}),
        ({}, 5, {}),
    ],
)
def test_shares_are_fair_and_use_all_there_is(wanted: dict[str, int], limit: int, expected: dict[str, int]) -> None:
    assert fair_shares(wanted, limit) == expected


def test_the_workers_that_are_left_out_are_named_in_words_that_do_not_change_with_numbers() -> None:
    leases = tuple(WorkerLease(study="s", trial=f"t{n}", rank=n, process=Process(9 + n)) for n in range(6))
    reason = "this agent has more leases than the controller takes, 3 in 100000 bytes"
    for count in (5, 6):
        assert fitted(Workers(leases=leases[:count]), REPORTS).workers == {
            WorkerId(job=f"s/t{n}", rank=n): reason for n in range(3, count)
        }
    several = tuple(Connection("s/t", n, "10.0.0.1", 1 + n, "10.0.0.2", 9) for n in range(6))
    assert fitted(Connections(connections=several), REPORTS).workers == {
        WorkerId(job="s/t", rank=n): "this agent has more connections than the controller takes, 4 in 100000 bytes"
        for n in (0, 1)
    }
    assert fitted(Workers(leases=leases[:3]), REPORTS).workers == {}


def test_a_report_is_cut_until_its_message_fits() -> None:
    limits = REPORTS.model_copy(update={"message_bytes": 1000, "connections": 100})
    cut = fitted(Connections(connections=tuple(connection(n) for n in range(1, 51))), limits)
    assert isinstance(cut.report, Connections)
    assert 0 < len(cut.report.connections) < 10
    assert len(cut.report.model_dump_json()) <= 1000
    assert cut.left_out == {"connections": 50 - len(cut.report.connections)}


def test_long_reasons_cost_no_lease_its_place() -> None:
    limits = REPORTS.model_copy(update={"message_bytes": 2000, "leases": 10})
    leases = tuple(WorkerLease(study="s", trial=f"t{n}", rank=0, process=Process(9 + n)) for n in range(6))
    gone = (WorkerId(job="s/g", rank=0),)
    cut = fitted(Workers(leases=leases, gone=gone, refused=((WorkerId(job="s/t", rank=0), "x" * 1500),) * 9), limits).report
    assert isinstance(cut, Workers)
    assert (cut.leases, cut.gone) == (leases, gone)
    assert len(cut.refused) < 9


def encoded(assignment: Assignment) -> str:
    return assignment.model_dump_json()


def test_an_assignment_is_sent_without_what_its_agent_does_not_take() -> None:
    job_of = [WORKER.model_copy(update={"job": "s/many", "rank": n}) for n in range(5)]
    whole = Assignment(
        generation=3,
        queues=3,
        ports=tuple(port(f"e{n}") for n in range(3)),
        workers=(*job_of, WORKER),
        connections=(*(connection(n) for n in range(1, 9)), Connection("s/u", 0, "10.0.0.1", 7, "10.0.0.2", 9)),
        addresses=tuple(f"10.0.0.{n}" for n in range(7)),
    )
    found = fitted_assignment(whole, TAKES, encoded)
    sent = Assignment.model_validate_json(found.message)
    assert found.left_out == {"ports": 1, "workers": 3, "connections": 5, "addresses": 2}
    assert Counter(worker.job for worker in sent.workers) == {"s/many": 2, "s/t": 1}
    assert Counter(one.job for one in sent.connections) == {"s/t": 3, "s/u": 1}
    assert sent.generation == 3
    within = sent.model_copy(update={"generation": 4})
    assert fitted_assignment(within, TAKES, encoded) == FittedAssignment(encoded(within))


def test_jobs_lose_their_caps_before_ports_lose_their_queues() -> None:
    capped = tuple(CAPPED.model_copy(update={"job": f"s/{n}"}) for n in range(3))
    whole = Assignment(generation=1, queues=8, ports=(port("e0"), port("e1")), workers=capped)
    found = fitted_assignment(whole, TAKES, encoded)
    assert found.left_out == {"caps": 3}
    assert [worker.cap_bps for worker in Assignment.model_validate_json(found.message).workers] == [None] * 3


def test_an_assignment_is_cut_until_its_message_fits() -> None:
    limits = TAKES.model_copy(update={"message_bytes": 1500, "connections": 100})
    whole = Assignment(generation=1, workers=(WORKER,), connections=tuple(connection(n) for n in range(1, 51)))
    found = fitted_assignment(whole, limits, encoded)
    sent = Assignment.model_validate_json(found.message)
    assert len(found.message) <= 1500
    assert sent.workers == (WORKER,)
    assert found.left_out == {"connections": 50 - len(sent.connections)}
    with pytest.raises(InputError, match="message_bytes"):
        fitted_assignment(whole, limits.model_copy(update={"message_bytes": 10}), encoded)


def test_what_cannot_be_cut_is_sent_as_it_is() -> None:
    limits = REPORTS.model_copy(update={"message_bytes": 1})
    assert fitted(Workers(), limits).report == Workers()


def test_parts_that_only_a_newer_version_knows_are_not_counted() -> None:
    assert Connections(connections=(), left_out={"connections": 2, "flows": 1}).left_out == {"connections": 2}
    assert Connections.model_validate({"connections": (), "left_out": dict.fromkeys(PARTS, 1)}).left_out.keys() == PARTS
