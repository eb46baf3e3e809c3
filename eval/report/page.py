"""The report as one HTML file that loads nothing: style inside, pictures as data."""

import base64
from collections.abc import Sequence
from html import escape
from mimetypes import guess_type
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from eval.report.parts import parser
from eval.report.text import ABOUT, TITLE, Chapter, ReportEntry

STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 0 1rem 4rem; }
body { overflow-wrap: break-word; }
h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; }
h3 { margin-top: 2rem; }
nav ol { padding-left: 2rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { border: 1px solid var(--line); padding: .25rem .5rem; text-align: left; vertical-align: top; }
th { background: var(--soft); }
td { min-width: 4rem; }
#published > .wide td:last-child { min-width: 20rem; }
thead:has(th:empty:only-child), thead:not(:has(th:not(:empty))) { display: none; }
pre { overflow-x: auto; font-size: .75rem; line-height: 1.25; background: var(--soft); padding: .5rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
img { background: white; height: auto; max-width: 100%; }
"""


def html_page(found: Sequence[Chapter], root: Path) -> str:
    """Return the whole page. root: of the pictures' paths."""
    read = parser()
    body = "\n".join(_chapter(read, one, root) for one in found)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(TITLE)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(TITLE)}</h1>
{rendered(read, ABOUT, root)}<nav aria-label="Contents">
<h2>Contents</h2>
<ol>
{"".join(_contents(one) for one in found)}</ol>
</nav>
<main>
{body}
</main>
</body>
</html>
"""


def _contents(chapter: Chapter) -> str:
    entries = "".join(f'<li><a href="#{escape(one.key)}">{escape(one.title)}</a></li>\n' for one in chapter.entries)
    below = f"<details><summary>{len(chapter.entries)} entries</summary><ol>\n{entries}</ol></details>" if entries else ""
    return f'<li><a href="#{escape(chapter.key)}">{escape(chapter.title)}</a>{below}</li>\n'


def _chapter(read: MarkdownIt, chapter: Chapter, root: Path) -> str:
    entries = "".join(_entry(read, one, root) for one in chapter.entries)
    text = rendered(read, chapter.text, root)
    return f'<section id="{escape(chapter.key)}">\n<h2>{escape(chapter.title)}</h2>\n{text}{entries}</section>'


def _entry(read: MarkdownIt, entry: ReportEntry, root: Path) -> str:
    return f'<article id="{escape(entry.key)}">\n<h3>{escape(entry.title)}</h3>\n{rendered(read, entry.text, root)}</article>\n'


def rendered(read: MarkdownIt, text: str, root: Path) -> str:
    """Return Markdown as HTML that loads nothing: pictures as data, links, whose targets are in the documents, as text."""
    tokens = read.parse(text)
    for token in tokens:
        _self_contained(token, root)
    html = str(read.renderer.render(tokens, read.options, {}))
    return html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def _self_contained(token: Token, root: Path) -> None:
    if token.type == "html_block":
        token.type = "code_block"
    children = token.children or []
    token.children = [one for one in children if one.type not in ("link_open", "link_close")] if children else token.children
    for one in children:
        if one.type == "image":
            one.attrs["src"] = _data(root / str(one.attrs["src"]))
        elif one.type == "html_inline":
            one.type = "text"


def _data(path: Path) -> str:
    return f"data:{guess_type(path)[0]};base64,{base64.b64encode(path.read_bytes()).decode()}"
