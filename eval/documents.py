"""The tables of docs/gpu.md, and the form in which other docs have theirs: written from results files between comments.

    <!-- begin: eval COMMAND NAME -->
    ...
    <!-- end -->

NAME is of `gpu` a claim's, "verdicts", or "conditions CLAIM", of `peers` a peer's, or "agreement", and of `network` a group of
cells, "GROUP ideal", "GROUP bound", "spread" or "decisions", and of `emulation` "works" or "distribution".
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from beamer.errors import InputError, nearest
from eval import agreement
from eval.gpu import regions
from eval.gpu.results_file import RESULTS, StudyResults, read_results
from eval.peers import results_file
from eval.peers.results_file import PeerResults

DOCS = Path(__file__).parent.parent / "docs" / "gpu.md"
SECTION = re.compile(r"(<!-- begin: eval (?P<name>(?:gpu|peers|network|emulation) [\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(table: Table) -> str:
    """Return a table as Markdown, its title above it."""
    rows = [[str(column.header) for column in table.columns]]
    rows += [list(cells) for cells in zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(table.columns))
    title = str(table.title)
    return "\n".join([f"{title[0].upper()}{title[1:]}:", "", *lines, ""])


def sections(
    results: StudyResults, conditions: Mapping[str, Mapping[str, object]], peers: Mapping[str, PeerResults]
) -> dict[str, str]:
    """Return the text of every section by its name."""
    found = {"gpu verdicts": "\n".join([markdown(results.verdicts(only_worse=True)), markdown(results.tally())])}
    for one in results.claims:
        found[f"gpu {one.claim.name}"] = "\n".join([f"{one.heading}.", "", *map(markdown, one.judged(results.tuned))])
    for name, grid in conditions.items():
        found[f"gpu conditions {name}"] = markdown(regions.summary(name, grid))
    for name, outcome in peers.items():
        found[f"peers {name}"] = "\n".join(map(markdown, outcome.tables()))
        for one in results.claims:
            if one.claim.name == name:
                found["peers agreement"] = markdown(agreement.table(*agreement.agreements(one, outcome)))
    return found


def rewritten(text: str, found: Mapping[str, str]) -> str:
    """Return a document with its sections as they are now. Raises `InputError` for one that does not exist."""

    def section(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in found:
            raise InputError("docs", name, nearest(name, list(found)))
        return f"{match[1]}\n{found[name]}\n{match[3]}"

    return SECTION.sub(section, text)


def current(text: str, results: Path = RESULTS, conditions: Path = regions.RESULTS, peers: Path = results_file.RESULTS) -> str:
    """Return a document with its sections as the results files have them."""
    grids = json.loads(conditions.read_text()) if conditions.exists() else {}
    return rewritten(text, sections(read_results(results), grids, results_file.read_results(peers)))
