"""Pollux' workloads in our simulator beside its own."""

import pytest

from eval.gpu.claims import Claim, Inputs
from eval.gpu.claims.pollux import PolluxClaim
from eval.gpu.command import read
from eval.gpu.pollux_data import named_in_workloads
from eval.gpu.pollux_data import read as read_applications
from tests.support.inputs import POLLUX_DATA, given
from tests.support.tiers import long

NEAR = 0.10  # share by which two simulators of the same jobs may differ: theirs moves by intervals, ours by events


def claim() -> PolluxClaim:
    found: Claim = read().claim("pollux")
    assert isinstance(found, PolluxClaim)
    return found


@pytest.mark.parametrize("workload", [4, *long(1, 2, 3)])
def test_tiresias_takes_as_long_as_in_the_simulator_of_pollux(workload: int) -> None:
    inputs = Inputs(given(POLLUX_DATA).parent)
    folder = given(POLLUX_DATA)
    absent = tuple(sorted(named_in_workloads(folder) - read_applications(folder).keys()))
    whole = claim().model_copy(update={"without": absent})
    there = whole.peer_means(inputs)
    assert there, "the config has the means for the jobs that the data has"
    contender = next(one for one in whole.contenders(PolluxClaim.cell) if one.name == "tiresias")
    here = whole.run(PolluxClaim.cell, contender, workload, inputs)
    assert here["jct_s"] == pytest.approx(there.mean_jct_s["tiresias"][workload - 1], rel=NEAR)


def test_the_means_are_those_of_contenders_and_stand_beside_ours() -> None:
    names = [one.name for one in claim().contenders(PolluxClaim.cell)]
    for means in claim().peer:
        assert set(means.mean_jct_s) <= set(names)
        runs = {name: [{"seed": 1, "jct_s": 2.0 * times[0]}] for name, times in means.mean_jct_s.items()}
        (table,) = claim().further({"peer": means.model_dump()}, {PolluxClaim.cell: runs})
        assert all(str(cell).endswith(" 2.000") for cell in table.columns[1].cells)
        assert len(table.columns) == 1 + 4
