"""Caps in the simulated network: rates against the plain allocation, and what each sender sends for a job against its cap."""

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest

from beamer.errors import InputError
from beamer.network.allocation import Allocator, Classes
from beamer.network.allocation.base import Arrangement
from beamer.network.ceilings import Ceilings
from beamer.network.collectives import phases
from beamer.network.fabric import Fabric
from beamer.network.fluid.flows import Routes
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec
from beamer.network.plan_modes import ByRates
from beamer.sim import Assumptions, simulate
from beamer.studies.model import Role, Worker
from beamer.testing.fabrics import star, two_spines
from beamer.workloads.scenario import CableFailure, Scenario, StagePlan, StudyPlan
from tests.support.loads import demands, next_s, rates, world
from tests.support.reference.classes import classes

PLAIN = Assumptions(acknowledgements=False)
RATE = 20_000_000
SHARE = 0.04
CAPPING = ByRates(Ceilings(oversubscription=1.0))


def drawn(fabric: Fabric, rng: Random, name: str) -> JobSpec:
    hosts = rng.sample([host.name for host in fabric.hosts], rng.randint(2, 4))
    served = rng.random() < 0.4
    workers = tuple(
        Worker(rank, host, Role.SERVER if served and rank == len(hosts) - 1 else Role.WORKER) for rank, host in enumerate(hosts)
    )
    collective = "parameter-server" if served else "ring"
    return JobSpec(name, workers, rng.randint(1, 4), rng.choice((10**5, 10**6)), collective, rng.choice((0.0, 0.1)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("minimum_share", [0.0, SHARE])
def test_rates_are_the_plain_ones_and_no_sender_exceeds_its_cap(seed: int, minimum_share: float) -> None:
    rng = Random(seed)
    fabric = star(6)
    routes = Routes(fabric, acknowledgements=False, caps=True)
    capacity = np.array([float(link.rate_bps) for link in fabric.links])
    network = FluidNetwork(capacity, Classes(queues=3, minimum_share=minimum_share))
    footprints = Footprints(fabric)
    specs = [drawn(fabric, rng, f"j{i}") for i in range(8)]
    for batch in (specs[:5], specs[5:]):
        network.add(routes.block([(spec, 0) for spec in batch], [footprints.of(spec, 0) for spec in batch]))
    running = list(range(len(specs)))
    network.start(running)
    seen = 0
    while running:
        order = rng.sample(running, len(running))
        group = np.sort([rng.randrange(3) for _ in order])
        cap_bps = [rng.choice((np.inf, RATE / 3, RATE / 20)) for _ in order]
        network.arrange(Arrangement(np.array(order), group, np.array(cap_bps)))
        ended: list[int] = []
        for _ in range(rng.randint(1, 4)):
            if network.run(network.now_s, by_coflow=True):
                break
            limits = world(network).links["capacity"].tolist()
            plain = partial(classes, minimum_share=minimum_share, shared=len(capacity))
            demanded, given = demands(network, order, group.tolist()), rates(network, order).tolist()
            assert given == pytest.approx(plain(demanded, limits), rel=1e-6, abs=1e-6)
            sent: dict[tuple[int, str], float] = {}
            for demand, rate in zip(demanded, given, strict=True):
                first = next(link for link in demand.usage if link < len(capacity) and fabric.links[link].src in fabric.host)
                key = demand.coflow, fabric.links[first].src
                sent[key] = sent.get(key, 0.0) + rate
            for (job, host), total in sent.items():
                alone = footprints.of(specs[job], 0).sender_bps
                assert total <= cap_bps[order.index(job)] * alone[host] / max(alone.values()) * (1 + 1e-9)
                seen += 1
            happened = network.run(next_s(network), by_coflow=False)
            ended += [job for kind, job in happened if kind is FluidEvent.FINISHED]
            if happened:
                break
        running = [job for job in running if job not in ended and network.remaining[job] > 0]
    assert seen > 20
    assert len(network.carried_bits()) == len(capacity)


def test_links_carry_what_jobs_send_whatever_their_caps() -> None:
    fabric = star(3)
    spec = JobSpec("j", (Worker(0, "h1"), Worker(1, "h2")), 2, 10**6)
    routes = Routes(fabric, acknowledgements=False, caps=True)
    network = FluidNetwork(np.full(len(fabric.links), float(RATE)), Classes())
    network.add(routes.block([(spec, 0)], [Footprints(fabric).of(spec, 0)]))
    network.start([0])
    network.arrange(Arrangement(np.array([0]), np.array([0]), np.array([RATE / 4])))
    network.run(1e9, by_coflow=False)
    (transfer, _) = phases(spec)[0]
    bits = 2 * routes.bits(transfer.size_bytes)
    assert network.now_s == pytest.approx(bits / (RATE / 4))
    assert sorted(network.carried_bits().tolist()) == pytest.approx([0.0, 0.0] + [bits] * 4)


def test_a_cap_needs_links_that_hold_senders_to_it() -> None:
    fabric = star(2)
    spec = JobSpec("j", (Worker(0, "h1"), Worker(1, "h2")), 1, 10**6)
    network = FluidNetwork(np.full(len(fabric.links), float(RATE)), Classes())
    network.add(Routes(fabric, False).block([(spec, 0)], [Footprints(fabric).of(spec, 0)]))
    with pytest.raises(InputError, match="cap_bps"):
        network.arrange(Arrangement(np.array([0]), np.array([0]), np.array([1e6])))


def scenario(*jobs: JobSpec, fabric: Fabric | None = None) -> Scenario:
    studies = tuple(StudyPlan(f"s{i}", 1.0, 0.0, (StagePlan("rung0", (spec,)),)) for i, spec in enumerate(jobs))
    return Scenario("small", fabric or star(4), 0, 8, studies)


def ends(work: Scenario, allocator: Allocator) -> list[float]:
    return [done.end_s for done in simulate(work, "fifo", assumptions=PLAIN, allocator=allocator).jobs]


def test_ceilings_order_two_jobs_on_one_queue_and_starve_none() -> None:
    spec = JobSpec("job", (Worker(0, "h1"), Worker(1, "h2")), 10, 10**6)
    (alone,) = ends(scenario(spec), Classes(queues=1))
    first, second = ends(scenario(spec, spec), Classes(queues=1, plan_mode=CAPPING))
    assert alone < first < alone / 0.94, "the other has at most a twentieth"
    assert second == pytest.approx(2 * alone), "no time is lost, as it may send all when the first has ended"


def test_caps_stay_with_their_senders_when_a_cable_dies() -> None:
    fabric = two_spines()
    spec = JobSpec("job", (Worker(0, "h1"), Worker(1, "h3")), 10, 10**6)
    broken = replace(scenario(spec, spec, fabric=fabric), failures=(CableFailure(("l1", "s1"), 0.5, 3.0),))
    with_caps = ends(broken, Classes(queues=1, plan_mode=CAPPING))
    in_order = ends(broken, Classes(queues=2))
    assert with_caps[0] == pytest.approx(in_order[0], rel=0.06)
    assert with_caps[1] == pytest.approx(in_order[1], rel=0.06)


def test_unlimited_classes_need_no_ceilings() -> None:
    with pytest.raises(InputError, match="queues"):
        Classes(queues=None, plan_mode=CAPPING)
