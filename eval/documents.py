"""The tables of docs/gpu.md, and the form in which other docs have theirs: written from results files between comments.

    <!-- begin: eval COMMAND NAME -->
    ...
    <!-- end -->

NAME is of `gpu` a claim's, "verdicts", or "conditions CLAIM", of `peers` a peer's, or "agreement". Those of other commands
are written by `eval/committed.py`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from beamer.errors import InputError, nearest
from beamer.yaml_files import read_json
from eval import agreement
from eval.gpu import regions
from eval.gpu.results_file import RESULTS, StudyResults, read_results
from eval.peers import results_file
from eval.peers.results_file import PeerResults

DOCS = Path(__file__).parent.parent / "docs" / "gpu.md"
SECTION = re.compile(
    r"(?P<begin><!-- begin: eval (?P<name>(?P<command>[a-z]+) [\w ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


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


def current(text: str, results: Path = RESULTS, conditions: Path = regions.RESULTS, peers: Path = results_file.RESULTS) -> str:
    """Return a document with its sections as the results files have them."""
    grids = read_json(conditions, "the results") if conditions.exists() else {}
    return rewritten(text, sections(read_results(results), grids, results_file.read_results(peers)))
