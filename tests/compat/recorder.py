"""A proxy that writes down, as lines of JSON, what goes over the connections that it hands on.

    python -m tests.compat.recorder LISTEN TARGET FILE     an address is HOST:PORT

Each entry is {"connection": N, "from": "client" | "server", KIND: TEXT}, KIND being `http` (a whole request or answer),
`text` (a WebSocket message) or `close` (a WebSocket's code and reason). The recordings of 0.1.0 were made with it between real
programs of that version, by `tests.compat.record`.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

Unit = tuple[str, str]
"""The kind of an entry, and its text."""


class Splitter:
    """Splits one direction of a connection into requests or answers and, after an upgrade, WebSocket messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._upgraded = False

    def feed(self, data: bytes) -> Iterator[Unit]:
        """Yield what is complete now."""
        self._data += data
        while (unit := self._frame() if self._upgraded else self._http()) is not None:
            yield unit

    def _http(self) -> Unit | None:
        end = self._data.find(b"\r\n\r\n") + 4
        if end < 4:
            return None
        head = bytes(self._data[:end])
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        end += int(length[1]) if length else 0
        if len(self._data) < end:
            return None
        unit = "http", bytes(self._data[:end]).decode("latin-1")
        del self._data[:end]
        self._upgraded = re.search(rb"(?i)upgrade: *websocket", head) is not None
        return unit

    def _frame(self) -> Unit | None:
        if len(self._data) < 2:
            return None
        size, at = self._data[1] & 0x7F, 2
        for marker, width in ((126, 2), (127, 8)):
            if self._data[1] & 0x7F == marker:
                size, at = int.from_bytes(self._data[2 : 2 + width], "big"), 2 + width
        mask = bytes(4)
        if self._data[1] & 0x80:
            mask, at = bytes(self._data[at : at + 4]), at + 4
        if len(self._data) < at + size:
            return None
        opcode = self._data[0] & 0x0F
        content = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self._data[at : at + size]))
        del self._data[: at + size]
        if opcode == 8:
            return "close", f"{int.from_bytes(content[:2], 'big')} {content[2:].decode()}"
        return ("text", content.decode()) if opcode == 1 else ("control", str(opcode))


async def record(listen: str, target: str, file: Path) -> None:
    """Hand connections on, and write down what is said, until cancelled."""
    connections = 0

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        there, back = await asyncio.open_connection(*_address(target))

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, side: str) -> None:
            splitter = Splitter()
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    for kind, text in splitter.feed(data):
                        if kind != "control":  # pings
                            with file.open("a") as lines:
                                lines.write(json.dumps({"connection": number, "from": side, kind: text}) + "\n")
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(copy(reader, back, "client"), copy(there, writer, "server"))

    async with await asyncio.start_server(attend, *_address(listen)) as server:
        await server.serve_forever()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
