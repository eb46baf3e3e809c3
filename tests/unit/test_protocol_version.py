"""Versions of protocols: what a header says, who is served, and which fields a peer of a version knows."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from beamer.errors import InputError
from beamer.protocol_version import (
    FIRST_VERSION,
    PROTOCOL_VERSION,
    PeerProtocol,
    Since,
    check_version,
    format_header,
    newer_fields,
    parse_header,
    version_of_line,
)


def test_what_is_said_is_what_is_read() -> None:
    assert parse_header(format_header({"body_bytes": 10, "events": 3})) == PeerProtocol(
        PROTOCOL_VERSION, {"body_bytes": 10, "events": 3}
    )
    assert parse_header(format_header()) == PeerProtocol(PROTOCOL_VERSION)
    assert parse_header("3; a=1;b.c=2") == PeerProtocol(3, {"a": 1, "b.c": 2})


def test_a_peer_that_says_nothing_speaks_the_first_version() -> None:
    assert parse_header(None) == PeerProtocol(FIRST_VERSION)


@pytest.mark.parametrize(
    "text", ["", "two", "0", "02", "2;", "2;a", "2;A=1", "2;a=-1", "-1", "2 3", "2" * 7, "2" + ";a=1" * 500]
)
def test_no_other_text_is_a_version(text: str) -> None:
    with pytest.raises(InputError, match=r"Beamer-Protocol: got .* expected a version such as 2"):
        parse_header(text)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('{"protocol": 3}', 3),
        ('{"kind": "status"}', 1),
        ('{"protocol": 0}', 1),
        ('{"protocol": true}', 1),
        ("[3]", 1),
        ("{", 1),
    ],
)
def test_a_line_says_its_senders_version_or_speaks_the_first_one(line: str, version: int) -> None:
    assert version_of_line(line) == version


@pytest.mark.parametrize("version", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION, PROTOCOL_VERSION + 1])
def test_the_versions_next_to_ones_own_are_served(version: int) -> None:
    check_version(version, "agent", "controller")


def test_a_peer_two_versions_ahead_is_refused_with_what_to_upgrade_first() -> None:
    with pytest.raises(InputError) as raised:
        check_version(4, "agent", "controller")
    assert str(raised.value) == "protocol: got 4, expected version 1 to 3: upgrade the controller to protocol version 3 first"


def test_a_peer_two_versions_behind_is_refused_with_what_to_upgrade_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamer.protocol_version.PROTOCOL_VERSION", 5)
    with pytest.raises(InputError) as raised:
        check_version(3, "agent", "controller")
    assert str(raised.value) == "protocol: got 3, expected version 4 to 6: upgrade the agent to protocol version 4 first"


def test_a_refusal_fits_into_a_close_frame() -> None:
    with pytest.raises(InputError) as raised:
        check_version(999_999, "supervisor", "controller")
    assert len(str(raised.value)) <= 123


@dataclass
class Thing:
    first: int
    second: Annotated[int, Since(2)] = 0
    third: Annotated[int | None, "other", Since(3)] = None


def test_fields_are_known_from_their_version_on() -> None:
    assert newer_fields(Thing, 1) == {"second", "third"}
    assert newer_fields(Thing, 2) == {"third"}
    assert newer_fields(Thing, 3) == frozenset()
