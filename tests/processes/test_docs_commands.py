"""Blocks of code in the documentation that say so are run as they stand, in the order of their page, in an empty directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import PAGES, CodeBlock, blocks, name_of

QUICK, LONG = "here", "long"
PATIENCE_S = 240


def runnable(page: Path) -> list[CodeBlock]:
    return [block for block in blocks(page.read_text("utf-8")) if block.kind == "run" and block.how in (QUICK, LONG)]


def run(block: CodeBlock, directory: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a block, and what it has started in the background up to its end."""
    command = (
        [sys.executable, "-c", block.code] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", block.code]
    )
    process = subprocess.Popen(
        command, cwd=directory, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode, output)


def of_pages(*kinds: str) -> list[Path]:
    """Return the pages that have blocks of these kinds only, and some of the last one."""
    found = {page: {block.how for block in runnable(page)} for page in PAGES}
    return [page for page, has in found.items() if kinds[-1] in has and has <= {*kinds}]


@pytest.mark.parametrize(
    "page",
    [*of_pages(QUICK), *(pytest.param(page, marks=pytest.mark.long) for page in of_pages(QUICK, LONG))],
    ids=lambda page: name_of(page),
)
def test_what_a_page_shows_can_be_run(page: Path, tmp_path: Path) -> None:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for block in runnable(page):
        done = run(block, tmp_path, env)
        assert done.returncode == 0, f"{name_of(page)}:{block.line}:\n{block.code}\n{done.stdout}"


def test_some_pages_show_what_can_be_run() -> None:
    assert len(of_pages(QUICK)) + len(of_pages(QUICK, LONG)) > 2
