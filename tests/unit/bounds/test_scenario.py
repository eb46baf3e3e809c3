"""No simulated scenario beats its bound, whatever it asks for."""

from random import Random
from typing import Any

import pytest

from beamer.bounds.scenario import scenario_bounds, scenario_jobs
from beamer.bounds.selection import JOB_BOUNDS
from beamer.network.allocation import Allocator, Greedy, MaxMin
from beamer.sim import Assumptions, simulate
from beamer.workloads.scenario import parse
from tests.support.tiers import long

TOPOLOGY = {"shape": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2, "rate": "20mbit"}


def drawn(seed: int) -> dict[str, Any]:
    """Three searches of two rungs, some of which kill, wait or lose a cable."""
    rng = Random(seed)
    studies: list[dict[str, Any]] = []
    for s in range(3):
        trials = [
            {
                "trial": f"t{t}",
                "workers": rng.sample(["h1", "h2", "h3", "h4"], rng.choice((2, 3))),
                "bytes": rng.choice((100_000, 500_000)),
                "compute_s": rng.choice((0.0, 0.1, 0.5)),
                "overlap": rng.choice((0.0, 0.5)),
            }
            for t in range(3)
        ]
        rungs: list[dict[str, Any]] = [{"iterations": rng.randint(1, 4), "keep": 2}, {"iterations": rng.randint(1, 4)}]
        if rng.random() < 0.4:
            rungs[0]["finish"] = rng.choice((1, 2))
        study: dict[str, Any] = {"study": f"s{s}", "trials": trials, "rungs": rungs, "arrival_s": rng.choice((0.0, 0.0, 0.7))}
        if s and rng.random() < 0.3:
            study["after"] = f"s{s - 1}"
        studies.append(study)
    failures = [{"link": "l1-s1", "at_s": 0.5, "until_s": 2.0}] if rng.random() < 0.5 else []
    return {"name": "drawn", "topology": TOPOLOGY, "studies": studies, "failures": failures}


@pytest.mark.parametrize(("policy", "allocator"), [("fair", MaxMin()), ("beamer", Greedy()), ("sebf", Greedy())])
@pytest.mark.parametrize("seed", [*range(4), *long(*range(4, 20))])
def test_no_schedule_is_below_its_bound(seed: int, policy: str, allocator: Allocator) -> None:
    scenario = parse(drawn(seed))
    found = scenario_bounds(scenario, acknowledgements=False)
    run = simulate(scenario, policy, assumptions=Assumptions(acknowledgements=False), allocator=allocator)
    assert 0 < found.mean_s <= run.mean_sct_s * (1 + 1e-9)
    assert set(JOB_BOUNDS) <= set(found.values) or set(JOB_BOUNDS) <= set(found.inapplicable)
    if not set(JOB_BOUNDS) & set(found.inapplicable):
        assert found.values["barrier"] <= found.values["stage-order"] * (1 + 1e-9)


def test_bounds_that_need_the_jobs_apply_to_some_scenarios_and_say_why_not_to_others() -> None:
    found = [scenario_bounds(parse(drawn(seed))) for seed in range(20)]
    reasons = {each.inapplicable.get("stage-order", "") for each in found}
    assert reasons == {
        "",
        "studies that wait for others are released by the schedule",
        "which jobs a stage kills, and when, is the schedule's choice",
    }
    assert any(each.best == "stage-order" for each in found)


def test_bounds_that_need_the_jobs_are_left_out_where_they_take_long() -> None:
    studies = drawn(2)["studies"][:1] * 9
    many: dict[str, Any] = {
        "name": "many",
        "topology": TOPOLOGY,
        "studies": [{**s, "study": f"s{i}"} for i, s in enumerate(studies)],
    }
    found = scenario_bounds(parse(many))
    assert found.inapplicable["stage-order"] == "got 9 studies of 45 jobs, expected at most 6 of 80"
    assert found.inapplicable["barrier"] == "got 9 studies of 45 jobs, expected at most 8 of 100"
    few = {**many, "studies": many["studies"][:7]}
    assert "barrier" in scenario_bounds(parse(few)).values


@pytest.mark.parametrize("arrival_s", [0.0, 5.0])
def test_arrivals_count_from_the_first(arrival_s: float) -> None:
    scenario = drawn(3)
    for study, later_s in zip(scenario["studies"], (0.0, 0.2, 0.9), strict=True):
        study["arrival_s"] = arrival_s + later_s
        study.pop("after", None)
        study["rungs"][0].pop("finish", None)
    scenario["failures"] = []
    jobs = scenario_jobs(parse(scenario))
    assert jobs.release_s == pytest.approx([0.0, 0.2, 0.9])
