"""`python -m eval report`: writes the page and its summary, or for the docs the plots, and why figures differ from others'."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.progress import work
from eval.documents import rewritten
from eval.gpu import documents
from eval.gpu.results_file import RESULTS
from eval.report.exhibits import read_config
from eval.report.origins import all_sections, of_publications
from eval.report.page import html_page
from eval.report.parts import DOCUMENTS, ROOT
from eval.report.text import chapters, summary
from eval.studies import STUDIES

PAGE, SUMMARY = "report.html", "report.md"


def report(
    out: Annotated[Path, typer.Option(help="Folder for the page and its summary.", file_okay=False)] = Path("results/report"),
    docs: Annotated[
        bool, typer.Option("--docs", help="Write the docs' reasons why figures differ, and draw their plots, instead.")
    ] = False,
) -> None:
    """Write every figure of README and docs on one page, with where it is from, beside what others have published."""
    if docs:
        reasons = {name: section.text for name, section in of_publications().items()}
        for path in DOCUMENTS:
            path.write_text(rewritten(path.read_text(), reasons))
        for committed in STUDIES:
            if study := committed.known():
                committed.draw(study)
        if RESULTS.exists():
            documents.draw()
        return
    out.mkdir(parents=True, exist_ok=True)
    with work("collecting figures") as shown:
        found = chapters(read_config(), all_sections(), ROOT)
        shown.begin("writing the page")
        (out / PAGE).write_text(html_page(found, ROOT))
        (out / SUMMARY).write_text(summary(found))
    typer.echo(f"page: {out / PAGE}   summary: {out / SUMMARY}")
