"""Edge counts against queues: sums along known paths, drops added, negligible queues set apart."""

from topologies import dumbbell, single
from topologies.emulation.accounting import (
    HopShare,
    PairBytes,
    QueueBytes,
    class_share,
    dropped_share,
    excluded_share,
    findings,
    hop_shares,
    unregistered_share,
)

FABRIC = single.build(3)
PAIRS = [
    PairBytes("a", "h1", "h3", 0, 0, True, 1000),
    PairBytes("b", "h2", "h3", 0, 0, True, 500),
    PairBytes("b", "h2", "h3", 0, 1, True, 250),
]


def test_pairs_add_up_at_the_port_they_share() -> None:
    queues = [
        QueueBytes("s1-eth3", 0, 1500, 0),
        QueueBytes("s1-eth3", 1, 250, 0),
        QueueBytes("s1-eth3", None, 99, 0),
    ]
    shares = {(hop.interface, hop.klass): hop for hop in hop_shares(FABRIC, PAIRS, queues)}
    assert shares["s1-eth3", 0].edge_bytes == 1500
    assert shares["s1-eth3", 0].share == 1.0
    assert shares["s1-eth3", 1].share == 1.0


def test_bytes_in_another_queue_lower_the_share() -> None:
    queues = [QueueBytes("s1-eth3", 0, 1350, 0), QueueBytes("s1-eth3", 1, 400, 0)]
    shares = {(hop.interface, hop.klass): hop.share for hop in hop_shares(FABRIC, PAIRS, queues)}
    assert shares["s1-eth3", 0] == 0.9
    assert shares["s1-eth3", 1] == 250 / 400


def test_a_queue_that_nobody_was_given_is_found() -> None:
    (hop,) = [h for h in hop_shares(FABRIC, PAIRS, [QueueBytes("s1-eth3", 5, 700, 0)]) if h.klass == 5]
    assert hop.share == 0.0
    assert not hop.negligible


def test_drops_count_as_carried_where_they_fell_and_are_missing_after() -> None:
    fabric = dumbbell.build(1)
    pairs = [PairBytes("a", "h1", "h2", 0, 0, True, 100 * 1514)]
    queues = [
        QueueBytes("h1-eth0", 0, 100 * 1514, 7),
        QueueBytes("s1-eth1", 0, 90 * 1514, 10),
        QueueBytes("s2-eth2", 0, 90 * 1514, 0),
    ]
    assert {hop.interface: hop.share for hop in hop_shares(fabric, pairs, queues)} == {
        "h1-eth0": 1.0,
        "s1-eth1": 1.0,
        "s2-eth2": 1.0,
    }


def test_bytes_of_a_window_may_be_in_any_queue_of_the_port() -> None:
    pairs = [*PAIRS, PairBytes("b", "h2", "h3", 0, 1, False, 100)]
    queues = [QueueBytes("s1-eth3", 0, 1560, 0), QueueBytes("s1-eth3", 1, 290, 0), QueueBytes("s1-eth3", 2, 200, 0)]
    shares = {hop.klass: hop.share for hop in hop_shares(FABRIC, pairs, queues) if hop.interface == "s1-eth3"}
    assert shares == {0: 1.0, 1: 1.0, 2: 0.0}


def test_windows_are_what_left_a_host_in_no_class_or_in_another_than_the_edge_counted() -> None:
    queues = [
        QueueBytes("h1-eth0", 0, 1100, 0),
        QueueBytes("h1-eth0", None, 100, 0),
        QueueBytes("h2-eth0", 0, 800, 0),
    ]
    hops = hop_shares(FABRIC, PAIRS, queues)
    assert excluded_share(FABRIC, hops, queues) == (100 + 100 + 300) / 2000


def test_bytes_before_the_match_are_a_share_of_the_job() -> None:
    shares = unregistered_share(PAIRS, {"b": 250})
    assert shares == {"a": 0.0, "b": 0.25}


def at_port(pairs: list[PairBytes], *queues: QueueBytes) -> tuple[HopShare, ...]:
    """Return the accounts of the switch's third port, and not of hosts that were not read."""
    return tuple(hop for hop in hop_shares(FABRIC, pairs, queues) if hop.interface == "s1-eth3")


def test_a_run_whose_bytes_are_in_their_classes_and_arrive_is_valid() -> None:
    hops = at_port(PAIRS, QueueBytes("s1-eth3", 0, 1_500, 0), QueueBytes("s1-eth3", 1, 250, 0))
    assert (class_share(hops), dropped_share(FABRIC, hops, PAIRS), findings(FABRIC, hops, PAIRS)) == (1.0, 0.0, ())
    assert (class_share(()), dropped_share(FABRIC, (), ()), findings(FABRIC, (), ())) == (1.0, 0.0, ())


def test_bytes_in_another_class_make_a_run_invalid_and_the_worst_queue_is_named() -> None:
    hops = at_port(PAIRS, QueueBytes("s1-eth3", 0, 1350, 0), QueueBytes("s1-eth3", 1, 400, 0))
    (found,) = findings(FABRIC, hops, PAIRS)
    assert found.startswith("the edge counted 250 bytes for class 1 at s1-eth3, the queue 400: a class share of 62.5%")


def test_drops_at_every_queue_on_the_way_count_against_what_was_sent_once() -> None:
    fabric = dumbbell.build(1)
    pairs = [PairBytes("a", "h1", "h2", 0, 0, True, 1000 * 1514)]
    for dropped, share, valid in ((5, 0.01, True), (6, 0.012, False)):
        queues = [
            QueueBytes("h1-eth0", 0, 1000 * 1514, 0),
            QueueBytes("s1-eth1", 0, (1000 - dropped) * 1514, dropped),
            QueueBytes("s2-eth2", 0, (1000 - 2 * dropped) * 1514, dropped),
        ]
        hops = hop_shares(fabric, pairs, queues)
        assert dropped_share(fabric, hops, pairs) == share
        assert findings(fabric, hops, pairs) == (
            () if valid else ("queues dropped 1.2% of the bytes sent (limit 1%): see queue_packets and window",)
        )
