"""Where experiments print their tables."""

import sys

from rich.console import Console

COLUMNS = 220


def wide_console(columns: int = COLUMNS, markup: bool = True) -> Console:
    """Return a console as wide as the terminal, or of so many columns where there is none.

    markup: whether Rich reads brackets in what is printed as markup, and colours figures.
    """
    return Console(width=None if sys.stdout.isatty() else columns, markup=markup, highlight=markup)
