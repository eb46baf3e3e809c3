"""What a supervisor leaves in a job's directory on a node for whoever comes after it.

    lock      held by the supervisor
    ranks     held by the supervisor and every rank that it started, so that it is free only when all of them are gone
    state     JSON; replaced as a whole
    reports   one JSON line each, appended
    control   the supervisor's socket
    output    what the ranks have printed, appended

Only the standard library is imported here, and wherever the supervisor imports from.
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any, durable: bool = False) -> None:
    """Replace a file by JSON, with dataclasses as objects.

    A process that dies leaves the old file or the new one; durable: so does a machine.
    """
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "w") as file:
        json.dump(value, file, default=vars)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON of a file, None if there is none."""
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # A file may be empty after a power failure.
        return None
    return value


def take(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a file until all its copies are closed, None if others hold it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Give a directory a name short enough for a socket's address, however deep it lies."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def listen(directory: Path) -> socket.socket:
    """Return the socket that the supervisor of a directory listens on."""
    with suppress(FileNotFoundError):
        os.unlink(directory / "control")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(directory) as short:
        server.bind(f"{short}/control")
    server.listen(64)
    return server


def connect(directory: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the supervisor of a directory. Raises `OSError` if none listens."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout_s)
    try:
        with _short(directory) as short:
            client.connect(f"{short}/control")
    except OSError:
        client.close()
        raise
    return client
