"""Where a run's results go, checked before any work is done for them."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from beamer.errors import InputError
from beamer.lazy_commands import install_command

PICTURES = ("--plot", "--cdf")
CSV, PARQUET = ".csv", ".parquet"


def check_outputs(outputs: Mapping[str, Path | None]) -> None:
    """Make the directories of the output files, given by option, before any work is done for them; None: not asked for.

    Raises `InputError` for a name that does not fit, for two outputs in one file and for a file that cannot be written, and
    leaves nothing.
    """
    given = {option: path for option, path in outputs.items() if path is not None}
    option_of: dict[str, str] = {}
    for option, path in given.items():
        if option in PICTURES and path.suffix.lower() != ".png":
            raise InputError(option, str(path), "a file name that ends in .png")
        if option in PICTURES and find_spec("matplotlib") is None:
            raise InputError(option, str(path), f"no picture, as matplotlib is not installed ({install_command('sim')})")
        if option == "--table":
            check_table(path)
        other = option_of.setdefault(os.path.realpath(path), option)
        if other != option:
            raise InputError(option, str(path), f"another file than that of {other}")
    with ExitStack() as undo:
        for option, path in given.items():
            _check_output(path, option, undo)
        undo.pop_all()


def check_table(path: Path) -> None:
    """Check that rows can be written to a file of that name. Raises `InputError`."""
    suffix = path.suffix.lower()
    if suffix not in (CSV, PARQUET):
        raise InputError("--table", str(path), f"a file name that ends in {CSV} or {PARQUET}")
    if suffix == PARQUET and find_spec("pyarrow") is None:
        raise InputError("--table", str(path), f"a {CSV} file, as pyarrow is not installed ({install_command('parquet')})")


def _check_output(path: Path, option: str, undo: ExitStack) -> None:
    try:
        for directory in reversed(path.parents):
            if not directory.exists():
                directory.mkdir()
                undo.callback(directory.rmdir)
        new = not path.exists()
        with path.open("a"):
            pass
        if new:  # An empty file would outlive a run that breaks off.
            path.resolve().unlink()
    except OSError as error:
        raise InputError(option, str(path), f"a file that can be written ({error.strerror})") from error
