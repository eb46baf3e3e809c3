"""Checks of simulated runs under any policy and allocator that go together; run each of `SIMULATION_CHECKS`."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given

from beamer.network.allocation import Allocator
from beamer.network.collectives import phases
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec
from beamer.network.policies import NetworkPolicy
from beamer.sim import Assumptions, SimResult, simulate
from beamer.units import frame_bytes
from beamer.workloads.scenario import Scenario
from eval.asynchronous import simulation
from eval.asynchronous.simulation import AsynchronousScenario
from tests.support.bounded import Bounded
from tests.support.long_runs import RUNS
from tests.support.strategies import asynchronous_scenarios, scenarios

SimulationCheck = Callable[[NetworkPolicy[Any], Allocator], None]

PLAIN = Assumptions(acknowledgements=False)


def _run(scenario: Scenario, policy: NetworkPolicy[Any], allocator: Allocator) -> SimResult:
    return simulate(scenario, Bounded(policy), assumptions=PLAIN, allocator=allocator)


def _alone_s(spec: JobSpec, scenario: Scenario) -> float:
    """The least seconds that a job takes on its best plane."""
    footprints = Footprints(scenario.fabric)
    gamma = min(footprints.of(spec, plane).gamma_s for plane in range(scenario.fabric.planes))
    return spec.iterations * max(spec.compute_s, (1 - spec.overlap) * spec.compute_s + gamma)


def ends_every_stage_in_turn(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """All stages end, none before its critical path, each starting when the one before it in its study ends."""

    @RUNS
    @given(scenarios())
    def check(scenario: Scenario) -> None:
        result = _run(scenario, policy, allocator)
        took = {(stage.study, stage.stage): stage for stage in result.stages}
        for study in scenario.studies:
            start_s = study.arrival_s
            for plan in study.stages:
                stage = took.pop((study.name, plan.name))
                assert stage.start_s == start_s
                assert stage.sct_s >= max(_alone_s(spec, scenario) for spec in plan.jobs) * (1 - 1e-6)
                start_s = stage.end_s
        assert not took

    check()


def carries_every_byte(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """Hosts send and receive exactly the bytes that their jobs' synchronisations consist of."""

    @RUNS
    @given(scenarios())
    def check(scenario: Scenario) -> None:
        expected: defaultdict[str, float] = defaultdict(float)
        edge = scenario.fabric.edge_of
        for spec in (spec for study in scenario.studies for stage in study.stages for spec in stage.jobs):
            host_of = {worker.rank: worker.host for worker in spec.workers}
            for transfer in (transfer for phase in phases(spec) for transfer in phase):
                src, dst = host_of[transfer.src_rank], host_of[transfer.dst_rank]
                if src != dst:
                    size = spec.iterations * frame_bytes(transfer.size_bytes, scenario.fabric.mtu)
                    expected[f"{src}-{edge[src]}"] += size
                    expected[f"{edge[dst]}-{dst}"] += size
        carried = _run(scenario, policy, allocator).link_bytes
        for host in scenario.fabric.hosts:
            for link in (f"{host.name}-{edge[host.name]}", f"{edge[host.name]}-{host.name}"):
                assert math.isclose(carried[link], expected[link], rel_tol=1e-6)

    check()


def repeats_itself(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """Equal scenarios have exactly equal runs, and other names for the same studies change no time."""

    @RUNS
    @given(scenarios())
    def check(scenario: Scenario) -> None:
        first = _run(scenario, policy, allocator)
        assert _run(scenario, policy, allocator) == first
        renamed = tuple(replace(study, name=f"z{9 - i}") for i, study in enumerate(scenario.studies))
        other = _run(replace(scenario, studies=renamed), policy, allocator)
        assert [(s.start_s, s.end_s) for s in other.stages] == [(s.start_s, s.end_s) for s in first.stages]

    check()


def ends_every_search(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """Searches without barriers end, with what completed their top rung in between; equal scenarios have equal runs."""

    @RUNS
    @given(asynchronous_scenarios())
    def check(scenario: AsynchronousScenario) -> None:
        result = simulation.simulate(scenario, Bounded(policy), PLAIN, allocator)
        assert [search.study for search in result.searches] == [plan.name for plan in scenario.asynchronous]
        for plan, search in zip(scenario.asynchronous, result.searches, strict=True):
            least_s = min(_alone_s(replace(slot, iterations=plan.search.steps[-1]), scenario) for slot in plan.slots)
            times = [done.at_s for done in search.completions]
            assert search.start_s == plan.arrival_s
            assert times == sorted(times)
            assert all(search.start_s + least_s * (1 - 1e-6) <= at_s <= search.end_s for at_s in times)
        assert simulation.simulate(scenario, Bounded(policy), PLAIN, allocator) == result

    check()


SIMULATION_CHECKS: tuple[SimulationCheck, ...] = (
    ends_every_stage_in_turn,
    carries_every_byte,
    repeats_itself,
    ends_every_search,
)
