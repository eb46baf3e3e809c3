"""The tables of docs/gpu.md, written from the results files between comments that name them.

    <!-- begin: eval gpu NAME -->
    ...
    <!-- end -->

NAME is a claim's, "verdicts", or "conditions CLAIM".
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from beamer.errors import InputError, nearest
from eval.gpu import regions
from eval.gpu.results_file import RESULTS, StudyResults, read_results

DOCS = Path(__file__).parent.parent.parent / "docs" / "gpu.md"
SECTION = re.compile(r"(<!-- begin: eval gpu (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(table: Table) -> str:
    """Return a table as Markdown, its title above it."""
    rows = [[str(column.header) for column in table.columns]]
    rows += [list(cells) for cells in zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(table.columns))
    title = str(table.title)
    return "\n".join([f"{title[0].upper()}{title[1:]}:", "", *lines, ""])


def sections(results: StudyResults, conditions: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """Return the text of every section by its name."""
    found = {"verdicts": markdown(results.verdicts())}
    for one in results.claims:
        found[one.claim.name] = "\n".join([f"{one.heading}.", "", *map(markdown, one.judged(results.tuned))])
    for name, grid in conditions.items():
        found[f"conditions {name}"] = markdown(regions.summary(name, grid))
    return found


def rewritten(text: str, found: Mapping[str, str]) -> str:
    """Return a document with its sections as they are now. Raises `InputError` for one that does not exist."""

    def section(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in found:
            raise InputError("docs", name, nearest(name, list(found)))
        return f"{match[1]}\n{found[name]}\n{match[3]}"

    return SECTION.sub(section, text)


def current(text: str, results: Path = RESULTS, conditions: Path = regions.RESULTS) -> str:
    """Return a document with its sections as the results files have them."""
    grids = json.loads(conditions.read_text()) if conditions.exists() else {}
    return rewritten(text, sections(read_results(results), grids))
