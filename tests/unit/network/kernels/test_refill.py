"""Rates that are brought up to date, after every event of whole runs, against a fill of all channels anew."""

from copy import deepcopy
from random import Random
from typing import Any

import numpy as np
import pytest

from beamer.network.allocation import Allocator, Classes, MaxMin
from beamer.network.allocation.base import Arrangement
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from beamer.network.kernels import sharing
from beamer.network.plan_modes import PLAN_MODES
from beamer.sim import simulate
from beamer.workloads.generate import Workload, generate
from beamer.workloads.scenario import parse
from beamer.workloads.searches import RandomSearch
from tests.support.loads import world
from tests.support.tiers import long
from tests.unit.network.kernels.test_rates import drive

EXACT = 1e-12  # relative; and share of the largest capacity on a channel's path
SHARE = 0.04
ALLOCATORS: dict[str, Allocator] = {
    "maxmin": MaxMin(),
    "classes": Classes(queues=8),
    "a class for each": Classes(queues=None),
    "minimum share": Classes(queues=8, minimum_share=SHARE),
    "caps": Classes(queues=8, minimum_share=SHARE, plan_mode=PLAN_MODES["rates"]),
}


def filled_anew(network: FluidNetwork, minimum_share: float) -> tuple[Any, Any, Any]:
    """Return the rates of the channels, those that filling all of them gives, and the largest capacity on each's path."""
    copy = deepcopy(world(network))
    sharing.allocate(copy, minimum_share)
    channels = copy.channels[: int(copy.now["channels"][0])]
    capacity = copy.links["capacity"][copy.hops["link"]]
    most = [capacity[first:end].max(initial=0.0) for first, end in zip(channels["hop_first"], channels["hop_end"], strict=True)]
    return world(network).channels["rate"][: len(channels)], channels["rate"], np.array(most)


class Checked:
    """Runs a network from event to event and checks its rates after each; counts how often they were brought up to date."""

    def __init__(self, minimum_share: float) -> None:
        self.updates = self.events = self._passes = 0
        self._minimum_share = minimum_share
        self._run = FluidNetwork.run

    def check(self, network: FluidNetwork) -> None:
        kept, anew, capacity = filled_anew(network, self._minimum_share)
        assert (abs(kept - anew) <= EXACT * (anew + capacity)).all(), f"at {network.now_s} s"
        passes = int(world(network).now["passes"][0])
        self.updates += passes > self._passes
        self.events += 1
        self._passes = passes

    def run(self, network: FluidNetwork, until_s: float, by_coflow: bool) -> list[tuple[FluidEvent, int]]:
        while True:
            happened = self._run(network, min(network.now_s, until_s), by_coflow)
            if happened:
                return happened
            self.check(network)
            at_s = network.next_s()
            happened = self._run(network, min(at_s, until_s), by_coflow)
            if happened or at_s >= until_s:
                return happened


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("planes", [*long(1), 4])
def test_whole_runs(name: str, planes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = ALLOCATORS[name]
    checked = Checked(allocator.minimum_share)
    monkeypatch.setattr(FluidNetwork, "run", lambda network, until_s, by_coflow: checked.run(network, until_s, by_coflow))
    shape = {
        "shape": "leaf-spine",
        "leaves": 4,
        "spines": planes,
        "hosts_per_leaf": 4,
        "rate": "1gbit",
        "uplink_rate": "500mbit",
    }
    search = RandomSearch(trials=10, batch=10, iterations=5)
    workload = Workload(
        seed=planes, topology=shape, studies=5, search=search, workers=(4,), placement="random", compute_jitter=0.2
    )
    scenario = generate(workload)
    if planes > 1:  # a cable fails, and comes back
        scenario["failures"] = [{"link": "l1-s1", "at_s": 0.5, "until_s": 1.5}]
    result = simulate(parse(scenario), "beamer" if allocator.heeds_order else "fair", allocator=allocator)
    assert result.jobs
    assert checked.events > 200
    assert checked.updates > 50


@pytest.mark.parametrize("name", ["maxmin", "classes", "minimum share"])
@pytest.mark.parametrize("seed", [*range(8), *long(*range(8, 20))])
def test_jobs_that_come_and_are_killed(name: str, seed: int) -> None:
    rng = Random(1000 + seed)
    allocator = Classes(queues=None, minimum_share=SHARE if name == "minimum share" else 0.0) if name != "maxmin" else MaxMin()
    capacity = [rng.choice((1e6, 1e6, 1e7, 1e9)) for _ in range(rng.randint(2, 8))]
    checked = Checked(allocator.minimum_share)

    def observe(network: FluidNetwork, arrangement: Arrangement, changed: bool) -> None:
        checked.check(network)

    drive(allocator, rng, capacity, observe)
    assert checked.events > 10
    assert checked.updates > 5
