"""Blocks of code in the documentation that say so are run as they stand, in the order of their page, in an empty directory."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
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


def quick(page: Path) -> list[CodeBlock]:
    """Return the blocks of a page that take no long time, up to the first that does."""
    return list(takewhile(lambda block: block.how == QUICK, runnable(page)))


CASES = [
    *(pytest.param(quick(page), id=name_of(page)) for page in PAGES if quick(page)),
    *(
        pytest.param(runnable(page), id=f"{name_of(page)}, all", marks=pytest.mark.long)
        for page in PAGES
        if len(runnable(page)) > len(quick(page))
    ),
]


@pytest.mark.parametrize("shown", CASES)
def test_what_a_page_shows_can_be_run(shown: list[CodeBlock], tmp_path: Path, groups: list[int]) -> None:
    for block in shown:
        code, printed = run(block, tmp_path, groups)
        assert code == 0, f"line {block.line}:\n{block.code}\n{printed}"


def test_some_pages_show_what_can_be_run() -> None:
    assert len(CASES) > 3
