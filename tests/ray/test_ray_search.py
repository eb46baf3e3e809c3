"""The comparison of schedulers on Ray: what is drawn, kept and shown. Its runs are made by `python -m eval.gpu.ray_search`."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from rich.console import Console

from eval.gpu.ray_search import CONTENDERS, SEARCHES, RayRun, measure, read, run, table, write
from eval.gpu.ray_trial import SmallNetwork
from eval.ray_cluster import LocalRayCluster

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def made(contender: str, seed: int, to_target_s: float | None = 5.0) -> RayRun:
    return RayRun("one good", contender, seed, (0.1, 0.2), 2.0, to_target_s, 10.0, 6.0, 20, 0, 0)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_good_rates_reach_the_target_in_time_and_no_others_do(name: str) -> None:
    search = SEARCHES[name]
    for rate in (*search.good, *search.bad):
        network = SmallNetwork(rate)
        reached = any(network.train() <= search.target_loss for _ in range(search.iterations))
        assert reached == (rate in search.good)


def test_a_single_good_rate_is_once_in_every_part_of_the_list() -> None:
    search = SEARCHES["one good"]
    places = [search.rates(seed, (seed, 5)).index(search.good[0]) for seed in range(5)]
    assert places == sorted(places)
    assert places[0] <= 2
    assert places[-1] >= 9
    several = SEARCHES["several good"]
    assert sorted(several.rates(3, (3, 5))) == sorted((*several.good, *several.bad))


def test_runs_that_a_file_holds_are_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ray.json"
    searches = {"one good": SEARCHES["one good"]}
    assert read(path, searches) == []
    runs = [made(contender, seed) for seed in (0, 1) for contender in ("asha", "hermes")]
    write(path, searches, runs)
    assert read(path, searches) == runs
    found = measure(searches, ["asha", "hermes"], [0, 1], read(path, searches))
    assert sorted(found, key=runs.index) == runs
    assert read(path, {"one good": replace(searches["one good"], pause_s=1.0)}) == [], "of another search"


def test_a_contender_that_misses_the_target_comes_last() -> None:
    runs = [made("fifo", 0, None), made("asha", 0, 9.0), made("hermes", 0, 4.0)]
    console = Console(width=200, record=True)
    console.print(table("one good", runs))
    text = console.export_text()
    assert text.index("hermes") < text.index("asha") < text.index("fifo")


@pytest.mark.long
def test_a_run_of_a_policy_and_one_of_tune(cluster: LocalRayCluster) -> None:
    search = replace(SEARCHES["several good"], pause_s=0.0)
    for contender in ("asha", "hermes"):
        assert contender in CONTENDERS
        one = run(cluster, "several good", search, contender, 0, (0, 1))
        assert one.to_target_s is not None
        assert one.first_result_s is not None
        assert 0 < one.searched_s < one.ended_s
        assert one.gpu_s > 0
