"""What each level is told of the other: each part by itself, by hand; all of them change when trials end, never which win."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from beamer.bounds.joint import search_bound_s
from beamer.decision.policy import Stateless
from beamer.errors import InputError
from beamer.gpu.model import Allocation, Cluster, Grant, Job, Node, Request, Speed, Stage
from beamer.gpu.policies import gpu_policy
from beamer.gpu.policies.fifo import Fifo
from beamer.joint.parts import EVERY, NO_PARTS, PARTS, JointParts, check_live
from beamer.joint.phases import Cycle, start_delay_s
from beamer.joint.placement import LinkAware, placed_by_links
from beamer.joint.planes import least_used_plane
from beamer.joint.resizing import Counts, PredictedSpeeds
from beamer.joint.wrapping import network_aware
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec, job_spec
from beamer.network.policies import network_policy
from beamer.sim.joint import JointRun, simulate_scenario
from beamer.studies.model import Profile, Worker
from beamer.testing.fabrics import two_spines
from beamer.workloads.joint import JointScenario, load, parse, shipped
from tests.support.jobs import known_job
from tests.support.tiers import long

LEAVES = two_spines(hosts_per_leaf=3)
NODES = tuple(Node(host.name, 2) for host in LEAVES.hosts)
MEGABYTE = 1_000_000


SEARCH = {
    "arrival_s": 0.0,
    "request": {"gpus": 4},
    "job": {"bytes": MEGABYTE, "compute_s": 0.3},
    "curves": {"trials": 4, "start": 2.3, "floor": [0.1, 1.5], "half": [3, 20]},
    "rungs": [{"iterations": 12, "keep": 2}, {"iterations": 24}],
}


def scenario(**change: object) -> JointScenario:
    """Return two searches of trials that need two hosts each."""
    return parse(
        {
            "name": "parts",
            "topology": {"shape": "leaf-spine", "leaves": 2, "hosts_per_leaf": 3, "spines": 2, "rate": "20mbit"},
            "gpus_per_host": 2,
            "report_s": 0.5,
            "searches": [{"name": name, **SEARCH} for name in ("a", "b")],
            **change,
        }
    )


def job(key: str, gpus: int, grant: Grant | None = None, sync_bytes: int = MEGABYTE, **request: float) -> Job:
    traffic = Profile(sync_bytes, "ring", 0.5)
    return known_job(key, Request(10, gpus, batch_size=gpus, traffic=traffic, **request), 0.0, Stage("s", ""), grant=grant)  # type: ignore[arg-type]


def placed(jobs: Sequence[Job], allocation: Mapping[str, Grant], nodes: Sequence[Node] = NODES) -> Mapping[str, Grant]:
    return placed_by_links(Cluster(tuple(nodes)), jobs, allocation, Footprints(LEAVES))


def spec(*hosts: str) -> JobSpec:
    return job_spec("x", tuple(Worker(rank, host) for rank, host in enumerate(hosts)), Profile(MEGABYTE, "ring", 0.1))


# Placement.


def test_a_trial_goes_to_nodes_of_one_leaf() -> None:
    across = {"s/a": Grant.of({"h1": 2, "h4": 2})}
    found = placed([job("s/a", 4)], across)
    assert [node for node, _ in found["s/a"].gpus] in (["h1", "h2"], ["h1", "h3"])


def test_a_trial_avoids_links_that_others_use() -> None:
    running = job("s/a", 4, Grant.of({"h1": 2, "h4": 2}))
    busy = [Node(name, 2) for name in ("h1", "h2", "h4", "h5", "h6")]  # a trial on h2 has to cross to the other leaf
    jobs = [running, job("s/b", 4)]
    found = placed(jobs, {"s/a": running.grant or Grant(()), "s/b": Grant.of({"h2": 2, "h5": 2})}, busy)
    assert found["s/a"] == running.grant, "what runs stays"
    assert {node for node, _ in found["s/b"].gpus} == {"h5", "h6"}


def test_a_trial_whose_collective_cannot_run_so_keeps_nobody_from_choosing() -> None:
    halving = Request(10, 3, batch_size=3, traffic=Profile(MEGABYTE, "halving-doubling", 0.5))
    odd = known_job("s/a", halving, 0.0, Stage("s", ""))
    allocation = {"s/a": Grant.of({"h3": 1, "h6": 2}), "s/b": Grant.of({"h1": 2, "h4": 2})}
    found = placed([odd, job("s/b", 4)], allocation)
    assert found["s/a"] == allocation["s/a"]
    assert [node for node, _ in found["s/b"].gpus] in (["h1", "h2"], ["h4", "h5"])


def test_trials_keep_their_numbers_of_gpus_by_node_and_no_node_has_more_than_it_has() -> None:
    rng = Random(1)
    for _ in range(200):
        free = {node.name: node.gpus for node in NODES}
        allocation: dict[str, Grant] = {}
        for i in range(rng.randint(1, 4)):
            nodes = rng.sample(
                [name for name, count in free.items() if count], rng.randint(1, min(3, sum(map(bool, free.values()))))
            )
            counts = {name: rng.randint(1, free[name]) for name in nodes}
            for name, count in counts.items():
                free[name] -= count
            allocation[f"s/t{i}"] = Grant.of(counts)
            if not any(free.values()):
                break
        jobs = [job(key, grant.size, rng.choice([grant, None]), rng.choice([0, MEGABYTE])) for key, grant in allocation.items()]
        found = placed(jobs, allocation)
        assert found.keys() == allocation.keys()
        used: dict[str, int] = {}
        for key, grant in found.items():
            assert sorted(count for _, count in grant.gpus) == sorted(count for _, count in allocation[key].gpus)
            for name, count in grant.gpus:
                used[name] = used.get(name, 0) + count
        assert all(used[node.name] <= node.gpus for node in NODES if node.name in used)
        for each in jobs:
            assert not each.grant or found[each.key] == each.grant, "what runs stays"


def test_trials_with_servers_or_cores_stay_where_they_were_placed() -> None:
    served = Grant.of({"h1": 1, "h4": 1}, {"h2": 1})
    cores = Grant.of({"h2": 1, "h5": 1})
    served_by = Profile(MEGABYTE, "parameter-server", 0.5)
    with_servers = Request(10, 2, servers=True, batch_size=2, traffic=served_by)
    jobs = [known_job("s/a", with_servers, 0.0, Stage("s", "")), job("s/b", 2, worker_cpus=1.0)]
    allocation = {"s/a": served, "s/b": cores}
    assert placed(jobs, allocation, [replace(node, cpus=8.0) for node in NODES]) == allocation


def test_the_policy_decides_all_but_the_nodes() -> None:
    policy = LinkAware(Fifo(), LEAVES)
    jobs = [job(f"s/{name}", 4) for name in "abcd"]
    state, found, wake_s = policy.allocate(policy.initial(), Cluster(NODES), jobs, 0.0, Random(0))
    _, plain, plain_wake_s = Fifo().allocate(Fifo().initial(), Cluster(NODES), jobs, 0.0, Random(0))
    assert (policy.name, wake_s, state) == (Fifo.name, plain_wake_s, policy.initial())
    assert {key: grant.size for key, grant in found.items()} == {key: grant.size for key, grant in plain.items()}


# Planes and phases.


def test_a_job_takes_the_plane_that_others_leave_free() -> None:
    footprints = Footprints(LEAVES)
    own, other = spec("h1", "h4"), spec("h2", "h5")
    assert least_used_plane(footprints, own, []) == 0
    assert least_used_plane(footprints, own, [(other, 0)]) == 1
    assert least_used_plane(footprints, own, [(other, 1)]) == 0
    assert least_used_plane(footprints, own, [(other, 0), (other, 0), (other, 1)]) == 1


def test_a_job_starts_when_its_coflows_meet_those_of_others_least() -> None:
    """Of two alike that synchronise for a quarter of an iteration, one an eighth later would still meet the other half-way."""
    other = Cycle(10.0, 8.0, 2.0)
    assert start_delay_s(replace(other, starts_s=18.0), [other]) == pytest.approx(2.0)
    assert start_delay_s(replace(other, starts_s=20.5), [other]) == pytest.approx(0.0), "they do not meet"
    assert start_delay_s(other, []) == 0.0
    assert start_delay_s(Cycle(0.0, 8.0, 0.0), [other]) == 0.0, "it sends nothing"
    always = Cycle(0.0, 2.0, 2.0)
    assert start_delay_s(Cycle(1.0, 8.0, 2.0), [always]) == 0.0, "a delay gains nothing"


# All of it.


@pytest.mark.parametrize("part", [*long(*PARTS), EVERY])
def test_a_part_changes_when_trials_end_and_never_which_win(part: str) -> None:
    def outcome(run: JointRun) -> list[tuple[str, str, float]]:
        return [(each.key, each.status.value, each.reports[-1].iteration) for each in run.jobs]

    plain, told = (
        simulate_scenario(scenario(), gpu_policy("ones"), network_policy("beamer"), parts=JointParts.of("--joint", names))
        for names in ((), (part,))
    )
    assert outcome(told) == outcome(plain)


# Resizing.


class Noting(Fifo):
    """Notes the jobs that it decides on."""

    seen: Mapping[str, Job] = {}

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        self.seen = {one.key: one for one in jobs}
        return super().allocate(state, cluster, jobs, now, rng)


def speeds(*jobs: Job, nodes: Sequence[Node] = NODES) -> list[dict[int, Speed]]:
    """Return the speeds of jobs that a policy sees that is told of the network, by size."""
    noting = Noting()
    told = network_aware(noting, LEAVES, JointParts(resizing=True))
    told.allocate(told.initial(), Cluster(tuple(nodes)), jobs, 0.0, Random(0))
    return [{speed.gpus: speed for speed in noting.seen[one.key].speeds} for one in jobs]


def test_sizes_that_were_not_tried_take_what_their_network_does() -> None:
    waits = job("s/a", 4, min_gpus=1, max_gpus=6)
    (found,) = speeds(waits)
    # It declares 0.5 s on four GPUs; two fit on a node, six on the three nodes of a leaf.
    assert [found[size].nodes for size in (1, 2, 3, 4, 5, 6)] == [1, 1, 2, 2, 3, 3]
    assert [found[size].step_s for size in (1, 2)] == pytest.approx([2.0, 1.0])
    assert [found[size].sync_s for size in (1, 2)] == [0.0, 0.0]
    alone = Footprints(LEAVES).of(spec("h1", "h1", "h2", "h2"), 0).gamma_s
    assert (found[4].step_s, found[4].sync_s) == pytest.approx((0.5 + alone, alone))
    (measured,) = speeds(replace(waits, speeds=(Speed(4, 2, 0, 4, 9.0, 8.0),)))
    assert measured[4] == Speed(4, 2, 0, 4, 9.0, 8.0), "what was measured stays"
    computing = [one[6].step_s - one[6].sync_s for one in (measured, found)]
    assert computing[0] == pytest.approx(2 * computing[1]), "it computes twice as long as it declares"
    assert measured[6].sync_s == pytest.approx(found[6].sync_s)


def test_a_trial_would_grow_on_its_own_nodes_and_those_next_to_them() -> None:
    runs = job("s/a", 2, Grant.of({"h5": 1, "h6": 1}), min_gpus=2, max_gpus=6)
    (found,) = speeds(runs)
    assert found[4].sync_s == pytest.approx(Footprints(LEAVES).of(spec("h5", "h5", "h6", "h6"), 0).gamma_s)
    assert found[6].sync_s == pytest.approx(Footprints(LEAVES).of(spec("h4", "h4", "h5", "h5", "h6", "h6"), 0).gamma_s)
    (suspended,) = speeds(replace(runs, grant=None, last=runs.grant))
    assert suspended == found, "its memory lies there"


def test_sizes_that_cannot_hold_the_batch_are_left_out() -> None:
    small = job("s/a", 4, min_gpus=1, max_gpus=6, max_local_batch_size=2)  # of a batch of four samples
    assert set(speeds(small)[0]) == {2, 3, 4, 5, 6}
    parts = [
        speed.sub_steps
        for _, speed in sorted(speeds(job("s/a", 4, min_gpus=1, max_local_batch_size=2, accumulates=True))[0].items())
    ]
    assert parts == [2, 1, 1, 1]


def test_what_was_measured_comes_last() -> None:
    noting = Noting()
    waits = replace(job("s/a", 4, min_gpus=1, max_gpus=6), speeds=(Speed(2, 1, 0, 4, 1.0, 0.0),))
    PredictedSpeeds(noting, LEAVES).allocate(Stateless(), Cluster(NODES), [waits], 0.0, Random(0))
    assert [speed.gpus for speed in noting.seen["s/a"].speeds] == [6, 5, 4, 3, 1, 2], "policies read the last as the latest"


def test_nothing_is_predicted_of_what_keeps_its_size_or_declares_nothing() -> None:
    fixed, silent = job("s/a", 4), replace(job("s/b", 4, min_gpus=2), request=Request(10, 4, min_gpus=2))
    served = job("s/c", 4, min_gpus=2, servers=True)
    assert speeds(fixed, silent, served) == [{}, {}, {}]
    assert speeds(job("s/a", 4, min_gpus=2), nodes=()) == [{}], "while no node is up"


class ComputingPredicted(PredictedSpeeds):
    """Knows of sizes that were not tried what trials compute for, and nothing of the network."""

    def synchronisation_s(self, counts: Counts, sync_bytes: int, collective: str) -> float | None:
        return 0.0


def test_policies_that_resize_gain_by_what_they_are_told_of_the_network_not_of_computing() -> None:
    searches = scenario(searches=[{**SEARCH, "name": "a", "request": {"gpus": 4, "min_gpus": 1, "max_gpus": 6}}])
    plain, told, computing = (
        simulate_scenario(searches, policy, network_policy("fair"))
        for policy in (
            gpu_policy("convergence"),
            PredictedSpeeds(gpu_policy("convergence"), searches.fabric),
            ComputingPredicted(gpu_policy("convergence"), searches.fabric),
        )
    )
    assert told.network_bytes < min(plain.network_bytes, computing.network_bytes)
    assert told.mean_search_s < min(plain.mean_search_s, computing.mean_search_s)


def test_names_of_parts_are_checked() -> None:
    assert JointParts.of("--joint", ["planes", "placement"]).names == ("placement", "planes")
    assert JointParts.of("--joint", [EVERY]).names == PARTS
    with pytest.raises(InputError, match="'placement'"):
        JointParts.of("--joint", ["placemnt"])
    assert check_live("--joint", JointParts(placement=True)).placement
    with pytest.raises(InputError, match="phases"):
        check_live("--joint", JointParts(phases=True))


# The bound, and what disturbs.


@pytest.mark.parametrize("gpu", ["fifo", "hermes", *long("tiresias", "optimus", "convergence", "ones")])
def test_no_run_is_below_the_bound(gpu: str) -> None:
    for searches, parts in ((scenario(), JointParts.of("parts", [EVERY])), (load(shipped()), NO_PARTS)):
        run = simulate_scenario(searches, gpu_policy(gpu), network_policy("beamer"), parts=parts)
        assert run.mean_search_s >= search_bound_s(searches)


def test_the_bound_by_hand() -> None:
    """A trial takes 24 iterations of 0.3 s on its own nodes and 2 x 3/4 MB at 20 Mbit/s each."""
    alone = scenario()
    alone_s = 24 * (0.3 + 8 * 1.5 * MEGABYTE / 20e6)
    assert search_bound_s(alone) == pytest.approx(alone_s)
    few = scenario(
        gpus_per_host=1, topology={"shape": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 1, "rate": "10gbit"}
    )
    work_s = (4 * 12 + 2 * 12) * 4 * 0.3 / 4  # GPU-seconds of a search on four GPUs
    assert search_bound_s(few) == pytest.approx((work_s + 2 * work_s) / 2)
