"""Versions of what the journal stores, so that a later Beamer reads what an earlier one wrote.

Each kind of event and each part of a snapshot has a version of its own. Version 1 is stored under the bare name, version 2 as
`NAME@2`. Each version after the first has one upcaster, so that none can be without. An upcaster is a pure function from the
JSON form of the version before to that of its own; it may change its argument. What is read goes through those that it lacks.

    Progressed    {"trial": ..., "step": 3}                 -- upcasters[0] -->
    Progressed@2  {"trial": ..., "step": 3, "epoch": null}  -- upcasters[1] -->  Progressed@3 ...
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from beamer.errors import InputError, NewerError

Upcaster = Callable[[Any], Any]
"""Returns the JSON form, as Python has it, of the version after the one that it is given."""

UPGRADE = "a newer Beamer wrote it: upgrade this one, see docs/upgrading.md"
_STORED_NAME = re.compile(r"([^@]+)@([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Versioned:
    """The name of what is stored, and one upcaster for each version after the first."""

    name: str
    upcasters: tuple[Upcaster, ...] = ()

    @property
    def version(self) -> int:
        """The present version, which is the one that is written."""
        return 1 + len(self.upcasters)

    @cached_property
    def stored_name(self) -> str:
        """The name under which the present version is stored."""
        return stored_name(self.name, self.version)

    def upcast(self, version: int, content: str) -> str:
        """Return the present version of an older one's JSON text. Raises `InputError` for a text that is no such version's."""
        if version == self.version:
            return content
        try:
            value = json.loads(content)
            for upcaster in self.upcasters[version - 1 :]:
                value = upcaster(value)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            what = f"the JSON form of version {version} ({type(error).__name__}: {error})"
            raise InputError(stored_name(self.name, version), content, what) from error
        return json.dumps(value)

    def newer(self, field: str, stored: str) -> NewerError:
        """Return the error of a later version than the present one."""
        return NewerError(field, stored, f"{self.name} up to version {self.version}; {UPGRADE}")


def stored_name(name: str, version: int) -> str:
    """Return the name under which a version is stored."""
    return name if version == 1 else f"{name}@{version}"


def split_stored_name(stored: str) -> tuple[str, int]:
    """Return the name and the version that `stored_name` joined; what it never returns is a name as a whole."""
    found = _STORED_NAME.fullmatch(stored)
    if found is None or found[2] == "1":
        return stored, 1
    return found[1], int(found[2])


def present_parts(state: Mapping[str, str], parts: Iterable[Versioned]) -> dict[str, str]:
    """Return the parts of a snapshot, JSON texts by stored name, in their present versions.

    Raises `NewerError` for a part that is not among `parts`, or is a later version; `InputError` for a text that no such part
    has.
    """
    known = {part.name: part for part in parts}
    present: dict[str, str] = {}
    for stored, text in state.items():
        name, version = split_stored_name(stored)
        part = known.get(name)
        if part is None:
            raise NewerError("snapshot", stored, f"one of {', '.join(known)}; {UPGRADE}")
        if version > part.version:
            raise part.newer("snapshot", stored)
        present[part.stored_name] = part.upcast(version, text)
    return present
