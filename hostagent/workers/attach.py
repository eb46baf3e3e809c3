"""Where workers of this host attach: a Unix socket, on which an open connection is a worker's lease.

A process sends one line of JSON, `{"study": ..., "trial": ..., "rank": ..., "run": ...}`, and gets one back,
`{"attached": true, "agent": NAME}` or `{"error": MESSAGE}`. Which process that is, the kernel says. A lease ends with its
connection, with the process itself even if a child holds the connection open, and when a newer process attaches as the same
worker: then the older one gets an `error`, as a sign not to come back.

From version 2 on the line has `"protocol": VERSION`, and so has the answer to it: see `beamer.protocol_version`. A process says
no more than that, so that there is no other limit than `MAX_LINE_BYTES`.
"""

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import resource
import select
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from beamer.errors import InputError
from beamer.network.protocol import WorkerLease
from beamer.protocol_version import FIRST_VERSION, LINE_KEY, PROTOCOL_VERSION, check_version, version_of_line
from beamer.studies.model import MAX_RANK, Process, check_name
from beamer.validation import input_error
from beamer.versioned_messages import Decoded, decode
from hostagent.rate_limited_log import RateLimitedLog
from hostagent.workers.procfs import Procfs

MAX_PER_USER = 256  # several times the workers that a host has GPUs for
_FULL_USERS = 16  # So many users may have as many connections as one may: fewer of them do not keep the others out.
MAX_CONNECTIONS = _FULL_USERS * MAX_PER_USER
MAX_LINE_BYTES = 4096
LINE_PATIENCE_S = 5.0
_DESCRIPTORS_EACH = 2  # A lease takes two descriptors: its connection and its process.
_OTHER_DESCRIPTORS = 512  # An agent opens so many descriptors besides.
_BACKLOG = 128
_LOCK_PATIENCE_S = 0.5  # A predecessor that is being ended has so long to let the lock go.
_LOCK_PAUSE_S = 0.02  # So long passes between tries.
_SO_PEERPIDFD = 77  # Linux 6.5, asm-generic/socket.h
_CREDENTIALS = struct.Struct("iII")  # struct ucred: process id, user, group
_EVERYBODY = 0o666
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class AttachRequest(BaseModel):
    """Which worker the process says that it is. protocol: the version that it speaks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    study: str
    trial: str
    rank: int = Field(ge=0, le=MAX_RANK)
    run: str | None = None
    protocol: int = Field(default=FIRST_VERSION, ge=FIRST_VERSION)


_requests = TypeAdapter(AttachRequest)


def parse_request(line: bytes) -> Decoded[AttachRequest]:
    """Return the request that a line holds. Raises `InputError` naming the field that is wrong."""
    try:
        content = json.loads(line)
    except ValueError as error:
        raise InputError("line", line[:80].decode(errors="replace"), f"a JSON object ({error})") from error
    except RecursionError as error:
        raise InputError("line", line[:80].decode(errors="replace"), "a flat JSON object") from error
    if not isinstance(content, dict):
        raise InputError("line", content, "a JSON object")
    version = version_of_line(line)
    check_version(version, "client", "agent")
    try:
        decoded = decode(_requests, line, version)
    except ValidationError as error:
        raise input_error(error, AttachRequest) from error
    request = decoded.message
    assert request is not None  # Requests have one kind only.
    for name, value in (("study", request.study), ("trial", request.trial), ("run", request.run)):
        if value is not None:
            check_name(value, name)
    return decoded


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen at `path`, in place of an agent that is gone, and let every user connect; leave nothing there at the end.

    Raises `InputError` for a path where a running agent listens, where something else is, or where no socket can be.
    """
    with _locked(path):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise InputError("--attach", str(path), "a path where there is nothing yet, or a socket")
            path.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                sock.bind(str(path))
                path.chmod(_EVERYBODY)
            except OSError as error:
                raise _no_socket(path, error) from error
            sock.listen(_BACKLOG)
            try:
                yield sock
            finally:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold `path`'s lock, a file beside it, which is removed at the end. Raises `InputError` where another agent holds it."""
    file = Path(f"{path}.lock")
    until = time.monotonic() + _LOCK_PATIENCE_S
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while (lock := _take(file)) is None:
            if time.monotonic() >= until:
                raise InputError(
                    "attach", str(path), "a path where no other agent listens: end that one, or choose another path"
                )
            time.sleep(_LOCK_PAUSE_S)
    except OSError as error:
        raise _no_socket(path, error) from error
    try:
        yield
    finally:
        # The file is removed while it is held: whoever waits for the lock then finds that the file is another one.
        file.unlink(missing_ok=True)
        os.close(lock)


def _take(file: Path) -> int | None:
    """Return a descriptor that holds the lock `file`, None if another one holds it or it was removed meanwhile."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), file.lstat()):
            return descriptor
    os.close(descriptor)
    return None


def _no_socket(path: Path, error: OSError) -> InputError:
    return InputError("--attach", str(path), f"a path where a socket can be made ({error})")


@dataclass(eq=False)
class _Peer:
    """A process that is connected.

    version: that it speaks, once it has said so. reason: why its connection ends, once something else than itself has ended it.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int
    uid: int
    version: int = FIRST_VERSION
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str | None = None

    def end(self, reason: str | None = None) -> None:
        self.reason = reason
        self.ends.set()

    def answer(self, answer: dict[str, object]) -> None:
        if self.version > FIRST_VERSION:
            answer[LINE_KEY] = PROTOCOL_VERSION
        self.writer.write(json.dumps(answer).encode() + b"\n")


class AttachServer:
    """The leases of the processes that are attached to agent `name` now; `changed` is called whenever they change."""

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        self._name = name
        self._changed = changed
        self._proc = Procfs()
        self._leases: dict[tuple[str, str, int], tuple[WorkerLease, _Peer]] = {}
        self._connections: Counter[int] = Counter()  # Numbers of connections, by user.
        self._most_connections = MAX_CONNECTIONS
        self._limited_log = RateLimitedLog()

    @property
    def leases(self) -> tuple[WorkerLease, ...]:
        """Every lease, in the order in which the processes attached."""
        return tuple(lease for lease, _ in self._leases.values())

    async def serve(self, sock: socket.socket) -> None:
        """Take in processes that connect to `sock` until cancelled."""
        wanted = _OTHER_DESCRIPTORS + _DESCRIPTORS_EACH * MAX_CONNECTIONS
        allowed = (_allow_descriptors(wanted) - _OTHER_DESCRIPTORS) // _DESCRIPTORS_EACH
        self._most_connections = max(allowed, _FULL_USERS)
        server = await asyncio.start_unix_server(self._serve_one, sock=sock, limit=MAX_LINE_BYTES)
        async with server:
            await server.serve_forever()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock: socket.socket = writer.get_extra_info("socket")
        pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        peer = _Peer(reader, writer, pid, uid)
        try:
            error = await self._attend(peer)
            if error is not None:
                peer.answer({"error": error})
        except ConnectionError:
            pass
        except Exception as defect:  # noqa: BLE001  # A defect ends this connection alone.
            self._limited_log.add("attaching", repr(defect), error=defect)
        finally:
            writer.close()

    async def _attend(self, peer: _Peer) -> str | None:
        """Serve a connection until it is to be closed; return the error to close it with."""
        uid = peer.uid
        in_all, of_user = self._most_connections, self._most_connections // _FULL_USERS
        if self._connections.total() >= in_all or self._connections[uid] >= of_user:
            return f"too many processes are attached: at most {of_user} of a user, {in_all} in all"
        self._connections[uid] += 1
        try:
            return await self._attend_peer(peer)
        finally:
            self._connections[uid] -= 1
            if not self._connections[uid]:
                del self._connections[uid]

    async def _attend_peer(self, peer: _Peer) -> str | None:
        try:
            line = await _line(peer.reader)
            if not line:
                return None
            peer.version = version_of_line(line)
            decoded = parse_request(line)
        except InputError as error:
            return str(error)
        request = decoded.message
        assert request is not None  # Requests have one kind only.
        if decoded.unused:
            what = f"a client speaks version {request.protocol}: {', '.join(decoded.unused)} is not used"
            self._limited_log.add("newer client", what, logging.WARNING)
        try:
            handle = _open_process(peer)
        except OSError as error:  # Too many files may be open, for example.
            return f"the agent cannot watch the process now ({error.strerror}): attach again later"
        if handle is None:
            return "the process is in a namespace that the agent cannot see into"
        try:
            process = self._process(peer, handle)
            if isinstance(process, str):
                return process
            return await self._hold(request, process, peer, handle)
        finally:
            os.close(handle)

    def _process(self, peer: _Peer, handle: int) -> Process | str:
        """Return who is connected, or why that process can be no worker."""
        if peer.pid == 1:
            return "process 1 of the agent's namespace can be no worker: all others are below it"
        status = self._proc.status(peer.pid)
        if status is None or _has_ended(handle):  # This is checked last, so that what was read is of this process.
            return "the process that connected has ended"
        return Process(peer.pid, status.start, self._proc.own_namespace, peer.uid, leased=True)

    async def _hold(self, request: AttachRequest, process: Process, peer: _Peer, handle: int) -> str | None:
        """Hold a lease until it ends; return the error to close the connection with."""
        key = request.study, request.trial, request.rank
        older = self._leases.get(key)
        if older is not None and peer.uid not in (0, older[1].uid):
            return f"rank: got {request.rank}, expected a worker that no other user's process is"
        if older is not None:
            older[1].end(f"process {peer.pid} has attached as this worker since")
            del self._leases[key]
        self._leases[key] = WorkerLease(**request.model_dump(exclude={"protocol"}), process=process), peer
        self._changed()
        peer.answer({"attached": True, "agent": self._name})
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, peer.end)
        silence = asyncio.create_task(_until_heard(peer))
        try:
            await peer.ends.wait()
            return peer.reason
        finally:
            silence.cancel()
            loop.remove_reader(handle)
            if (held := self._leases.get(key)) is not None and held[1] is peer:
                del self._leases[key]
                self._changed()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return a connection's line, empty if it was closed instead. Raises `InputError`."""
    try:
        async with asyncio.timeout(LINE_PATIENCE_S):
            return await reader.readline()
    except TimeoutError as error:
        raise InputError("line", "nothing", f"one line of JSON within {LINE_PATIENCE_S:g} s") from error
    except ValueError as error:
        raise InputError("line", "more", f"one line of at most {MAX_LINE_BYTES} bytes") from error


async def _until_heard(peer: _Peer) -> None:
    """End a lease when its connection is closed, or says anything more."""
    try:
        more = await peer.reader.read(1)
    except ConnectionError:
        more = b""
    peer.end("line: got a second one, expected nothing more" if more else None)


def _open_process(peer: _Peer) -> int | None:
    """Return a descriptor of the process at a connection's other end, None if it is not seen from here or has ended.

    Raises `OSError` where there is no descriptor left.
    """
    if peer.pid <= 0:
        return None
    sock: socket.socket = peer.writer.get_extra_info("socket")
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
    try:
        return os.pidfd_open(peer.pid)  # The kernel is older than SO_PEERPIDFD.
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return None


def _has_ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))


def _allow_descriptors(wanted: int) -> int:
    """Let this process open `wanted` descriptors, or as many as the system allows it; return how many of these it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
