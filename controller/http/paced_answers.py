"""The HTTP API's answers: as long as they have to be, without keeping others waiting.

    value -> pieces of JSON -> parts -> one part of one answer in a turn of the loop, of the answer that began first

However many read, a turn takes no longer: they wait for each other.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator

from fastapi.responses import Response, StreamingResponse

from controller.event_loop.time_slices import TimeSlices

PART_CHARACTERS = 1 << 14  # So much of an answer is written in a turn of the loop: some 3 ms.
_JSON = "application/json"


class Entries:
    """An object's entries, worked out as they are sent."""

    def __init__(self, entries: Iterator[tuple[str, object]]) -> None:
        self.entries = entries


async def answer(value: object, turns: TimeSlices) -> Response:
    """Return a value as JSON. Iterators become lists, `Entries` objects, worked out as they are sent, when it is their turn."""
    parts = _parts(value)
    place = turns.begin()
    await turns.granted(place)
    first = next(parts)
    second = next(parts, None)
    if second is None:
        return Response(first, media_type=_JSON)

    async def sent() -> AsyncIterator[str]:
        yield first
        yield second
        while True:
            await turns.granted(place)
            part = next(parts, None)
            if part is None:
                return
            yield part

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
    """Yield JSON in pieces. In an object, plain values come first, in one piece; what is worked out one by one follows."""
    if isinstance(value, Iterator):
        opening = "["
        for item in value:
            yield opening
            yield from _pieces(item)
            opening = ","
        yield "[]" if opening == "[" else "]"
    elif isinstance(value, Entries):
        yield from _entries("{", value.entries)
    elif isinstance(value, dict) and any(isinstance(item, Iterator | Entries) for item in value.values()):
        parts = {name: item for name, item in value.items() if isinstance(item, Iterator | Entries)}
        rest = _json({name: item for name, item in value.items() if name not in parts})[:-1]
        yield from _entries(rest if rest == "{" else f"{rest},", parts.items())
    else:
        yield _json(value)


def _entries(opening: str, entries: Iterable[tuple[str, object]]) -> Iterator[str]:
    for name, item in entries:
        yield f"{opening}{json.dumps(name)}:"
        yield from _pieces(item)
        opening = ","
    yield "{}" if opening == "{" else "}"


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
