"""What the simulator makes of a scenario around the network: when it decides, and what is in force meanwhile."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from beamer.network.allocation import Allocator, Classes, EqualSplit, Greedy, MaxMin
from beamer.network.fabric import Fabric
from beamer.network.fluid.flows import Routes
from beamer.network.fluid.network import FluidNetwork
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec, profile
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import Tier, network_policy
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StageView, StudyView
from beamer.sim import Assumptions, SimResult, simulate
from beamer.sim.network_level import NetworkLevel
from beamer.studies.events import AttemptStarted, StageRegistered, StudyRegistered, TargetSet, TrialRegistered
from beamer.studies.model import Role, Worker
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan
from tests.support.bounded import Bounded

PLAIN = Assumptions(acknowledgements=False)
PAIR = (Worker(0, "h1"), Worker(1, "h2"))


def job(sync_bytes: int, iterations: int = 1) -> JobSpec:
    return JobSpec("job", PAIR, iterations, sync_bytes)


def scenario(*jobs: tuple[float, JobSpec], fabric: Fabric | None = None) -> Scenario:
    """A study of one stage per job, from the time given."""
    studies = tuple(StudyPlan(f"s{i}", 1.0, at_s, (StagePlan("rung0", (spec,)),)) for i, (at_s, spec) in enumerate(jobs))
    return Scenario("small", fabric or star(4), 0, 8, studies)


def ends(result: SimResult) -> list[float]:
    return [done.end_s for done in result.jobs]


@pytest.mark.parametrize("policy", ["fair", "beamer"])
def test_nothing_is_decided_while_nothing_happens(policy: str) -> None:
    """Half a day of one iteration: a decision for every half second would be 85 000 of them."""
    simulate(scenario((0.0, job(10**11))), Bounded(network_policy(policy)), assumptions=PLAIN)


@pytest.mark.parametrize("allocator", [MaxMin(), EqualSplit()], ids=lambda allocator: allocator.name)
def test_a_policy_without_an_order_is_not_asked_where_the_network_heeds_none(allocator: Allocator) -> None:
    """What it would read of all running jobs is not worked out: a third of the time of a large simulation."""
    two = scenario((0.0, job(10**6)), (0.1, job(10**6)))
    simulate(two, Bounded(network_policy("fair"), most=0), assumptions=PLAIN, allocator=allocator)
    with pytest.raises(AssertionError, match="has decided 1 times"):
        simulate(two, Bounded(network_policy("fair"), most=0), assumptions=PLAIN, allocator=Classes())


def test_the_rest_of_an_iteration_counts_as_left_to_do() -> None:
    """While workers push to their server, the pull that follows is still to come."""
    fabric = star(3, 8_000_000)
    workers = (Worker(0, "h1"), Worker(1, "h2"), Worker(2, "h3", Role.SERVER))
    spec = JobSpec("job", workers, 3, 10**6, collective="parameter-server")
    view = JobView("a/job", spec, 3, 0, 0.0)
    still = Snapshot.of(fabric, (StudyView("a", 1.0, (StageView("rung0", (view,), 0.0),)),))
    network = FluidNetwork(still.capacity_bps, Greedy())
    network.add(Routes(fabric, False).block([(spec, 0)], [Footprints(fabric).of(spec, 0)]))
    network.start([0])
    network.arrange(Greedy().arrange((Tier(still.jobs.key),), still))
    network.run(0.0, by_coflow=False)
    flying = replace(still, coflows=network.coflows(np.array([0]), still.jobs))
    assert flying.coflows.in_flight.tolist() == [True]
    assert flying.left_s == pytest.approx(still.left_s)


def test_a_trial_that_runs_anew_within_its_attempt_counts_by_its_new_job() -> None:
    """Nothing that its tracker knows has changed, so that its study's columns are the same."""
    ledger = NetworkLedger(star(4))
    tracker = Tracker(ledger)
    five = job(10**6, iterations=5)
    for event in (
        StudyRegistered(0.0, "s"),
        StageRegistered(0.0, "s", "rung0"),
        TrialRegistered(0.0, "s", "job"),
        TargetSet(0.0, "s/job", 5, "rung0"),
        AttemptStarted(0.0, "s/job", "first", PAIR, profile(five)),
    ):
        tracker.apply(event)
    level = NetworkLevel(tracker, ledger, network_policy("beamer"), Random(0), PLAIN, Classes())
    level.run([("s/job", five)], 0.0)
    assert level.snapshot().remaining.tolist() == [5]
    level.stop(["s/job"])
    level.run([("s/job", replace(five, iterations=3))], 0.0, done=2)
    assert level.snapshot().remaining.tolist() == [3]
