"""The figures of docs/gpu.md about published claims are those of the committed results files."""

import json
import re

import pytest

from eval.gpu import documents, regions
from eval.gpu.results_file import StudyResults, read_results
from eval.gpu.tuning import read_chosen

CLAIMS_HEADING = "## What came of the published claims"
RENEW = "run `python -m eval gpu --docs`"


@pytest.fixture(scope="module")
def text() -> str:
    return documents.DOCS.read_text()


@pytest.fixture(scope="module")
def results() -> StudyResults:
    return read_results()


def claims_part(text: str) -> str:
    """Return the part about published claims."""
    return text.partition(CLAIMS_HEADING)[2].partition("\n## ")[0]


def test_the_docs_are_what_the_results_files_say(text: str) -> None:
    assert documents.current(text) == text, RENEW


def test_every_claim_and_every_map_is_in_the_docs(text: str, results: StudyResults) -> None:
    names = {match["name"] for match in documents.SECTION.finditer(text)}
    assert {one.claim.name for one in results.claims} <= names
    conditions = json.loads(regions.RESULTS.read_text()) if regions.RESULTS.exists() else {}
    assert {f"conditions {name}" for name in conditions} <= names
    for name in conditions:
        assert (documents.DOCS.parent / "images" / f"gpu-regions-{name}.png").is_file()


def test_no_table_of_figures_is_written_by_hand(text: str) -> None:
    by_hand = documents.SECTION.sub("", claims_part(text))
    assert by_hand != claims_part(text)
    rows = [line for line in by_hand.splitlines() if line.startswith("|")]
    assert not [row for row in rows if re.search(r"\d\.\d", row)]


def test_figures_are_those_of_the_runs(text: str, results: StudyResults) -> None:
    """Means are read back from the tables and compared with means that are taken here from the file's figures."""
    compared = 0
    for one in results.claims:
        section = next(match for match in documents.SECTION.finditer(text) if match["name"] == one.claim.name)[0]
        metric = one.claim.metrics[0]
        for cell, runs in one.cells.items():
            if cell not in one.claim.judged():
                continue
            for name, several in runs.items():
                mean = sum(figures[metric.key] for figures in several) / len(several) * metric.scale
                shown = [float(found) for found in re.findall(rf"^\| {re.escape(name)} \|.*?([\d.]+) ±", section, re.MULTILINE)]
                if shown:  # a table by cell has means of the claim's own policy alone
                    compared += 1
                    assert any(value == pytest.approx(mean, rel=0.02, abs=0.002) for value in shown), (cell, name)
    assert compared > 5 * len(results.claims) / 2, "nothing was compared"


def test_the_results_are_of_the_chosen_parameters(results: StudyResults) -> None:
    assert results.tuned == read_chosen()
