"""What a process of a fork server does to itself: it forks, and changes what /proc shows of it. The standard library alone."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import NamedTuple

LIBC = ctypes.CDLL(None)
PLACEHOLDER = "BEAMER_WARM"
"""The variable by which servers are found. Its value is the server's directory, padded with blanks.

A fork writes its own mark over it, so that /proc shows that in its place; the blanks leave room for it.
"""


class Part(NamedTuple):
    """A part of a process' memory that /proc shows. address_field: of /proc/PID/stat, counted from the command's name on."""

    path: str
    address_field: int


ENVIRONMENT, COMMAND_LINE = Part("/proc/self/environ", 47), Part("/proc/self/cmdline", 45)


def fork() -> int:
    """Fork, without the warning of newer interpreters that there are threads: pools of native ones are made anew."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def find(part: Part, place: str) -> tuple[int, int]:
    """Return the address and the length of what /proc shows of this process. place: what is looked for, "": all of it.

    Raises `OSError` where it is not in memory where the kernel says.
    """
    with open("/proc/self/stat", "rb") as file:
        address = int(file.read().rpartition(b")")[2].split()[part.address_field])
    with open(part.path, "rb") as file:
        before = file.read()
    old = os.fsencode(place) or before[:-1]
    offset = before.find(old)
    if offset < 0 or not address or ctypes.string_at(address + offset, len(old)) != old:
        raise OSError(f"{part.path} has been overwritten")
    return address + offset, len(old)


def show(part: Part, place: str, content: str) -> str:
    """Overwrite what /proc shows of this process, as `find` finds it, and return what it shows now. Raises `OSError`."""
    address, length = find(part, place)
    new = os.fsencode(content)[:length].ljust(length, b"\0")
    ctypes.memmove(address, new, length)
    return os.fsdecode(new)
