"""What is seen of connections, as events: the shorter of a whole and a difference, which lead to the same."""

import pytest

from beamer.network.connection import Connection
from beamer.network.events import ConnectionsChanged, ConnectionsSeen, seen_connections
from beamer.studies.events import encode


def connections(*ports: int) -> tuple[Connection, ...]:
    return tuple(Connection("s/t", 0, "10.0.0.1", port, "10.0.0.2", 9) for port in ports)


@pytest.mark.parametrize(
    ("known", "seen"),
    [((), ()), ((), (1, 2)), ((1, 2), ()), ((1, 2, 3), (1, 2, 3)), ((1, 2, 3, 4), (2, 3, 4, 5)), ((1, 2, 3), (4, 5, 6))],
)
def test_a_difference_leads_to_what_is_seen(known: tuple[int, ...], seen: tuple[int, ...]) -> None:
    before, after = connections(*known), connections(*seen)
    event = seen_connections(1.0, "h1", before, after)
    assert set(event.applied_to(before) if isinstance(event, ConnectionsChanged) else event.connections) == set(after)
    assert len(encode(event)[1]) <= len(encode(ConnectionsSeen(1.0, "h1", after))[1]) + 20


def test_what_is_written_grows_by_what_changes() -> None:
    many = connections(*range(1000, 5000))
    event = seen_connections(1.0, "h1", many, (*many[1:], *connections(9)))
    assert event == ConnectionsChanged(1.0, "h1", connections(9), many[:1])
    assert len(encode(event)[1]) < len(encode(ConnectionsSeen(1.0, "h1", many))[1]) / 1000
