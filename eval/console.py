"""Where experiments print their tables."""

import sys

from rich.console import Console

COLUMNS = 220


def wide_console(columns: int = COLUMNS, markup: bool = True) -> Console:
    """Return a console as wide as the terminal, or of so many columns where there is none.

    markup: whether brackets in what is printed are marks of rich, and figures in it have a colour.
    """
    return Console(width=None if sys.stdout.isatty() else columns, markup=markup, highlight=markup)
