"""The user's program in a rank, run as the interpreter itself would. The standard library alone."""

from __future__ import annotations

import io
import os
import pkgutil
import runpy
import sys
from importlib.machinery import SourceFileLoader
from typing import Any


class UserProgram:
    """The user's program in a rank. command: all of its words, as a process that was started by them has them."""

    def __init__(self, program: str, is_module: bool, arguments: list[str], command: list[str]) -> None:
        self._program = program
        self._is_module = is_module
        sys.argv[:] = ["-m" if is_module else program, *arguments]
        if hasattr(sys, "orig_argv"):  # It came with Python 3.10.
            sys.orig_argv[:] = command

    def run(self) -> None:
        """Run it as `__main__`. Exceptions leave as they came, and are shown without this file."""
        main = vars(sys.modules["__main__"])
        for name in [name for name in main if not name.startswith("__")]:
            del main[name]
        try:
            if self._is_module:
                runpy._run_module_as_main(self._program)  # type: ignore[attr-defined]  # what `python -m` runs
            else:
                self._run_script(main)
        except SystemExit:
            raise
        except BaseException as error:
            shown, hook = error.__traceback__, sys.excepthook
            while shown is not None and shown.tb_frame.f_code.co_filename == __file__:
                shown = shown.tb_next
            sys.excepthook = lambda kind, value, _: hook(kind, value.with_traceback(shown), shown)
            raise

    def _run_script(self, main: dict[str, Any]) -> None:
        """Run a script, or the `__main__` of a directory or an archive (`Modules/main.c` of CPython)."""
        if pkgutil.get_importer(self._program) is not None:
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            return
        path = self._program
        if sys.version_info >= (3, 9):  # noqa: UP036  # Before, `__file__` was the path as it was given.
            path = os.path.join(os.getcwd(), path)
        try:
            with io.open_code(path) as file:
                source = file.read()
        except OSError as error:
            print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
            sys.exit(2)
        main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        exec(compile(source, path, "exec", dont_inherit=True), main)
