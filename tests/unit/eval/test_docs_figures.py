"""The figures of the docs about GPU policies are those of the committed results files."""

import json
import math
import re
from statistics import fmean, median

import pytest

from eval.documents import SECTION
from eval.gpu import documents, regions
from eval.gpu.results_file import StudyResults, read_results
from eval.gpu.tuning import read_chosen
from eval.peers import results_file

RAY_RESULTS = documents.DOCS.parents[2] / "eval" / "results" / "ray.json"
ENGINES = documents.DOCS.parent / "engines.md"
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
    names = {match["name"] for match in SECTION.finditer(text)}
    assert {f"gpu {one.claim.name}" for one in results.claims} <= names
    assert {f"peers {name}" for name in results_file.read_results()} <= names
    conditions = json.loads(regions.RESULTS.read_text()) if regions.RESULTS.exists() else {}
    assert {f"gpu conditions {name}" for name in conditions} <= names
    for name in conditions:
        assert (documents.DOCS.parents[1] / "images" / f"gpu-regions-{name}.png").is_file()


def test_no_table_of_figures_is_written_by_hand(text: str) -> None:
    by_hand = SECTION.sub("", claims_part(text))
    assert by_hand != claims_part(text)
    rows = [line for line in by_hand.splitlines() if line.startswith("|")]
    assert not [row for row in rows if re.search(r"\d\.\d", row)]


def test_figures_are_those_of_the_runs(text: str, results: StudyResults) -> None:
    """Means are read back from the tables and compared with means that are taken here from the file's figures."""
    compared = 0
    for one in results.claims:
        section = next(match for match in SECTION.finditer(text) if match["name"] == f"gpu {one.claim.name}")[0]
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


def test_ratios_inside_peers_follow_from_the_runs(text: str) -> None:
    """Means and ratios are read back from the tables and compared with those that are taken here from the file's runs."""
    outcomes = results_file.read_results()
    assert outcomes
    for name, outcome in outcomes.items():
        section = next(match for match in SECTION.finditer(text) if match["name"] == f"peers {name}")[0]
        base = outcome.figures[outcome.base]
        for who, runs in outcome.figures.items():
            mean_s = fmean(figures.mean_s for figures in runs.values())
            ratio = math.exp(fmean(math.log(runs[run].mean_s / base[run].mean_s) for run in runs))
            row = rf"^\| {re.escape(who.name)} \| \w+ \| {who.knows} \|[^|]*\| (\d+) \| ([\d.]*)"
            shown = [(float(mean), float(of or 1.0)) for mean, of in re.findall(row, section, re.MULTILINE)]
            assert any(pair == pytest.approx((mean_s, ratio), rel=0.01, abs=0.006) for pair in shown), who.title


def test_the_table_of_ray_searches_is_that_of_its_runs() -> None:
    runs = json.loads(RAY_RESULTS.read_text())["runs"]
    row = r"^\| ?([\w ]*?) ?\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \(([\d., ]+)\) \| ([\d.]+) \|$"
    compared, search = 0, ""
    for named, contender, *shown in re.findall(row, ENGINES.read_text(), re.MULTILINE):
        search = named.strip() or search
        mine = sorted(
            (one for one in runs if (one["search"], one["contender"]) == (search, contender)), key=lambda one: one["seed"]
        )
        searched = [one["to_target_s"] - one["first_result_s"] for one in mine]
        expected = [
            f"{median(one['to_target_s'] for one in mine):.1f}",
            f"{median(searched):.1f}",
            ", ".join(f"{seconds:.1f}" for seconds in searched),
            f"{median(one['gpu_s'] for one in mine):.1f}",
        ]
        assert shown == expected, (search, contender)
        compared += len(mine)
    assert compared == len(runs)


def test_the_results_are_of_the_chosen_parameters(results: StudyResults) -> None:
    assert results.tuned == read_chosen()
