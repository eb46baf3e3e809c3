"""No simulated scenario beats its bound, whatever it asks for."""

from random import Random
from typing import Any

import pytest

from beamer.bounds.scenario import scenario_bounds
from beamer.network.allocation import Allocator, Greedy, MaxMin
from beamer.sim import Assumptions, simulate
from beamer.workloads.scenario import parse

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
@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_is_below_its_bound(seed: int, policy: str, allocator: Allocator) -> None:
    scenario = parse(drawn(seed))
    found = scenario_bounds(scenario, acknowledgements=False)
    run = simulate(scenario, policy, assumptions=Assumptions(acknowledgements=False), allocator=allocator)
    assert 0 < found.mean_s <= run.mean_sct_s * (1 + 1e-9)
