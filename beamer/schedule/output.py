"""The consoles of `beamer schedule`."""

import logging
import os
import signal
from typing import Any

from rich.console import Console
from rich.markup import escape


class SearchConsole(Console):
    """A console on which a closed pipe (`| head`) counts as a signal to stop.

    signals: of the command. through: another one that prints in its place, None: none does.
    """

    def __init__(self, signals: list[int], stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        self._signals = signals
        self.through: Console | None = None

    def print(self, *objects: Any, **options: Any) -> None:
        """Print on the console that this one goes `through`, where it goes through one."""
        if self.through is None:
            super().print(*objects, **options)
        else:
            self.through.print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Be silent from now on, also when the interpreter ends."""
        self.quiet = True
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), self.file.fileno())
        if not self._signals:  # The reader may have been ended by the same Ctrl-C, which is not to count twice.
            self._signals.append(signal.SIGPIPE)


class PrintOnce(logging.Handler):
    """Prints every message once, with a policy's traceback: what cannot be done is tried again and again."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        text = record.getMessage()
        if text not in self._printed:
            self._printed.add(text)
            self._console.print(escape(self.format(record)), highlight=False, soft_wrap=True)
