"""The directory of a search: which search was started in it, and which command runs it now. Its journal has its own lock."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from beamer.engines.local.supervisor.store import read_json, take, write_json
from beamer.errors import InputError
from beamer.schedule.engine_settings import DEFAULT_ENGINE
from beamer.schedule.file import Search, parse
from beamer.schedule.template import first_names
from beamer.studies.journal.location import Location, check_no_secret, shown, sqlite_file, sqlite_url
from beamer.studies.model import MAX_SECONDS
from beamer.yaml_files import parse_scalar

TIME_LIMITS = ("timeout_s", "silent_s", "collective_timeout_s")
WRITTEN = "what this command has written there"
OWN_FILES = ("search", "lock", "jobs", "checkpoints")
JOURNAL_FILE = "journal.db"  # SQLite adds files beside it, whose names begin so.


class SearchDirectory:
    """A search's directory, held by one command at a time.

        search  what was started, JSON     lock  held by the command, with its process id
        jobs/   of the engine            checkpoints/  by configuration, where the search names no others

    path: of the directory. journal: where it is; "": in the directory. Raises `InputError` where another command holds the
    directory. A directory that is made here is removed again if `InputError` ends the context before `keep` was called.
    """

    def __init__(self, path: Path, journal: str = "") -> None:
        self.path = path
        self.journal: Location = journal or sqlite_url(path.resolve() / JOURNAL_FILE)
        self._held = ExitStack()
        self._made: list[Path] = []  # directories, the innermost first

    def __enter__(self) -> "SearchDirectory":
        self._check_journal()
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with self._held:
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise _unwritable(self.path, error) from error
            self._hold(self.path / "lock")
            self._held = self._held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, InputError):
            self._discard()
        self._held.close()

    def keep(self) -> None:
        """Take in that a search runs in the directory from now on."""
        self._made = []

    def _discard(self) -> None:
        """Remove the directories that were made here, unless others have put anything into them."""
        held = {path.relative_to(self.path).as_posix() for path in self.path.rglob("*")}
        if self._made and all(name in OWN_FILES or name.startswith(JOURNAL_FILE) for name in held):
            shutil.rmtree(self.path)
            with suppress(OSError):  # The directory is another's by now.
                for path in self._made[1:]:
                    path.rmdir()

    def started_search(self) -> Search | None:
        """Return the search that was started here, None if none was. Raises `InputError`."""
        path = self.path / "search"
        try:
            known = read_json(path)
        except OSError as error:
            raise InputError("--dir", str(path), f"{WRITTEN} ({error.strerror})") from error
        if known is None and not path.exists():
            return None
        if not isinstance(known, dict) or not isinstance(known.get("base"), str) or "content" not in known:
            raise InputError("--dir", str(path), WRITTEN)
        names = known.get("names")  # Version 0.1.0 did not write the names down.
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise InputError("--dir", str(path), WRITTEN)
        try:
            found = first_names if names is None else lambda configurations: names
            return parse(_present(known["content"]), Path(known["base"]), found)
        except InputError as error:
            raise InputError(f"{path}: {error.field}", error.value, error.expected) from error

    def named(self, search: Search) -> Search:
        """Return a search with its configurations named as when it was started here; another is left for `start` to refuse.

        0.1.0 wrote numbers down as Python prints them, 0.0001 for 1e-4, and gave them so to programs: these get the same again.
        """
        known = self.started_search()
        if known is None:
            return search
        fixed = {key: value for key, value in known.content.items() if key in search.fixed}
        kept = {key: value for key, value in fixed.items() if _is_same(search.content[key], value)}
        if not {"configurations", "grid"} <= kept.keys():
            return search
        names = [trial.name for trial in known.trials]
        return parse({**search.content, **kept}, search.base, lambda configurations: names)

    def start(self, search: Search, journal_holds: bool) -> None:
        """Write the search down, or check that it is the one that was started before. Raises `InputError` where it is another.

        journal_holds: whether the journal has events.
        """
        known = self.started_search()
        if known is None and journal_holds:
            raise InputError("--dir", str(self.path), "the directory of the search that the journal holds")
        if known is not None and not journal_holds and any((self.path / "jobs").glob("*/")):
            raise InputError("--journal", shown(self.journal), f"the journal of the search in {self.path}, or a new directory")
        if known is not None:
            if search.base != known.base:  # The file's relative paths would be others.
                expected = f"the file in {known.base}, with which the search in {self.path} was started, or a new --dir"
                raise InputError("SEARCH", str(search.base), expected)
            for key in search.fixed:
                if (value := search.content[key]) != known.content.get(key):
                    was = json.dumps(known.content.get(key))
                    raise InputError(key, value, f"{was}, with which the search in {self.path} was started, or a new --dir")
        search.engine.check_records(self.path / "jobs", known.engine if known else search.engine)
        names = [trial.name for trial in search.trials]
        kept = dict(search.content)
        if kept["engine"] == DEFAULT_ENGINE:  # 0.1.0, which knows no other, can go on with the search.
            del kept["engine"]
        content: dict[str, Any] = {"base": str(search.base), "content": kept, "names": names}
        for name in ("jobs", "checkpoints"):
            try:
                (self.path / name).mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise _unwritable(self.path / name, error) from error
        try:
            write_json(self.path / "search", content, durable=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _check_journal(self) -> None:
        """Check that there is a folder for the journal, if it is a file. Raises `InputError`."""
        if isinstance(self.journal, str):
            check_no_secret(self.journal, "--journal")
        try:
            database = sqlite_file(self.journal)
        except InputError as error:
            raise InputError("--journal", error.value, error.expected) from error
        if database is not None:
            folder = database.resolve().parent
            if folder != self.path.resolve() and not folder.is_dir():
                raise InputError("--journal", shown(self.journal), f"a file in a directory that exists: {folder} does not")

    def _hold(self, path: Path) -> None:
        try:
            descriptor = take(path)
        except OSError as error:
            raise InputError("--dir", str(path), f"a file that can be written ({error.strerror})") from error
        if descriptor is None:
            owner = path.read_text() or "another process"
            raise InputError("--dir", str(path.parent), f"one that no other command uses: process {owner} does")
        self._held.callback(os.close, descriptor)
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())


def _present(content: Any) -> Any:
    """Return what was written down of a search as this version has it.

    Time limits of 0.1.0 had no bound, and its `group` may be `cgroup1`, in place of which the best group is used.
    """
    if not isinstance(content, Mapping):
        return content
    long = {key: value for key in TIME_LIMITS if isinstance(value := content.get(key), int | float) and value > MAX_SECONDS}
    group = {"group": "auto"} if content.get("group") == "cgroup1" else {}
    return {**content, **dict.fromkeys(long, MAX_SECONDS), **group}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two parts of search files are the same but for how their numbers and truth values are written."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one == other or (isinstance(one, str) and isinstance(other, str) and parse_scalar(one) == parse_scalar(other))


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError("--dir", str(path), f"a directory that can be written ({error.strerror})")
