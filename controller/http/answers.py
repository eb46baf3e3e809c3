"""The HTTP API's answers: as long as they have to be, without keeping others waiting."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

from fastapi.responses import Response, StreamingResponse

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
