"""What is stored under a version stays what it is: fields change with a new version and its upcaster only."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from beamer.studies.versions import split_stored_name
from tests.support.stored_schemas import SCHEMAS, file_of, schema, stored

STORED = stored()


@pytest.mark.parametrize("name", STORED)
def test_fields_change_with_a_new_version_only(name: str) -> None:
    assert file_of(name).exists(), "write it: python -m tests.support.stored_schemas"
    committed = json.loads(file_of(name).read_text())
    assert schema(STORED[name][1]) == committed, "its fields have changed: give it an upcaster, which makes a new version"


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_every_schema_is_of_a_version_that_is_read(file: Any) -> None:
    group, _, name = file.stem.rpartition(".")
    kind, version = split_stored_name(name)
    found = [versioned for one, (versioned, _) in STORED.items() if (one.rpartition(".")[0], versioned.name) == (group, kind)]
    assert [version <= versioned.version for versioned in found] == [True]


@pytest.mark.parametrize("name", STORED)
def test_every_version_until_the_present_one_has_a_schema(name: str) -> None:
    group, dot, _ = name.rpartition(".")
    versioned = STORED[name][0]
    names = [versioned.name, *(f"{versioned.name}@{version}" for version in range(2, versioned.version + 1))]
    assert [one for one in names if not file_of(group + dot + one).exists()] == []


@pytest.mark.parametrize("name", STORED)
def test_unknown_fields_are_refused_at_every_depth(name: str) -> None:
    open_objects = [one for one in _objects(schema(STORED[name][1])) if one.get("additionalProperties") is not False]
    assert open_objects == []


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas of objects with fields."""
    if isinstance(value, dict):
        if isinstance(value.get("properties"), dict):
            yield value
        for inner in value.values():
            yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


def test_a_changed_field_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = json.loads(file_of("AttemptStarted@2").read_text())
    committed["properties"]["by_host"]["type"] = "integer"
    assert schema(STORED["AttemptStarted@2"][1]) != committed
