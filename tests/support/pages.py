"""The pages of the documentation as text: their words, their sentences, and their blocks of code with how each is checked."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.checkout import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(p for p in DOCS.rglob("*.md") if "generated" not in p.parts)])

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^( *)(`{3,}|:{3,})[^\n]*\n.*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_HOW = re.compile(r"<!-- (run|not run): ([^\n]*?) -->")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!al)[.!?:](?=\s+[A-Z`\"*\[(]|\s*$)")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block. kind, how: "run" and where, or "not run" and why, both empty without a comment. line: in its page."""

    language: str
    code: str
    kind: str
    how: str
    line: int


def name_of(page: Path) -> str:
    """Return a page's path below the root."""
    return page.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """Return a page's text without blocks of code and comments."""
    return _FENCE.sub("", _COMMENT.sub("", text))


def words(text: str) -> int:
    """Return how many words a page has, those of tables among them."""
    return sum(any(map(str.isalnum, token)) for token in prose(text).split())


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page's paragraphs and entries of lists, links as their texts."""
    kept = (line for line in _LINK.sub(r"\1", prose(text)).splitlines() if not line.lstrip().startswith(("|", "#")))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )", "\n".join(kept)):
        start = 0
        joined = " ".join(paragraph.split())
        for end in _END.finditer(joined):
            yield joined[start : end.end()].strip()
            start = end.end()
        if rest := joined[start:].strip():
            yield rest


def with_diff(page: str, program: str) -> str:
    """Return a program with the one diff of a page applied, whose hunks are separated by `@@`."""
    [block] = [block for block in blocks(page) if block.language == "diff"]
    for hunk in block.code.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] or line for line in lines if not line.startswith("+"))
        assert program.count(old) == 1, f"the program has no such lines:\n{old}"
        program = program.replace(old, "".join(line[1:] or line for line in lines if not line.startswith("-")))
    return program


def added_lines(page: str, program: str) -> list[str]:
    """Return the lines that the diff of a page adds to a program, or changes in it, blank ones apart."""
    compared = difflib.ndiff(program.splitlines(), with_diff(page, program).splitlines())
    return [line[2:] for line in compared if line.startswith("+ ") and line[2:].strip()]


def blocks(text: str) -> Iterator[CodeBlock]:
    """Yield the fenced blocks of a page."""
    tokens = MarkdownIt("commonmark").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "fence" and token.map is not None:
            how = _HOW.fullmatch(before.content.strip()) if before is not None and before.type == "html_block" else None
            kind, where = how.groups() if how else ("", "")
            yield CodeBlock(token.info.strip(), token.content, kind, where, token.map[0] + 1)
