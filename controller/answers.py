"""The HTTP API's answers: as long as they have to be without keeping others waiting, and refusals in one form for all."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

from fastapi.responses import JSONResponse, Response, StreamingResponse

from beamer.errors import ConflictError, InputError, NotFoundError, shortened

STATUS_OF = ((NotFoundError, 404), (ConflictError, 409), (InputError, 422))
"""The status of each kind of bad input, the first that fits."""


PART_CHARACTERS = 1 << 14  # of an answer that are written in a turn of the loop: some 3 ms
_JSON = "application/json"


def answer(value: object) -> Response:
    """Return a value as JSON. Iterators become lists, worked out as they are sent: nobody waits for all of a long answer."""
    parts = _parts(value)
    first = next(parts)
    second = next(parts, None)
    if second is None:
        return Response(first, media_type=_JSON)

    async def sent() -> AsyncIterator[str]:
        yield first
        yield second
        for part in parts:
            yield part
            await asyncio.sleep(0)

    return StreamingResponse(sent(), media_type=_JSON)


def _parts(value: object) -> Iterator[str]:
    """Yield JSON in parts of `PART_CHARACTERS` or more, but for the last."""
    pieces: list[str] = []
    size = 0
    for piece in _pieces(value):
        pieces.append(piece)
        size += len(piece)
        if size >= PART_CHARACTERS:
            yield "".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield "".join(pieces)


def _pieces(value: object) -> Iterator[str]:
    """Yield JSON in pieces: an iterator's values one by one, whatever holds none at once."""
    if isinstance(value, Iterator):
        opening = "["
        for item in value:
            yield opening
            yield from _pieces(item)
            opening = ","
        yield "[]" if opening == "[" else "]"
    elif isinstance(value, dict) and any(isinstance(item, Iterator) for item in value.values()):
        opening = "{"
        for name, item in value.items():
            yield f"{opening}{json.dumps(name)}:"
            yield from _pieces(item)
            opening = ","
        yield "}"
    else:
        yield json.dumps(value, allow_nan=False, separators=(",", ":"))


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
