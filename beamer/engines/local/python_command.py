"""The command line of a Python program, taken apart as the interpreter does (`python --help`)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from beamer.errors import InputError

_INTERPRETER = re.compile(r"(python|pypy)\d*(\.\d+)*[a-z]*")
_HONOURED = frozenset("bBdEIOPqRsStuv")
"""Options that another process of the same interpreter can be started with."""
_WITH_ARGUMENT = frozenset("WX")
_LONG = "--check-hash-based-pycs"
_EXPECTED = "a Python program where modules are preloaded: an interpreter, options, and `script.py` or `-m module`"


@dataclass(frozen=True)
class PythonCommand:
    """A Python program: a script, or a module that is run as one.

    options: of the interpreter. program: the script's path, or the module's name. arguments: of the program.
    """

    interpreter: str
    options: tuple[str, ...]
    is_module: bool
    program: str
    arguments: tuple[str, ...]


def parse_command(command: Sequence[str]) -> PythonCommand:
    """Return the parts of a command. Raises `InputError` for one that is no Python program, or whose code is no file."""
    words = list(command)
    if not words or not _INTERPRETER.fullmatch(PurePath(words[0]).name):
        raise InputError("command", tuple(command), _EXPECTED)
    options: list[str] = []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        if word == _LONG:
            options += words[at - 1 : at + 1]
            at += 1
            continue
        for i, letter in enumerate(word[1:], 1):
            rest = word[i + 1 :]
            if letter in _HONOURED:
                options.append(f"-{letter}")
            elif letter in _WITH_ARGUMENT or letter == "m":
                value = rest or (words[at] if at < len(words) else "")
                at += not rest
                if letter == "m" and value:
                    return PythonCommand(words[0], tuple(options), True, value, tuple(words[at:]))
                options.append(f"-{letter}{value}")
                break
            else:
                raise InputError("command", tuple(command), f"{_EXPECTED}, not {word}")
        if word == "-":
            raise InputError("command", tuple(command), f"{_EXPECTED}, not the standard input")
    if at >= len(words):
        raise InputError("command", tuple(command), _EXPECTED)
    if words[at].endswith(".pyc"):
        raise InputError("command", tuple(command), f"{_EXPECTED}, no compiled one")
    return PythonCommand(words[0], tuple(options), False, words[at], tuple(words[at + 1 :]))
