"""A connection to a switch's database: its rows as of the latest notice, and transactions."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from beamer.errors import InputError, first_of, shortened
from beamer.network.ovsdb_address import OvsdbAddress
from controller.identity.certificates import switch_of
from controller.ovsdb.messages import MOST_BYTES, Operation, OvsdbError, Row, Splitter, echo_reply, request

CONNECT_S = 5.0
ANSWER_S = 10.0  # A database has so long for an answer.
SILENCE_S = 5.0  # One that says nothing for so long is asked whether it is there.
DATABASE = "Open_vSwitch"
_CLOSED = "it has closed the connection"
_CHUNK = 1 << 14  # So many bytes are split into messages in one turn of the loop; rows take 4 ms.
UNREAD_BYTES = 1 << 20  # So much may wait for a database to read it.
HELD_BYTES = 2 * MOST_BYTES  # Its rows may take so much, as JSON.
_SHOWN = 200  # So many characters of what a peer says are shown.


class OvsdbClosedError(OvsdbError):
    """A database has closed the connection."""


class RefusedTransactionError(OvsdbError):
    """A database does not carry a transaction out. outdated: as rows are no longer as the transaction expects."""

    def __init__(self, reason: str, outdated: bool) -> None:
        super().__init__(reason)
        self.outdated = outdated


class OvsdbConnection:
    """A database that is connected.

    rows: by table and identity, of the columns that are watched. changed: set with any row. revision: another one after each
    change of a row that is not the database's own, in which all programs count their changes.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rows: dict[str, dict[str, Row]] = {}
        self.changed = asyncio.Event()
        self.revision = 0
        self._received_bytes = 0  # since the size of all rows was looked at
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}

    async def watch(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Have `rows` follow the database. columns: by table. Raises `OvsdbError`."""
        self.rows = {table: {} for table in columns}
        wanted = {table: {"columns": list(names)} for table, names in columns.items()}
        self._take(await self._answer("monitor", [DATABASE, None, wanted]))

    async def transact(self, operations: Sequence[Operation]) -> list[Any]:
        """Carry operations out, all or none, and return their results. Raises `RefusedTransactionError`, and `OvsdbError`."""
        results = await self._answer("transact", [DATABASE, *operations])
        for result in results if isinstance(results, list) else [{"error": "no list of results"}]:
            if isinstance(result, dict) and (kind := result.get("error")) is not None:
                reason = shortened(f"{kind}: {result.get('details') or 'no details'}", _SHOWN)
                raise RefusedTransactionError(reason, outdated=kind == "timed out")
        return list(results)

    async def serve(self) -> None:
        """Take in what the database sends. Raises `OvsdbError` when it is gone."""
        splitter, asked = Splitter(), False
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    data = await self._reader.read(_CHUNK)
            except TimeoutError:
                if asked:
                    raise OvsdbError(f"it has not answered for {2 * SILENCE_S:.0f} s") from None
                asked = True
                self._writer.write(request("echo", [], 0))
                continue
            except OSError as error:
                raise _failure(error) from error
            if not data:
                raise OvsdbClosedError(_CLOSED)
            asked = False
            self._received_bytes += len(data)
            for message in splitter.feed(data):
                self._message(message)
            await asyncio.sleep(0)  # What is already there would be read without another turn.

    def _message(self, message: Mapping[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method == "echo":
            if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES:
                raise OvsdbError("it does not read the answers to its questions")
            self._writer.write(echo_reply(message))
        elif method == "update":
            params = message.get("params")
            self._take(params[1] if isinstance(params, list) and len(params) == 2 else None)
        elif method is None and isinstance(number, int) and (asked := self._asked.pop(number, None)) and not asked.done():
            if (error := message.get("error")) is None:
                asked.set_result(message.get("result"))
            else:
                asked.set_exception(OvsdbError(f"it refuses: {shortened(str(error), _SHOWN)}"))

    def _take(self, updates: Any) -> None:
        """Take in how rows are now: of one that is gone there is no `new`."""
        try:
            for table, rows in updates.items():
                for row, change in rows.items():
                    if (new := change.get("new")) is None:
                        self.rows[table].pop(row, None)
                    else:
                        self.rows[table][row] = new
                self.revision += table != DATABASE
        except (AttributeError, KeyError, TypeError) as error:
            raise OvsdbError("it describes its rows otherwise than RFC 7047 does") from error
        if self._received_bytes > 2 * HELD_BYTES:
            self._received_bytes = len(json.dumps(self.rows))
            if self._received_bytes > HELD_BYTES:
                raise OvsdbError(f"its rows take more than {HELD_BYTES} bytes")
        self.changed.set()

    async def _answer(self, method: str, params: Sequence[Any]) -> Any:
        number = next(self._numbers)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        self._writer.write(request(method, params, number))
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._writer.drain()
                return await answer
        except TimeoutError:
            raise OvsdbError(f"it has not answered for {ANSWER_S:.0f} s") from None
        except OSError as error:
            raise _failure(error) from error
        finally:
            self._asked.pop(number, None)


@asynccontextmanager
async def connected(address: OvsdbAddress, dpid: int, tls: ssl.SSLContext | None) -> AsyncIterator[OvsdbConnection]:
    """Connect to the database of a switch, and read from it meanwhile. Raises `OvsdbError`, also when it is gone.

    dpid: of the switch, whose certificate is expected where the address asks for TLS. tls: shows the controller's own.
    """
    try:
        async with asyncio.timeout(CONNECT_S):
            if address.scheme == "unix":
                reader, writer = await asyncio.open_unix_connection(address.host)
            else:
                context = tls if address.scheme == "ssl" else None
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except TimeoutError:
        raise OvsdbError(f"it does not accept a connection within {CONNECT_S:.0f} s") from None
    except OSError as error:
        raise _failure(error) from error
    connection = OvsdbConnection(reader, writer)
    try:
        if address.scheme == "ssl":
            _check_certified(dpid, writer)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(connection.serve())
            yield connection
            reading.cancel()
    except BaseExceptionGroup as group:  # Of the task group, which prefers it to being cancelled at the same time.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from None
        first = first_of(group)
        if isinstance(first, OvsdbClosedError) and address.scheme == "ssl":
            # In TLS 1.3 a client has finished its part by the time that its certificate is refused.
            raise OvsdbError(f"{first}; it may refuse this controller's certificate") from None
        raise first from None
    finally:
        writer.transport.abort()


def _check_certified(dpid: int, writer: asyncio.StreamWriter) -> None:
    try:
        allowed = switch_of(writer.get_extra_info("peercert"))
    except InputError as error:
        raise OvsdbError(f"its certificate is no switch's: {error}") from error
    if allowed != dpid:
        raise OvsdbError(f"its certificate is of the datapath id {allowed:016x}, not of {dpid:016x}")


def _failure(error: OSError) -> OvsdbError:
    match error:
        case ssl.SSLCertVerificationError():
            return OvsdbError(f"its certificate is refused: {error.verify_message}")
        case ssl.SSLError():
            return OvsdbError(f"no mutual TLS: {error.reason or error}")
        case BrokenPipeError() | ConnectionResetError():
            return OvsdbClosedError(_CLOSED)
        case _:
            return OvsdbError(os.strerror(error.errno) if error.errno else str(error))
