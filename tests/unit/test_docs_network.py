"""The tables of docs/policies.md are those of the committed results of the study of network policies."""

import re

import pytest

from eval.documents import SECTION
from eval.network.report import Study
from eval.network.results_file import DOCS, IMAGES, current, read_results

RENEW = "run `python -m eval network --docs`"


@pytest.fixture(scope="module")
def study() -> Study:
    return read_results()


def test_the_docs_are_what_the_results_file_says(study: Study) -> None:
    text = DOCS.read_text()
    assert current(text, study) == text, RENEW


def test_every_table_of_the_study_is_in_the_docs(study: Study) -> None:
    names = {match["name"] for match in SECTION.finditer(DOCS.read_text())}
    assert names == {f"network {name}" for name in study.tables()}


def test_pictures_are_there() -> None:
    named = re.findall(r"\(images/(network-\w+\.png)\)", DOCS.read_text())
    assert len(named) == 2
    assert all((IMAGES / name).is_file() for name in named)


def test_no_live_policy_is_better_beyond_chance_in_any_cell(study: Study) -> None:
    """The docs say so in words."""
    names = [contender.name for contender in study.config.contenders if contender.is_live and not contender.survivors]
    for group in study.config.groups.values():
        for cell in study.known(list(group.cells)):
            assert not [name for name in names if study.ratio(cell, name, study.config.reference).high < 1], cell
