"""The directory of a search: what was begun in it, and who goes on with it now."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from beamer.engines.local.store import read_json, take, write_json
from beamer.errors import InputError
from beamer.schedule.file import Search, parse

MAY_CHANGE = ("nodes", "group")
SQLITE = "sqlite:///"


class Place:
    """A search's directory and journal, held by one command at a time.

        search  what was begun, JSON     lock  held by the command, with its process id
        jobs/   of the local engine      checkpoints/  by configuration, where the search names no others

    path: of the directory. journal: its URL; "": in the directory. Raises `InputError` where another command holds them.
    """

    def __init__(self, path: Path, journal: str = "") -> None:
        self.path = path
        self.journal = journal or f"{SQLITE}{path.resolve()}/journal.db"
        self._held = ExitStack()

    def __enter__(self) -> "Place":
        with self._held:
            self._hold("--dir", self.path / "lock")
            database = self.journal.removeprefix(SQLITE).split("?")[0]
            if self.journal.startswith(SQLITE) and database:
                self._hold("--journal", Path(f"{database}.lock"))
            self._held = self._held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._held.close()

    def begun(self) -> Search | None:
        """Return the search that was begun here, None if none was. Raises `InputError`."""
        known = read_json(self.path / "search")
        if known is None:
            return None
        if not isinstance(known, dict) or not isinstance(known.get("base"), str) or "content" not in known:
            raise InputError("--dir", str(self.path / "search"), "what this command has written there")
        return parse(known["content"], Path(known["base"]))

    def begin(self, search: Search, journal_holds: bool) -> None:
        """Write down what is begun, or see that it is what was begun before. Raises `InputError` where it is another search.

        journal_holds: whether the journal has events.
        """
        known = self.begun()
        if known is None and journal_holds:
            raise InputError("--dir", str(self.path), "the directory of the search that the journal holds")
        if known is not None and not journal_holds and any((self.path / "jobs").glob("*/")):
            raise InputError("--journal", self.journal, f"the journal of the search in {self.path}, or a new directory")
        if known is not None:
            if search.base != known.base:  # its relative paths would be others
                expected = f"the file in {known.base}, with which the search in {self.path} was begun, or a new --dir"
                raise InputError("SEARCH", str(search.base), expected)
            for key, value in search.content.items():
                if key not in MAY_CHANGE and value != known.content[key]:
                    was = json.dumps(known.content[key])
                    raise InputError(key, value, f"{was}, with which the search in {self.path} was begun, or a new --dir")
        (self.path / "checkpoints").mkdir(exist_ok=True)
        content: dict[str, Any] = {"base": str(search.base), "content": dict(search.content)}
        write_json(self.path / "search", content, durable=True)

    def _hold(self, option: str, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = take(path)
        except OSError as error:
            raise InputError(option, str(path.parent), f"a directory that can be written ({error.strerror})") from error
        if descriptor is None:
            owner = path.read_text() or "another process"
            raise InputError(option, str(path.parent), f"one that no other command uses: process {owner} does")
        self._held.callback(os.close, descriptor)
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
