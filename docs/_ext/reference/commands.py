"""The command lines, as their `--help` has them."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args

import typer

from beamer.cli import COMMANDS
from beamer.lazy_commands import Command
from controller.cli import SERVE as CONTROLLER
from hostagent.cli import SERVE as AGENT
from reference.tables import code, table

PROGRAMS = {
    **{f"beamer {name}": command for name, command in COMMANDS.items()},
    "beamer-controller": CONTROLLER,
    "beamer-hostagent": AGENT,
}


def page() -> str:
    """Return the page of commands."""
    parts = [
        """# Commands

Every command ends with exit code 0 where it did what was asked for, with 1 where what it ran failed, and with 2 where its input
or this machine does not let it begin. *Extra* is what to install: `pip install 'beamer-scheduler[EXTRA]'`.

Every option may also be set by a variable of the environment or in a YAML file. A flag comes before a variable, and that
before the file. `beamer-controller --gpu-policy P` is the variable `BEAMER_CONTROLLER_GPU_POLICY`, `beamer schedule --seed N`
is `BEAMER_SCHEDULE_SEED`. `--config FILE` names the file, which has `gpu-policy: P`. Of an option that may be repeated the
variable has the values with spaces in between, the file a list. `--print-config` prints what each option is and where that
is from, as such a file.
"""
    ]
    for name, command in PROGRAMS.items():
        parts += _described(name, _parsed(command), command.extra)
    return "\n".join(parts)


def _parsed(command: Command) -> Any:
    """Return a command as typer parses it: one command, or a group of them."""
    module, _, function = command.target.partition(":")
    called = getattr(import_module(module), function)
    if isinstance(called, typer.Typer):
        return typer.main.get_command(called)
    app = typer.Typer(add_completion=False)
    app.command()(called)
    return typer.main.get_command(app)


def _described(name: str, command: Any, extra: str, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    if extra:
        yield f"Extra: `{extra}`.\n"
    if rows := [_row(one) for one in command.params if one.name not in ("help", "install_completion", "show_completion")]:
        yield table(("option", "value", "default", ""), rows)
    for inner, one in getattr(command, "commands", {}).items():
        yield from _described(f"{name} {inner}", one, "", level + 1)


def _row(one: Any) -> tuple[str, str, str, str]:
    name = ", ".join(one.opts)
    if one.param_type_name == "argument":
        name = one.name.upper() if one.required else f"[{one.name.upper()}]"
    text, _, shown = (one.help or "").partition("  [default: ")
    kind = "" if getattr(one, "is_flag", False) else _kind(one.type_descriptor.annotation)
    is_shown = not (one.default is None or callable(one.default) or one.multiple) and bool(kind)
    default = shown.rstrip("]") or (str(one.default) if is_shown else "")
    if one.multiple:
        kind = f"{kind}, repeatable".lstrip(", ")
    return code(name), kind, "required" if one.required else default if shown else code(default), text


def _kind(annotation: Any) -> str:
    """Return in words what is given."""
    (inner,) = get_args(annotation) or (annotation,)
    return {"str": "text", "int": "integer", "float": "number", "Path": "path"}.get(inner.__name__, "")
