"""The documentation names files that exist."""

import re
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
# A path in backticks, with the number of a line or the name of a test behind it. Paths that begin with / or ~, and those with a
# scheme or placeholders, are of files elsewhere; files in results/ are written by runs.
PATH = re.compile(r"`((?!results/)\w[\w.-]*(?:/[\w.-]+)+\.(?:py|md|yaml|toml|json|tsv|sql|png|service|txt))(?:[:#][^`]*)?`")
FOLDERS = (ROOT, ROOT / "tests" / "unit")  # docs/experiments/faults.md names unit tests without their tier.


def missing(page: str) -> list[str]:
    """Return the paths of the tree that a page names and that are not there."""
    return [path for path in PATH.findall(page) if not any((folder / path).exists() for folder in FOLDERS)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text("utf-8")) == []


def test_a_file_that_is_gone_is_found_and_one_elsewhere_is_not_looked_for() -> None:
    page = "`beamer/cli.py`, `beamer/gone.py:12`, `test_cli.py`, `eval/gone.py::test_x`, `results/a.json`, `/etc/a.yaml`"
    assert missing(page) == ["beamer/gone.py", "eval/gone.py"]


def test_most_pages_name_files() -> None:
    assert sum(len(PATH.findall(page.read_text("utf-8"))) for page in PAGES) > 200
