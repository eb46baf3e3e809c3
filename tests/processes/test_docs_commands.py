"""Blocks of code in the documentation that say so are run as they stand, in the order of their page, in an empty directory."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import PAGES, CodeBlock, blocks, name_of

QUICK, LONG = "here", "long"
PATIENCE_S = 240


def runnable(page: Path) -> list[CodeBlock]:
    return [block for block in blocks(page.read_text("utf-8")) if block.kind == "run" and block.how in (QUICK, LONG)]


@pytest.fixture
def groups() -> Iterator[list[int]]:
    """The process groups of blocks, which end with the test: a block may leave something running for the blocks after it."""
    made: list[int] = []
    yield made
    for group in made:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def run(block: CodeBlock, directory: Path, groups: list[int]) -> tuple[int, str]:
    """Run a block; return its exit code and what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = (
        [sys.executable, "-c", block.code] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", block.code]
    )
    printed = directory / "printed"
    with printed.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        groups.append(process.pid)
        return process.wait(PATIENCE_S), printed.read_text()


def of_pages(*kinds: str) -> list[Path]:
    """Return the pages that have blocks of these kinds only, and some of the last one."""
    found = {page: {block.how for block in runnable(page)} for page in PAGES}
    return [page for page, has in found.items() if kinds[-1] in has and has <= {*kinds}]


@pytest.mark.parametrize(
    "page",
    [*of_pages(QUICK), *(pytest.param(page, marks=pytest.mark.long) for page in of_pages(QUICK, LONG))],
    ids=name_of,
)
def test_what_a_page_shows_can_be_run(page: Path, tmp_path: Path, groups: list[int]) -> None:
    for block in runnable(page):
        code, printed = run(block, tmp_path, groups)
        assert code == 0, f"{name_of(page)}:{block.line}:\n{block.code}\n{printed}"


def test_some_pages_show_what_can_be_run() -> None:
    assert len(of_pages(QUICK)) + len(of_pages(QUICK, LONG)) > 2
