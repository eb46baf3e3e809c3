"""The documentation is built as a site: without a warning, with every page, and with links that lead somewhere."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import DOCS, PAGES

pytestmark = pytest.mark.long
pytest.importorskip("sphinx", reason="Sphinx is not installed")
LINK = re.compile(r"""(?:href|src)=["']([^"']+)["']""")
IDENTIFIER = re.compile(r"""\bid=["']([^"']+)["']""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        folder / "trees",
        DOCS,
        folder / "html",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-5000:]
    return folder / "html"


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [page.relative_to(DOCS) for page in PAGES if DOCS in page.parents]
    assert len(pages) > 30
    assert not [page for page in pages if not (site / page).with_suffix(".html").is_file()]


def test_links_lead_to_what_is_there(site: Path) -> None:
    """Those to other sites are not followed."""
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    identifiers = {path: set(IDENTIFIER.findall(text)) for path, text in pages.items()}
    checked, broken = 0, []
    for path, text in pages.items():
        for link in map(unescape, LINK.findall(text)):
            target, _, anchor = unquote(link.partition("?")[0]).partition("#")
            if ":" in target or target.startswith("//"):
                continue
            checked += 1
            file = (path.parent / target).resolve() if target else path
            if not file.exists() or (anchor and file in identifiers and anchor not in identifiers[file]):
                broken.append((path.relative_to(site).as_posix(), link))
    assert checked > 1000
    assert broken == []


def test_the_reference_is_made_from_the_code(site: Path) -> None:
    of_page = {
        name: (site / "reference" / "generated" / f"{name}.html").read_text("utf-8")
        for name in ("commands", "http", "events", "metrics")
    }
    assert "beamer-hostagent" in of_page["commands"]
    assert "/v1/studies/{study}" in of_page["http"]
    assert "StudyRegistered" in of_page["events"]
    assert "beamer_plan_latency_seconds" in of_page["metrics"]
    assert "StudyHandle" in (site / "reference" / "python.html").read_text("utf-8")
