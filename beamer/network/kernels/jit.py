"""How the kernels are compiled."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.event import Event, Listener, register

from beamer.compilation import COMPILATION

# The flag is undocumented, but numba compiles its own kernels so; constraints.txt pins numba.
UNCOUNTED: dict[str, Any] = {"_nrt": False}

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile `function` at its first call with arguments of a kind; later processes load the result.

    It runs beside other threads: a controller goes on serving while it decides.
    """
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inner(function: F) -> F:
    """Compile `function`, which makes no array and is called by kernels only, not by Python.

    Without this, arrays are counted as they are passed on, which takes longer than what most of these functions do.
    """
    return cast(F, numba.njit(cache=True, **UNCOUNTED)(function))


def any_order(function: F) -> F:
    """Compile `function`, an `inner` one, so that it may take numbers in any order, several at once."""
    return cast(F, numba.njit(cache=True, fastmath={"nnan", "nsz"}, **UNCOUNTED)(function))


@inner
def unsigned(number: int) -> int:
    """Return a number from 0 to 2^32 - 1 in the type of `Positions`; nothing checks the range.

    A function is compiled anew for each type of its arguments: kernels pass positions on in this one.
    """
    return np.uint32(number)  # type: ignore[return-value]  # Kernels see an integer.


def _forget_other_sources(folder: Path) -> None:
    """Remove what was compiled from other sources: a kernel is kept with those that it calls, numba only watches its file."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()
    cache = folder / "__pycache__"
    stamp = cache / "sources.sha256"
    with suppress(OSError):  # Where nothing can be written, nothing was kept.
        if stamp.exists() and stamp.read_text() == digest:
            return
        for compiled in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        cache.mkdir(exist_ok=True)
        stamp.write_text(digest)


class _CompilationListener(Listener):
    """Reports what numba compiles; what it loads from disk it does not name."""

    def on_start(self, event: Event) -> None:
        """Take in that a kernel is being compiled."""
        COMPILATION.begin()

    def on_end(self, event: Event) -> None:
        """Take in that it is compiled, or cannot be."""
        COMPILATION.end()


register("numba:compile", _CompilationListener())  # type: ignore[no-untyped-call]  # numba has no types there.
_forget_other_sources(Path(__file__).parent)
