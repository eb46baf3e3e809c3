"""The form in which the docs have tables of experiments: written from results files between comments.

    <!-- begin: eval COMMAND NAME -->
    ...
    <!-- end -->

Those of GPU policies are written by `eval/gpu/documents.py`, all others by `eval/committed.py`.
"""

import re
from collections.abc import Mapping

from rich.table import Table

from beamer.errors import InputError, nearest

SECTION = re.compile(
    r"(?P<begin><!-- begin: eval (?P<name>(?P<command>[a-z-]+) [\w ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def markdown(table: Table) -> str:
    """Return a table as Markdown, its title above it."""
    rows = [[str(column.header) for column in table.columns]]
    rows += [list(cells) for cells in zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(table.columns))
    title = str(table.title)
    return "\n".join([f"{title[0].upper()}{title[1:]}:", "", *lines, ""])


def rewritten(text: str, found: Mapping[str, str]) -> str:
    """Return a document with the sections of the commands that `found` is of as they are now, and those of others as they were.

    Raises `InputError` for a section that its command does not have.
    """
    commands = {name.partition(" ")[0] for name in found}

    def section(match: re.Match[str]) -> str:
        name = match["name"]
        if match["command"] not in commands:
            return match[0]
        if name not in found:
            raise InputError("docs", name, nearest(name, list(found)))
        return f"{match['begin']}\n{found[name]}\n{match['end']}"

    return SECTION.sub(section, text)
