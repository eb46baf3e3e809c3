"""The HTTP API's refusals: one form for all, which whatever is refused, and however large, can be put into."""

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from beamer.errors import ConflictError, InputError, NotFoundError, shortened

STATUS_OF = ((NotFoundError, 404), (ConflictError, 409), (InputError, 422))
"""The status of each kind of bad input, the first that fits."""


class RefusalReason(BaseModel):
    """What is wrong with a request. field, value: where in it, if anywhere."""

    field: str | None
    value: Any
    expected: str
    message: str


class Refusal(BaseModel):
    """The body of every answer that refuses a request."""

    error: RefusalReason


SCHEMAS = "#/components/schemas/"  # An OpenAPI document keeps here what it refers to.
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status.value: {"description": description, "content": {"application/json": {"schema": {"$ref": SCHEMAS + "Refusal"}}}}
    for status, description in (
        (HTTPStatus.UNAUTHORIZED, "There is no valid token."),
        (HTTPStatus.FORBIDDEN, "The token does not allow it."),
        (HTTPStatus.NOT_FOUND, "Something that is named is not known."),
        (HTTPStatus.CONFLICT, "It contradicts what is known."),
        (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is larger than the controller takes."),
        (HTTPStatus.UNPROCESSABLE_ENTITY, "A value cannot be."),
        (HTTPStatus.SERVICE_UNAVAILABLE, "The controller cannot serve it now: ask again, or another controller."),
    )
}
"""The refusals of any request, as the API's document lists them.

Each refers to the schema by its name: from a model, FastAPI would make a validator for each refusal of each route, which takes
almost half the time of making the application.
"""


class DocumentedAPI(FastAPI):
    """An application whose document has the schema that its refusals refer to."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, with the schema of refusals."""
        if self.openapi_schema is None:
            refusal_schema = Refusal.model_json_schema(ref_template=SCHEMAS + "{model}")
            schemas = super().openapi().setdefault("components", {}).setdefault("schemas", {})
            schemas |= refusal_schema.pop("$defs") | {"Refusal": refusal_schema}
        return super().openapi()


class AsciiResponse(JSONResponse):
    """JSON in ASCII, as a lone surrogate that came in as an escape has no UTF-8 form to go out in."""

    def render(self, content: object) -> bytes:
        """Return the body. Raises `ValueError` for a number that JSON has no form for."""
        return json.dumps(content, allow_nan=False).encode("ascii")


def refusal(status: int, message: str, expected: str, field: str | None = None, value: object = None) -> AsciiResponse:
    """Return the answer that refuses a request: which field, which value, what was expected instead."""
    return AsciiResponse(refusal_content(message, expected, field, value), status)


def refusal_content(message: str, expected: str, field: str | None = None, value: object = None) -> dict[str, object]:
    """Return a refusal as plain data; long values and those that JSON has no form for come as the beginning of their text."""
    error = {
        "field": field if field is None else shortened(field),
        "value": _plain(value),
        "expected": expected,
        "message": message,
    }
    return {"error": error}


def refused_input(error: InputError) -> AsciiResponse:
    """Return the answer to bad input."""
    status = next(status for kind, status in STATUS_OF if isinstance(error, kind))
    return refusal(status, str(error), error.expected, error.field, error.value)


def _plain(value: object) -> object:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return shortened(repr(value))
    return value if shortened(text) == text else shortened(text)
