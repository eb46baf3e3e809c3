"""Files that the tests take from outside the tree: published traces and data."""

import os
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

VARIABLE = "BEAMER_INPUTS"
BESIDE = ROOT.parent / "shared"  # beside the checkout
FACEBOOK_TRACE = "traces/FB2010-1Hr-150-0.txt"
ONES_DATA = "data/ones"
POLLUX_DATA = "data/pollux"


def given(name: str) -> Path:
    """Return an input by its path below the folder of inputs; where it is absent, skip the test that asks for it."""
    folder = Path(os.environ.get(VARIABLE) or BESIDE)
    if not (folder / name).exists():
        pytest.skip(f"no {name} in {folder}: {VARIABLE} names the folder of inputs")
    return folder / name
