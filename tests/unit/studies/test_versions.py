"""Versions of what is stored: older ones become the present one, later ones are refused as such."""

import json
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from beamer.errors import InputError, NewerError
from beamer.studies import events
from beamer.studies.events import Event, Progressed, StageSealed, decode, encode
from beamer.studies.versions import Versioned, present_parts, split_stored_name, stored_name
from beamer.studies.wakes import Wakes


def _seconds(content: dict[str, Any]) -> dict[str, Any]:
    content["took_s"] = content.pop("took_ms") / 1000
    return content


def _host(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, "host": content["trial"].split("/")[0]}


@dataclass(frozen=True)
class Inner:
    value: int


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> type[Event]:
    """Return a kind of event that has a third version."""
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))

    @dataclass(frozen=True)
    class Moved(Event, wakes=Wakes.NOTHING, upcasters=(_seconds, _host)):
        trial: str
        took_s: float
        host: str
        inner: tuple[Inner, ...] = ()

    return Moved


FIRST = '{"at_s": 1.0, "trial": "s/t", "took_ms": 1500, "inner": [{"value": 3}]}'
SECOND = '{"at_s": 1.0, "trial": "s/t", "took_s": 1.5, "inner": [{"value": 3}]}'


def test_older_versions_become_the_present_one(moved: Any) -> None:
    present = moved(1.0, "s/t", 1.5, "s", (Inner(3),))
    assert decode("Moved", FIRST) == present
    assert decode("Moved@2", SECOND) == present
    kind, content = encode(present)
    assert kind == "Moved@3"
    assert decode(kind, content) == present


@pytest.mark.parametrize("kind", ["Moved@4", "Moved@40", "Progressed@2"])
def test_a_later_version_is_a_newer_beamers(moved: Any, kind: str) -> None:
    with pytest.raises(
        NewerError, match=rf"event: got '{kind}', expected {kind.split('@')[0]} up to version \d; a newer Beamer"
    ):
        decode(kind, SECOND)


@pytest.mark.parametrize("kind", ["Moved@1", "Moved@0", "Moved@02", "Moved@", "@2", "Moved@2@2", "Moved@-1", "Moved@2 "])
def test_a_name_that_is_never_written_is_no_version(moved: Any, kind: str) -> None:
    with pytest.raises(NewerError, match=r"expected one of .*Moved.*see docs/upgrading"):
        decode(kind, SECOND)


@pytest.mark.parametrize("content", ["{}", "[]", "3", "{", '{"trial": "s/t", "took_ms": "long"}', "null"])
def test_what_is_no_older_version_is_no_newer_beamers(moved: Any, content: str) -> None:
    with pytest.raises(InputError, match=r"Moved: got .*expected the JSON form of version 1") as raised:
        decode("Moved", content)
    assert not isinstance(raised.value, NewerError)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("StageSealed", '{"at_s": 1, "study": "a", "stage": "b", "stages": 1}', r"StageSealed\.stages: got 1, .*mean 'stage'"),
        ("Moved", FIRST.replace('"value": 3', '"value": 3, "values": 4'), r"Moved\.inner\[0\]\.values: got 4, .*mean 'value'"),
        (
            "Moved@3",
            SECOND.replace('"inner"', '"host": "h", "took_ms": 1, "inner"'),
            r"Moved@3\.took_ms: got 1, .*mean 'took_s'",
        ),
    ],
)
def test_unknown_fields_are_refused_by_name(moved: Any, kind: str, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        decode(kind, content)
    assert not isinstance(raised.value, NewerError)


def test_what_has_one_version_is_stored_under_its_bare_name() -> None:
    assert encode(StageSealed(1.0, "s", "r"))[0] == "StageSealed"
    assert {cls.versioned.name for cls in events._KINDS.values()} == events._KINDS.keys()


@pytest.mark.parametrize(("name", "version"), [("a", 1), ("a", 2), ("a", 10), ("a", 123)])
def test_a_stored_name_tells_name_and_version(name: str, version: int) -> None:
    assert split_stored_name(stored_name(name, version)) == (name, version)


def _doubled(value: Any) -> Any:
    return value * 2


def test_parts_of_a_snapshot_become_the_present_ones() -> None:
    parts = (Versioned("studies"), Versioned("GpuLedger", (_doubled, _doubled)), Versioned("absent", (_doubled,)))
    assert present_parts({"studies": "{}", "GpuLedger": "[1]"}, parts) == {"studies": "{}", "GpuLedger@3": "[1, 1, 1, 1]"}
    assert present_parts({"GpuLedger@2": "[1]"}, parts) == {"GpuLedger@3": "[1, 1]"}
    assert present_parts({"GpuLedger@3": "[1]"}, parts) == {"GpuLedger@3": "[1]"}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("GpuLedger@2", "GpuLedger up to version 1"),
        ("studies@7", "studies up to version 1"),
        ("Racks", "one of studies, GpuLedger"),
    ],
)
def test_parts_of_a_newer_beamers_snapshot_are_refused(stored: str, expected: str) -> None:
    with pytest.raises(NewerError, match=f"snapshot: got '{stored}', expected {expected}.*upgrade this one"):
        present_parts({stored: "{}"}, (Versioned("studies"), Versioned("GpuLedger")))


def test_an_error_of_a_newer_beamer_passes_between_processes() -> None:
    with pytest.raises(NewerError) as raised:
        decode("Progressed@2", "{}")
    copied = pickle.loads(pickle.dumps(raised.value))
    assert (type(copied), str(copied)) == (NewerError, str(raised.value))


def test_upcasters_run_only_where_they_are_needed() -> None:
    def refuse(value: Any) -> Any:
        raise AssertionError(value)

    assert Versioned("a", (refuse,)).upcast(2, "no JSON") == "no JSON"
    assert json.loads(encode(Progressed(1.0, "s/t", 2))[1])["step"] == 2
