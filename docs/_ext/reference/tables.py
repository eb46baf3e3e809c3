"""Tables and text in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(one) for one in line) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Return a text as a cell of a table: on one line, with no end of the cell in it."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return a text as code, nothing for none."""
    return f"`{text}`" if str(text) else ""
