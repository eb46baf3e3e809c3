"""Command lines whose commands are imported when they run: without the packages it needs, a command says what to install.

The base install has no library for command lines, so this module and the modules of the command lines need none: a program is
a table of commands, or one command, and typer parses a command's arguments. A command of two words belongs to the group that
its first word names: `study ls` and `study end` are listed by `study --help`.
"""

import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from beamer.compilation import COMPILATION, NOTICE
from beamer.errors import BeamerError, InputError, PlatformError, nearest
from beamer.option_variables import variables_of

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISTRIBUTION = "beamer-scheduler"  # On a package index, the import package's name belongs to others.
PACKAGES = ("beamer", "controller", "hostagent", "topologies", "eval")  # A module missing from these is no missing extra.


def install_command(extra: str) -> str:
    """Return what to type to install an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


@dataclass(frozen=True)
class Command:
    """A command.

    target: the function that is called with the parsed arguments, as MODULE:NAME. extra: that installs what the module imports.
    help: its purpose in a line, for a list of commands. plain: a function, as MODULE:NAME, that is tried first where whoever
    runs the command should not wait for typer. It runs the command and ends the process if it can read the arguments, and
    returns otherwise.
    """

    target: str
    extra: str
    help: str = ""
    plain: str = ""

    def run(self, name: str, arguments: Sequence[str], epilog: str | None = None) -> None:
        """Parse the arguments, call the function and end the process.

        name: as the command is typed. epilog: the end of its help. Raises `PlatformError` naming the extra if a package is not
        installed.
        """
        if self.plain and not any(variable.startswith(variables_of(name)) for variable in os.environ):
            module, _, function = self.plain.partition(":")
            getattr(import_module(module), function)(arguments)
        module, _, function = self.target.partition(":")
        with needs(name, self.extra), imports_without_gc():
            import typer

            from beamer.layered_command import CheckedCommand, LayeredCommand

            called = getattr(import_module(module), function)
        COMPILATION.announce(lambda: print(f"{_typed(name)}: {NOTICE}", file=sys.stderr, flush=True))
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        # Experiments have configurations of their own.
        kind = CheckedCommand if name.startswith("python -m ") else LayeredCommand
        app.command(cls=kind, epilog=epilog)(called)
        app(list(arguments), prog_name=name)


@contextmanager
def imports_without_gc() -> Iterator[None]:
    """Import without garbage collection, and exempt what was imported from later collections.

    They take a quarter of the processor time of a controller's start. Where nothing was imported, as in a process that has run
    the command before, nothing is exempt: it would be what that process has made since.
    """
    enabled, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def needs(name: str, extra: str) -> Iterator[None]:
    """Raise `PlatformError` naming the extra if a package that is imported in this context is missing; name: the command's."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in PACKAGES:
            raise
        missing = f"{_typed(name)} needs packages that are not installed ({package})"
        raise PlatformError(missing, f"install them: {install_command(extra)}") from error


def run_commands(program: str, about: str, commands: Mapping[str, Command]) -> None:
    """Run the command that the process's arguments name, and end the process."""
    with errors_as_exit_codes(program):
        _dispatch(program, about, commands, sys.argv[1:])


def _dispatch(
    program: str, about: str, commands: Mapping[str, Command], arguments: Sequence[str], group: str = ""
) -> None:  # fmt: skip
    """Run the command that the arguments name. group: that the commands are of, if they are of one."""
    typed = f"{program} {group}".rstrip()
    match arguments:
        case []:
            print(_help(typed, about, commands), file=sys.stderr)
            sys.exit(2)
        case ["--help", *_]:
            print(_help(typed, about, commands))
        case ["--version", *_]:
            print_version(program)
        case [name, *_] if name.startswith("-"):
            raise InputError("option", name, "--help, --version or a command")
        case [name, *rest] if name in commands:
            commands[name].run(f"{typed} {name}", rest)
        case [name, *rest]:
            inner = {word.partition(" ")[2]: command for word, command in commands.items() if word.startswith(f"{name} ")}
            if not inner:
                raise InputError("command", name, nearest(name, {word.partition(" ")[0] for word in commands}))
            _dispatch(program, "", inner, rest, name)


def run_command(program: str, command: Command) -> None:
    """Run a program that has but one command with the process's arguments, and end the process."""
    with errors_as_exit_codes(program):
        arguments = sys.argv[1:]
        if arguments[:1] == ["--version"]:
            print_version(program)
        else:
            command.run(program, arguments, epilog="--version prints the version.")


def print_version(program: str) -> None:
    """Print the version. Raises `PlatformError` where Beamer runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError as error:
        missing = f"{DISTRIBUTION} is not installed, so that its version is not known"
        raise PlatformError(missing, "install it: pip install .") from error
    print(_last_word(program), installed)


@contextmanager
def errors_as_exit_codes(program: str) -> Iterator[None]:
    """End the process in one line for an error, with exit code 2 for bad input and missing parts, else with 1.

    It ends with 141, as by SIGPIPE, where nobody reads its output any more: what it had left to do is not done.
    """
    try:
        yield
    except BrokenPipeError:
        _discard_output()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _discard_output()
        print(f"{_last_word(program)}: what it has to say or to keep cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except BeamerError as error:
        print(f"{_last_word(program)}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError | PlatformError) else 1)


def _discard_output() -> None:
    """Have what is still to be printed go nowhere, which the interpreter would try at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _typed(name: str) -> str:
    """Return a command as its user names it: without the program that it is of, where it is one of several."""
    words = name.removeprefix("python -m ").split(" ")
    return " ".join(words[1:] or words)


def _last_word(text: str) -> str:
    return text.rpartition(" ")[2]


def _help(program: str, about: str, commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands))
    extras = {name: f"[{command.extra}]" for name, command in commands.items()}
    extras_width = max(map(len, extras.values()))
    listed = [f"  {name:{width}}  {extras[name]:{extras_width}}  {command.help}" for name, command in commands.items()]
    return "\n".join(
        [
            f"Usage: {program} COMMAND [OPTIONS]",
            f"       {program} --help | --version",
            "",
            *([about, ""] if about else []),
            f"Commands, and the extra that installs what each needs ({install_command('EXTRA')}):",
            *listed,
            "",
            f"{program} COMMAND --help shows a command's options.",
        ]
    )
