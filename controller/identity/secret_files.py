"""Files that hold secrets: made for their owner alone, never over another one, and not read where everybody may."""

import os
import stat
from pathlib import Path

from beamer.errors import InputError

_OWNER_ONLY = 0o600


def create_secret(path: Path, content: bytes, field: str) -> None:
    """Write a new file that its owner alone may read. Raises `InputError` if there is one, or none can be made there."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _OWNER_ONLY)
    except FileExistsError as error:
        raise InputError(field, str(path), "the name of a new file: one that is there is not overwritten") from error
    except OSError as error:
        raise InputError(field, str(path), f"a file that can be written ({error.strerror})") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def replace_secret(path: Path, content: bytes, field: str) -> None:
    """Write a file that its owner alone may read in the place of the one that may be there, whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # A process that was killed may have left the file.
    create_secret(beside, content, field)
    beside.replace(path)


def read_secret(path: Path, field: str) -> bytes:
    """Return a file's content, which no error shows.

    Raises `InputError` if it cannot be read, everybody may read it, or another user than this one and root may have made it.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (os.geteuid(), 0):
                raise InputError(field, str(path), f"a file of this user's or root's, not of user {status.st_uid}")
            if stat.S_IMODE(status.st_mode) & 0o007:  # A service's group may share the file.
                raise InputError(field, str(path), f"a file that others may not read (chmod o= {path})")
            return file.read()
    except OSError as error:
        raise InputError(field, str(path), f"a file that can be read ({error.strerror})") from error
