"""What a check finds, and how the checks of a role are carried out on what was observed of a machine.

    gather()  ->  facts  ->  {name: check}  ->  findings  ->  lines or JSON, and an exit code

A fact that could not be observed is `Unseen`, with the reason. A check that needs it says `not checked`, and guesses nothing.
"""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from beamer.errors import BeamerError

T = TypeVar("T")
Facts = TypeVar("Facts")


class CheckVerdict(StrEnum):
    """What a finding means for Beamer."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """What was found, and for a warning or a fault the fix: a command or a sentence."""

    verdict: CheckVerdict
    found: str
    fix: str = ""


Check = Callable[[Facts], Iterable[Finding]]
"""Judges the facts of a role. It may read a fact by `seen`."""


@dataclass(frozen=True)
class Unseen:
    """A fact that could not be observed, and why."""

    reason: str


class UnseenError(BeamerError):
    """A check needs a fact that could not be observed."""


def ok(found: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(CheckVerdict.OK, found)


def warning(found: str, fix: str) -> Finding:
    """Return what impairs Beamer, and its fix."""
    return Finding(CheckVerdict.WARNING, found, fix)


def fault(found: str, fix: str) -> Finding:
    """Return what keeps Beamer from working, and its fix."""
    return Finding(CheckVerdict.FAULT, found, fix)


def not_checked(reason: str) -> Finding:
    """Return that something was not checked, and why."""
    return Finding(CheckVerdict.NOT_CHECKED, reason)


def observe(read: Callable[[], T]) -> T | Unseen:
    """Return what `read` returns, or why it cannot."""
    try:
        return read()
    except subprocess.TimeoutExpired as error:
        return Unseen(f"{_program(error.cmd)} does not end within {error.timeout:g} s")
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().rpartition("\n")[2] or f"exit code {error.returncode}"
        return Unseen(f"{_program(error.cmd)}: {said.removeprefix(f'{_program(error.cmd)}: ')}")
    except OSError as error:
        named = "" if error.filename is None else f"{error.filename}: "
        return Unseen(f"{named}{error.strerror or error}")
    except (BeamerError, ValueError) as error:
        return Unseen(str(error))


def seen(fact: T | Unseen) -> T:
    """Return a fact. Raises `UnseenError` where it could not be observed."""
    if isinstance(fact, Unseen):
        raise UnseenError(fact.reason)
    return fact


def examine(checks: Mapping[str, Check[Facts]], facts: Facts) -> list[tuple[str, Finding]]:
    """Return what every check finds, each finding with the name of its check."""
    found: list[tuple[str, Finding]] = []
    for name, check in checks.items():
        try:
            found.extend((name, finding) for finding in check(facts))
        except UnseenError as error:
            found.append((name, not_checked(str(error))))
    return found


def _program(command: object) -> str:
    return str(command[0] if isinstance(command, list | tuple) else command)
