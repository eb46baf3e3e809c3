"""The HTTP API, from its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

from controller.http.api import create_app
from controller.http.errors import DOCUMENTED
from reference.runtime import idle_runtime
from reference.tables import code, table

Schema = Mapping[str, Any]


def page() -> str:
    """Return the page of the HTTP API."""
    with idle_runtime() as runtime:
        document = create_app(runtime).openapi()
    schemas = document["components"]["schemas"]
    refusals = [(str(status), answer["description"]) for status, answer in DOCUMENTED.items()]
    parts = [
        f"""# HTTP API

Every write is a PUT that may be repeated. It is answered with 200 and `{{"changed": true}}`, or false where it repeats what is
known. A read answers with a JSON object. The controller serves this document at `/openapi.json`, and as a page at `/docs`. Any
request may be refused, with a [Refusal](#refusal) as its body:

{table(("status", "because"), refusals)}"""
    ]
    used: dict[str, None] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += _operation(path, method, operation, used)
    parts.append("## Bodies\n")
    for name in [*used, *(name for name in schemas if name not in used)]:
        parts += _schema(name, schemas[name])
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Schema, used: dict[str, None]) -> Iterator[str]:
    yield f"## {method.upper()} {path}\n"
    if text := operation.get("description") or operation.get("summary"):
        yield f"{text}\n"
    rows = [
        (code(one["name"]), one["in"], _kind(one["schema"], used), "required" if one.get("required") else "")
        for one in operation.get("parameters", ())
    ]
    if rows:
        yield table(("parameter", "in", "type", ""), rows)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        yield f"Body: {_kind(body, used)}.\n"


def _schema(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    if text := schema.get("description"):
        yield f"{text}\n"
    required = schema.get("required", ())
    rows = [
        (code(key), _kind(one, {}), "required" if key in required else code(repr(one["default"])) if "default" in one else "")
        for key, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield table(("field", "type", "default"), rows)
    elif "enum" in schema:
        yield f"One of {', '.join(code(one) for one in schema['enum'])}.\n"


def _kind(schema: Schema, used: dict[str, None]) -> str:
    """Return the type of a schema in words. used: is told which named ones it has."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        used[name] = None
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one, used) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'], used)}" if "items" in schema else "list"
    if "enum" in schema:
        return " or ".join(code(one) for one in schema["enum"])
    return str(schema.get("type", "any"))
