"""Messages of the database protocol: where one ends, and what values stand for."""

import json

import pytest

from controller.ovsdb import messages
from controller.ovsdb.messages import OvsdbError, Splitter, as_map, as_set, map_of, set_of, uuid_of, uuids_of

SENT = [
    {"id": 1, "result": {"a": [1, {"b": {}}], "c": []}, "error": None},
    {"id": None, "method": "update", "params": ['}{"]["', "\\", 'a\\"}', "ü", ""]},
    {"id": "echo", "method": "echo", "params": []},
]
STREAM = b"".join(json.dumps(one, ensure_ascii=False).encode() for one in SENT)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, len(STREAM)])
def test_messages_are_found_however_they_are_cut(size: int) -> None:
    splitter = Splitter()
    parts = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [message for part in parts for message in splitter.feed(part)] == SENT


@pytest.mark.parametrize("data", [b"]", b"[1]", b'{"a":}', b"HTTP/1.1 400 {}", b"[" * 100_000 + b"]" * 100_000])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(OvsdbError, match="it sends what is no"):
        list(Splitter().feed(data))


def test_a_message_that_does_not_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 1000)
    splitter = Splitter()
    list(splitter.feed(b'{"a":"' + bytes(900)))
    with pytest.raises(OvsdbError, match="more than 1000 bytes"):
        list(splitter.feed(bytes(200)))


def test_a_set_of_one_is_written_as_its_member() -> None:
    row = ["uuid", "1"]
    assert (set_of(["set", []]), set_of(["set", [1, 2]]), set_of(7), set_of(row)) == ([], [1, 2], [7], [row])
    assert (uuid_of(["set", []]), uuid_of(row), uuids_of(as_set([row, ["uuid", "2"]]))) == (None, "1", ["1", "2"])
    assert map_of(as_map({1: "a", 2: "b"})) == {1: "a", 2: "b"}
