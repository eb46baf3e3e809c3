"""A command whose options are set by flags, by the environment, and by a file, in this order; and what is wrong with them.

Each option is declared once, as typer's: it reads variables and files itself, by the same types, so that nothing has to agree
with a second declaration. `beamer-controller --gpu-policy P` is BEAMER_CONTROLLER_GPU_POLICY, and `gpu-policy` in the file that
`--config` names. What is no value of an option's type is told in the words of Beamer's other errors.
"""

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand

from beamer.errors import InputError, nearest, shortened
from beamer.option_variables import variable_of, variables_of
from beamer.validation_messages import expected

CONFIG, PRINT_CONFIG = "--config", "--print-config"
FLAG = "flag"
MAX_LINE = 10**6
OF_CLIENTS = ("BEAMER_TOKEN_FILE",)
"""Variables of other programs, which begin as those of `beamer token` do."""


class CheckedCommand(TyperCommand):
    """A command of typer's that says what an option expects."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments into a context. Raises `typer.BadParameter`."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            finding = error.__cause__.errors(include_url=False)[0]
            source = _source(ctx, error.param)
            where = "" if source == FLAG else f" from {source}"
            told = f"got {shortened(repr(finding['input']))}{where}, expected {expected(finding)}"
            raise typer.BadParameter(told, ctx=error.ctx, param=error.param) from error


class LayeredCommand(CheckedCommand):
    """One whose options a file and variables set, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with those that are every command's."""
        return [*super().get_params(ctx), *_common()]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, variables and the file into a context. Raises `typer.BadParameter`, `InputError`."""
        prefix = variables_of(ctx.info_name)
        for key, option in self._options():
            option.envvar, option.show_envvar = variable_of(prefix, key), False
        _check_variables(prefix, [str(option.envvar) for _, option in self._options()])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the function, or print what it would be called with."""
        if not ctx.meta.get(PRINT_CONFIG):
            return super().invoke(ctx)
        from beamer.yaml_files import dump_yaml

        lines = []
        for key, option in self._options():
            value = _plain(ctx.params[option.name])
            if value is not None:
                lines.append(
                    f"{key}: {dump_yaml([value], flow=True, width=MAX_LINE).strip()[1:-1]}  # {_source(ctx, option)}\n"
                )
        sys.stdout.write("".join(lines))
        return None

    def take_file(self, ctx: Any, path: Path) -> None:
        """Have the options of a file be defaults. Raises `InputError`."""
        from beamer.yaml_files import read_mapping

        options = dict(self._options())
        values = {}
        for key, value in read_mapping(path, CONFIG, "options by their names").items():
            if key not in options:
                raise InputError(f"{path}: {key}", value, nearest(key, options))
            values[options[key].name] = _checked(f"{path}: {key}", options[key], value)
        ctx.default_map = {name: value for name, value in values.items() if value is not None}
        ctx.meta[CONFIG] = str(path)

    def _options(self) -> Iterator[tuple[str, Any]]:
        """Yield the options by what they are called in a file."""
        for one in self.params:
            if one.param_type_name == "option":
                yield max(one.opts, key=len).lstrip("-"), one


def _take_file(ctx: typer.Context, value: Path | None) -> None:
    if value is not None and isinstance(ctx.command, LayeredCommand):
        ctx.command.take_file(ctx, value)


def _take_print(ctx: typer.Context, value: bool) -> None:
    ctx.meta[PRINT_CONFIG] = value


def _of_every_command(
    config: Annotated[
        Path | None,
        typer.Option(
            CONFIG, is_eager=True, expose_value=False, callback=_take_file,
            help="A YAML file of options by their names; flags and variables of the environment come before it.",
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            PRINT_CONFIG, expose_value=False, callback=_take_print,
            help="Print what each option is and where that is from, as such a file, and do nothing else.",
        ),
    ] = False,
) -> None:  # fmt: skip
    """Declare what every command has."""


@functools.cache
def _common() -> list[Any]:
    """Return the parameters that every command has."""
    app = typer.Typer(add_completion=False)
    app.command()(_of_every_command)
    return list(typer.main.get_command(app).params)


def _check_variables(prefix: str, known: list[str]) -> None:
    """Refuse variables that begin as this command's, and set nothing: they are typed wrong. Raises `InputError`."""
    for name, value in sorted(os.environ.items()):
        if name.startswith(prefix) and name not in known and name not in OF_CLIENTS:
            raise InputError(name, value, nearest(name, known) if known else "no such variable, as the command has no options")


def _checked(field: str, option: Any, value: Any) -> Any:
    """Return a file's value as a flag's is given. Raises `InputError`."""
    if value is None:
        return None
    if getattr(option, "is_flag", False):
        if not isinstance(value, bool):
            raise InputError(field, value, "true or false")
        return value
    if option.multiple:
        if not isinstance(value, list):
            raise InputError(field, value, "a list")
        return [str(one) for one in value]
    if isinstance(value, bool | list | dict):
        raise InputError(field, value, "one value")
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _source(ctx: Any, option: Any) -> str:
    source = ctx.get_parameter_source(option.name)
    found = {"COMMANDLINE": FLAG, "ENVIRONMENT": str(option.envvar), "DEFAULT_MAP": str(ctx.meta.get(CONFIG))}
    return found.get(source.name, "default") if source else "default"
