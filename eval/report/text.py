"""The report as text: chapters of entries in Markdown, from which the page and the summary are made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from eval.documents import markdown
from eval.report import negative, published
from eval.report.exhibits import Exhibit, ReportConfig, exhibits
from eval.report.origins import DocsSection
from eval.report.parts import everything
from eval.report.published import PublishedComparison

TITLE = "Beamer: what was measured"
ABOUT = """\
Every table and picture that an evaluation command makes for README and docs, with the command, seeds, config and machine that
it was made with; published figures beside ours; results that did not come out as hoped; and figures without a committed source.
Simulated times do not depend on the machine; times of decisions, of emulated networks and of real processes do. All of it
follows from the documents and from the files in `eval/results`: nothing is measured for this report.
"""


@dataclass(frozen=True)
class ReportEntry:
    """Something with a title. key: of its own. text: in Markdown. index: what the summary has in its place; None: the text."""

    key: str
    title: str
    text: str
    index: str | None = None


@dataclass(frozen=True)
class Chapter:
    """Entries under a title. text: above them, in Markdown."""

    key: str
    title: str
    text: str
    entries: tuple[ReportEntry, ...] = ()


def chapters(config: ReportConfig, sections: Mapping[str, DocsSection], root: Path) -> list[Chapter]:
    """Return the whole report. Raises `InputError` for a passage that is not in its document.

    sections: by name, those that there are figures of. root: of the pictures' paths.
    """
    shown = list(exhibits(config, sections, root))
    compared = published.comparisons()
    return [
        _of_publications(compared),
        _of_negative(config, compared),
        _without_source(shown),
        *(_of_document(document, list(several)) for document, several in groupby(shown, lambda one: one.part.document)),
    ]


def summary(found: Sequence[Chapter]) -> str:
    """Return the report in Markdown without the tables of the documents: of each, where it is and what it was made with."""
    lines = [f"# {TITLE}", "", ABOUT]
    for chapter in found:
        lines += [f"## {chapter.title}", "", chapter.text]
        for entry in chapter.entries:
            text = entry.text if entry.index is None else entry.index
            lines += [f"### {entry.title}", "", text] if text else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _of_publications(compared: Sequence[PublishedComparison]) -> Chapter:
    entries = [
        ReportEntry(
            f"published-{number}",
            f"{one.publication.title} ({one.publication.source})",
            f"Published: {one.publication.claim.strip()}.\n\n{one.publication.reasons}",
        )
        for number, one in enumerate(compared)
    ]
    return Chapter("published", "Published, ours, and why they differ", markdown(published.table(compared)), tuple(entries))


def _of_negative(config: ReportConfig, compared: Sequence[PublishedComparison]) -> Chapter:
    parts = list(everything())
    entries = []
    for number, table in enumerate(negative.tables(compared)):
        text = markdown(table)
        title, _, rest = text.partition(":\n")
        entries.append(ReportEntry(f"negative-{number}", title, rest.lstrip("\n")))
    for number, passage in enumerate(config.negative):
        part = passage.find(parts)
        entries.append(ReportEntry(f"told-{number}", f"{part.heading} ({part.document})", f"{part.text}\n"))
    return Chapter("negative", "What did not come out as hoped", "", tuple(entries))


def _without_source(shown: Iterable[Exhibit]) -> Chapter:
    rows = ["| what | document | heading | command | lacks |", "|---|---|---|---|---|"]
    lacking = [one for one in shown if one.missing]
    for one in lacking:
        command = f"`{one.origin.command}`" if one.origin else ""
        rows.append(f"| {one.name} | {one.part.document} | {one.part.heading} | {command} | {one.missing} |")
    text = "\n".join([*rows, ""]) if lacking else "None.\n"
    return Chapter("missing", "Figures without a committed source", text)


def _of_document(document: str, shown: Sequence[Exhibit]) -> Chapter:
    entries = []
    for number, one in enumerate(shown):
        missing = f"**Missing: {one.missing}.**\n\n" if one.missing else ""
        origin = _origin(one)
        title = f"{one.part.heading}: {one.name}"
        key = f"{document.replace('/', '-').replace('.', '-')}-{number}"
        entries.append(ReportEntry(key, title, f"{missing}{origin}\n{one.text}\n", f"{missing}{origin}"))
    return Chapter(document.replace("/", "-").replace(".", "-"), document, "", tuple(entries))


def _origin(one: Exhibit) -> str:
    if one.origin is None:
        return ""
    rows = (f"| {name} | {value} |" for name, value in one.origin.rows.items())
    return "\n".join(["|  |  |", "|---|---|", *rows, ""])
