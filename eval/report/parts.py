"""The documents as parts: headings, tables, pictures and paragraphs in order, and the places of sections of commands."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from eval.documents import SECTION

ROOT = Path(__file__).parents[2]
GENERATED = "generated"  # The folder of pages that are made from the code when the site is built.
DOCUMENTS = (ROOT / "README.md", *sorted(one for one in (ROOT / "docs").rglob("*.md") if one.parent.name != GENERATED))
PLACE = re.compile(r"<!-- section (?P<name>[\w -]+) -->")
HEADING, TABLE, FENCE, SECTION_KIND, PICTURE = "heading", "table", "fence", "section", "picture"


@dataclass(frozen=True)
class DocumentPart:
    """A part of a document that stands for itself.

    document: path below the root. heading: the last one above it. kind: one of those above, or what Markdown calls it. text: as
    it is written; of a section its name, and of a picture its path below the root. title: of a picture.
    """

    document: str
    heading: str
    kind: str
    text: str
    title: str = ""


def parser() -> MarkdownIt:
    """Return what reads the documents."""
    return MarkdownIt("commonmark").enable("table")


@cache
def parts(path: Path) -> tuple[DocumentPart, ...]:
    """Return the parts of a document."""
    return tuple(parts_of(path.relative_to(ROOT).as_posix(), path.read_text()))


def parts_of(document: str, text: str) -> Iterator[DocumentPart]:
    """Yield the parts of a document's text."""
    text = SECTION.sub(lambda match: f"<!-- section {match['name']} -->", text)
    lines = text.splitlines()
    heading = ""
    tokens = parser().parse(text)
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.level or token.map is None or token.nesting < 0:
            continue
        written = "\n".join(lines[slice(*token.map)]).strip()
        kind = token.type.removesuffix("_open")
        if kind == HEADING:
            heading = written.lstrip("# ")
        pictures = [one for one in (after.children or ()) if one.type == "image" and not _is_drawing(one)] if after else []
        if pictures and kind == "paragraph":
            for one in pictures:
                where = os.path.normpath(Path(document).parent / str(one.attrs["src"]))
                yield DocumentPart(document, heading, PICTURE, where, one.content)
        elif place := PLACE.fullmatch(written):
            yield DocumentPart(document, heading, SECTION_KIND, place["name"])
        else:
            yield DocumentPart(document, heading, kind, written)


def _is_drawing(image: Token) -> bool:
    """Return whether a picture explains something, and shows no figures."""
    return str(image.attrs["src"]).endswith(".svg")


def everything() -> Iterator[DocumentPart]:
    """Yield the parts of all documents."""
    for path in DOCUMENTS:
        yield from parts(path)
