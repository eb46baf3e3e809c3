"""What is compared between our simulator and Pollux' own."""

import pytest

from eval.gpu import agreement
from eval.gpu.results_file import ClaimResults, read_results
from eval.peers.contender import PeerContender
from eval.peers.report import PeerFigures
from eval.peers.results_file import PeerResults
from eval.peers.runs import FinishedRun


@pytest.fixture(scope="module")
def claim() -> ClaimResults:
    [found] = [one for one in read_results().claims if one.claim.name == "pollux"]
    return found


def peer(**mean_s: list[float]) -> PeerResults:
    """Results on workloads 1, 2 and so on. Names: a policy of ours or `theirs`, then what it knows, then the sizes."""
    runs = {}
    for name, values in mean_s.items():
        policy, knows, sizes = name.split("_")
        who = PeerContender(
            policy="pollux" if policy == "theirs" else policy,
            own=policy == "theirs",
            knows="true end" if knows == "end" else "nothing",
            sizes="users'" if sizes == "users" else "free",
        )
        runs[who] = {
            (str(i), seed): FinishedRun("key", PeerFigures(one, 1.0, 1.0, 0.0), False, 1.0, {})
            for i, one in enumerate(values, 1)
            for seed in (1, 2)
        }
    return PeerResults("Pollux' simulator", "", {}, next(iter(runs)), runs)


def test_policies_are_compared_where_they_are_told_and_asked_the_same(claim: ClaimResults) -> None:
    theirs = peer(
        theirs_nothing_free=[50.0, 50.0],
        pollux_nothing_free=[100.0, 200.0],
        convergence_nothing_users=[200.0, 200.0],
        convergence_end_free=[50.0, 100.0],
        fifo_nothing_free=[1.0, 1.0],
    )
    workloads, found = agreement.agreements(claim, theirs)
    assert workloads == ["1", "2"]
    assert [(one.contender.policy, one.contender.sizes) for one in found] == [
        ("convergence", "free"),
        ("pollux", "free"),
        ("convergence", "users'"),
    ], "in the order of their times there; no jobs of free sizes ran under fifo here"
    assert [one.there for one in found] == pytest.approx([0.5, 1.0, 2.0**0.5])
    runs = claim.cells["all policies"]
    jct_s = {who: {one["seed"]: one["jct_s"] for one in runs[who]} for who in ("convergence", "pollux")}
    expected = [jct_s["convergence"][seed] / jct_s["pollux"][seed] for seed in (1, 2)]
    assert found[2].here == pytest.approx((expected[0] * expected[1]) ** 0.5)
    assert found[1].here == 1.0
    assert agreement.table(workloads, found).row_count == 3


def test_other_parameters_are_another_policy(claim: ClaimResults) -> None:
    theirs = peer(pollux_nothing_free=[1.0], convergence_nothing_users=[1.0])
    changed = {
        who.model_copy(update={"parameters": {"window": 3}}) if who.policy == "convergence" else who: runs
        for who, runs in theirs.runs.items()
    }
    _, found = agreement.agreements(claim, PeerResults("", "", {}, theirs.base, changed))
    assert [one.contender.policy for one in found] == ["pollux"]


def test_without_the_base_nothing_is_compared(claim: ClaimResults) -> None:
    assert agreement.agreements(claim, peer(convergence_nothing_users=[1.0])) == ([], [])
