"""The import of modules in a fork server, and what they must leave for it to be forked. The standard library alone."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from .own_process import ENVIRONMENT, LIBC, PLACEHOLDER, find, fork

if TYPE_CHECKING:
    from collections.abc import Sequence

IMPORT_S = 600
"""How long the import of a module may take. SIGALRM ends a server that hangs, as nobody else may reach it."""
PROBE_S = 5
"""How long two threads of OpenMP may take to begin and end."""
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD")


class Unusable(Exception):
    """The modules cannot be preloaded; the message says why."""


def preload(modules: Sequence[str]) -> None:
    """Import modules. Raises `Unusable` where one of them leaves a process that cannot be forked."""
    mark = f"{PLACEHOLDER}={os.environ[PLACEHOLDER]}"
    for name in modules:
        signal.alarm(IMPORT_S)
        try:
            importlib.import_module(name)
        except BaseException as error:  # A module may raise anything, SystemExit among it.
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            raise Unusable(f"module {name} of preload cannot be imported by {sys.executable}: {what}") from error
        finally:
            signal.alarm(0)
        # Pools of native threads are left to their libraries: OpenBLAS, for one, makes its own anew in a fork.
        if others := sys._current_frames().keys() - {threading.get_ident()}:
            named = {thread.ident: thread.name for thread in threading.enumerate()}
            started = f"module {name} of preload starts threads ({', '.join(named.get(one, 'unnamed') for one in others)})"
            raise Unusable(f"{started}, which a fork lacks: leave it out of preload")
        if openmp_hangs():
            computes = f"module {name} of preload computes with OpenMP while it is imported"
            raise Unusable(f"{computes}, and a fork that does so hangs: leave it out of preload")
        if has_gpu():
            raise Unusable(
                f"module {name} of preload uses a GPU while it is imported, and a fork cannot: leave it out of preload"
            )
        try:
            find(ENVIRONMENT, mark)
        except OSError as error:
            writes = f"module {name} of preload changes what /proc shows of the process, as setproctitle does"
            raise Unusable(f"{writes} ({error}), and its forks could not be found: leave it out of preload") from error


def sources() -> dict[str, tuple[int, int]]:
    """Return the files of all modules that have been imported, with the time of the last change, in ns, and the size."""
    found = {}
    for module in [*sys.modules.values()]:
        path = getattr(module, "__dict__", {}).get("__file__")  # An attribute may be what imports another module.
        if isinstance(path, str):
            found[path] = signature(path)
    return found


def signature(path: str) -> tuple[int, int]:
    """Return when a file was changed, in ns, and its size; zeros where there is none, as within an archive."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_mtime_ns, found.st_size


def openmp_hangs() -> bool:
    """Return whether GCC's OpenMP has started its pool of threads: a fork that uses it waits for them forever."""
    with open("/proc/self/maps") as file:
        paths = {words[5].strip() for line in file if len(words := line.split(maxsplit=5)) == 6 and "/libgomp" in words[5]}
    if not paths or len(os.listdir("/proc/self/task")) == 1:
        return False
    pid = fork()
    if not pid:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PROBE_S)
            nothing = ctypes.cast(LIBC.getpid, ctypes.c_void_p)
            for path in paths:
                ctypes.CDLL(path).GOMP_parallel(nothing, None, 2, 0)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def has_gpu() -> bool:
    """Return whether this process has initialised CUDA, as far as PyTorch knows, or has opened a GPU's device file."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return True
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(GPU_DEVICES):
                return True
        except OSError:  # The descriptor by which the directory was read.
            continue
    return False
