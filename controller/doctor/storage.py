"""What a controller keeps on disk: its journal, and compiled kernels."""

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from beamer.doctor.findings import Finding, fault, ok, warning
from beamer.errors import BeamerError, InputError, NewerError, PlatformError
from beamer.studies.journal.location import shown, sqlite_file
from beamer.studies.journal.store import Journal

_KERNELS, _KERNEL = "beamer.network.kernels.bssi", "sequence"
_INDEX = "*.nbi"  # numba keeps an index for each kernel.
_CACHE_VARIABLE = "NUMBA_CACHE_DIR"


@dataclass(frozen=True)
class JournalFacts:
    """A journal. exists: whether it is there. unwritable: what this user may not write. error: why it cannot be opened."""

    url: str
    exists: bool = True
    unwritable: Path | None = None
    error: BeamerError | None = None


@dataclass(frozen=True)
class KernelCache:
    """Where compiled kernels are kept. compiled: how many, of these sources. problem: why none can be kept."""

    user: str
    path: Path | None = None
    compiled: int = 0
    is_writable: bool = True
    problem: str = ""


def read_journal(url: str) -> JournalFacts:
    """Return whether a journal can be opened. Nothing is written to it."""
    try:
        file = sqlite_file(url)
        if file is not None and not file.exists():
            return JournalFacts(shown(url), False, None if _may_write(file.parent) else file.parent)
        Journal(url, writes=False).close()
    except BeamerError as error:
        return JournalFacts(shown(url), error=error)
    needed = () if file is None else (file, file.parent)  # SQLite makes files beside the database.
    return JournalFacts(shown(url), True, next((path for path in needed if not os.access(path, os.W_OK)), None))


def read_kernels() -> KernelCache:
    """Return where numba keeps compiled kernels for this user, and what is there. Nothing is compiled."""
    user = _user()
    try:
        module = import_module(_KERNELS)
        cache: Any = getattr(module, _KERNEL)._cache
    except RuntimeError as error:  # Of numba, where it may write nowhere.
        return KernelCache(user, problem=str(error))
    path = Path(cache.cache_path)
    assert module.__file__ is not None
    sources = max(source.stat().st_mtime for source in Path(module.__file__).parent.glob("*.py"))
    compiled = sum(index.stat().st_mtime >= sources for index in path.glob(_INDEX)) if path.is_dir() else 0
    return KernelCache(user, path, compiled, _may_write(path))


def judge_journal(journal: JournalFacts) -> Iterator[Finding]:
    """Yield whether a controller could keep its journal."""
    match journal.error:
        case None:
            yield _judge_opened(journal)
        case NewerError() as error:
            yield fault(f"{journal.url}: {error}", "install the newer Beamer that has written it")
        case InputError() as error:
            yield warning(
                f"{journal.url}: got {error.value!r}, expected {error.expected}", f"beamer journal check {journal.url}"
            )
        case PlatformError() as error:
            yield fault(f"{journal.url}: {error.missing}", error.remedy)
        case error:
            yield fault(f"{journal.url}: {error}", f"beamer journal check {journal.url}")


def judge_kernels(kernels: KernelCache) -> Iterator[Finding]:
    """Yield whether compiled kernels are kept, so that a controller starts at once."""
    fix = f"set {_CACHE_VARIABLE} to a directory that the controller's user may write, as deploy/beamer-controller.service does"
    if kernels.problem:
        yield fault(f"user {kernels.user} can keep no compiled kernels ({kernels.problem})", fix)
    elif kernels.compiled:
        yield ok(f"{kernels.compiled} compiled kernels are in {kernels.path}")
    elif not kernels.is_writable:
        yield fault(f"no compiled kernels are in {kernels.path}, and user {kernels.user} may not write there", fix)
    else:
        found = (
            f"no kernels of these sources are compiled in {kernels.path}: the first start of user {kernels.user} takes a minute"
        )
        yield warning(found, "start the controller once as its user; or run this command as that user, if it was another")


def _judge_opened(journal: JournalFacts) -> Finding:
    if journal.unwritable is not None:
        fix = f"install -d -o beamer {journal.unwritable}" if not journal.exists else f"chown beamer {journal.unwritable}"
        return fault(f"{journal.url}: {journal.unwritable} cannot be written", fix)
    if not journal.exists:
        return ok(f"{journal.url} is not there yet; the controller will make it")
    return ok(f"{journal.url} can be opened")


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # A container's user may have no name.
        return str(os.geteuid())


def _may_write(directory: Path) -> bool:
    """Return whether this user may make files in a directory that is there."""
    return os.access(directory, os.W_OK | os.X_OK)
