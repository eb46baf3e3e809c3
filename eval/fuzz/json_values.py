"""JSON that no client sends: values of a schema with some replaced by what breaks parsers, arithmetic and stores."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None, True, "", 0, -1, 1, 2**31, 2**53, 2**64, 10**30, -(2**63), 10**400, 0.5, 1e308, -1e308, 5e-324, "nan", "inf", "-inf",
    "\ud800",
    "a\x00b", "é" * 64, "x" * 5000, "../..", "%00", "a/b", [], {}, [[]], [None] * 50, {"": {}}, {"\udfff": 1}, "1e9",
)  # fmt: skip
"""In place of a value; JSON has no form for NaN, which `to_json` writes all the same."""

NAMES = tuple(f"h{i}" for i in range(6))
"""Of whatever is made: few, so that later inputs meet what earlier ones have left."""


def value_of(rng: random.Random, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return a value of a JSON schema as FastAPI writes them; strings are names. definitions: by the end of their reference."""
    if "$ref" in schema:
        return value_of(rng, definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return value_of(rng, rng.choice(schema["anyOf"]), definitions)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    match schema.get("type"):
        case "object":
            required = set(schema.get("required", ()))
            properties = schema.get("properties", {})
            given = {name: of for name, of in properties.items() if name in required or rng.random() < 0.6}
            return {name: value_of(rng, of, definitions) for name, of in given.items()}
        case "array":
            items = schema.get("items", {})
            return [value_of(rng, items, definitions) for _ in range(rng.choice((0, 1, 2, 2, 5)))]
        case "integer":
            least, most = schema.get("minimum", 0), schema.get("maximum", 2**53)
            return rng.choice((least, most, *(min(max(n, least), most) for n in (1, 2, 3, 100, 10**6))))
        case "number":
            return rng.choice((0.0, 0.25, 1.0, 2.0, 10.0))
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
    return rng.choice((*NAMES, "ring", "all-to-all", "worker"))


def hostile_json(rng: random.Random, value: Any) -> Any:
    """Return a value in which one to three parts are replaced, missing, repeated or added."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _changed(rng, value)
    return value


def to_json(value: Any) -> bytes:
    """Return a value as JSON text in ASCII, lone surrogates as escapes."""
    return json.dumps(value).encode("ascii")


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(sorted(value, key=repr))
        match rng.randrange(8):
            case 0:
                return {key: kept for key, kept in value.items() if key != name}
            case 1:
                return {**value, rng.choice(("x", "\ud800", name + "s", "")): rng.choice(HOSTILE)}
            case _:
                return {**value, name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        return _changed_list(rng, value)
    return rng.choice(HOSTILE)


def _changed_list(rng: random.Random, value: Sequence[Any]) -> list[Any]:
    at = rng.randrange(len(value))
    match rng.randrange(5):
        case 0:
            return [*value[:at], *value[at + 1 :]]
        case 1:
            return [*value, *([value[at]] * rng.choice((1, 30, 5000)))]
        case _:
            return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
