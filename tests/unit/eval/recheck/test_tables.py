"""Every committed table is what today's code makes, as far as its cells can be made again in a test."""

import os
from pathlib import Path

import pytest

from eval.recheck.base import MissingInput, RecheckInputs
from eval.recheck.tables import RECHECKED


def given() -> RecheckInputs:
    """Return the inputs that the environment names."""
    peers = {name: (os.environ.get(f"{name.upper()}_CHECKOUT"), os.environ.get(f"{name.upper()}_PYTHON")) for name in PEERS}
    data = os.environ.get("GPU_DATA")
    found = {name: (Path(folder), Path(python) if python else None) for name, (folder, python) in peers.items() if folder}
    return RecheckInputs(Path(data) if data else None, found)


PEERS = ("pollux", "gavel")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RECHECKED)
def test_todays_code_makes_the_committed_figures(name: str) -> None:
    try:
        cells = RECHECKED[name].cells(given())
    except MissingInput as missing:
        pytest.skip(f"set GPU_DATA, POLLUX_CHECKOUT or GAVEL_CHECKOUT: {missing}")
    assert [str(one) for cell in cells for one in cell.differences()] == [], f"see `python -m eval recheck --tables {name}`"
