"""Both levels in one simulation: against either simulator alone, by hand, and the same winners whoever decides."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest

from beamer.decision.policy import Stateless
from beamer.engines.profiles import DataParallelProfile, HyperbolicLoss
from beamer.engines.simulated import SimulatedJob
from beamer.errors import InputError
from beamer.gpu.events import Allocated, GpusRequested, NodesSeen, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Request, Speed
from beamer.gpu.policies import GPU_POLICIES, GpuPolicy, gpu_policy
from beamer.gpu.tuners import NoTuner
from beamer.network.allocation import Classes
from beamer.network.fabric import Fabric
from beamer.network.policies import NetworkPolicy, Order, network_policy
from beamer.network.policies.fair import Fair
from beamer.network.snapshot import Snapshot
from beamer.sim import Assumptions, simulate
from beamer.sim.gpu import Arrival, simulate_gpus
from beamer.sim.joint import JointRun, simulate_joint, simulate_scenario
from beamer.studies.events import Event, StudyRegistered, TrialRegistered
from beamer.studies.model import Profile, Rung, TrialStatus
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from beamer.units import frame_bytes
from beamer.workloads.joint import JointScenario, load, load_either, parse, shipped
from beamer.workloads.scenario import parse as parse_network
from beamer.workloads.scenario import shipped as shipped_network
from tests.support.tiers import few

FABRIC = star(4)
RATE_BPS = 20_000_000
QUIET = Assumptions(acknowledgements=False)
FREE = Costs()


@dataclass(frozen=True)
class Scripted(GpuPolicy[Stateless]):
    """Gives jobs what a script says: grants by key from a time on, and nothing else; it acts at these times alone.

    seen: the jobs, whenever it was asked.
    """

    script: tuple[tuple[float, Mapping[str, Grant]], ...]
    seen: list[Job] = field(default_factory=list)
    name = "scripted"
    State = Stateless

    @classmethod
    def always(cls, grants: Mapping[str, Grant]) -> "Scripted":
        return cls(((0.0, grants),))

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        self.seen.extend(jobs)
        present = [grants for at_s, grants in self.script if at_s <= now][-1]
        later = [at_s for at_s, _ in self.script if at_s > now]
        return state, {job.key: present[job.key] for job in jobs if job.key in present}, min(later, default=None)


class Watching(Fair):
    """Serves fairly, asks to be asked again for ever, and notes what each job has left."""

    def __init__(self) -> None:
        self.left: list[int] = []

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        self.left += snapshot.remaining.tolist()
        state, order, _ = super().order(state, snapshot, now, rng)
        return state, order, now + 0.25


class Impatient(NoTuner):
    """Has seen enough."""

    done = True


def nodes(gpus: int = 2, fabric: Fabric = FABRIC) -> list[Node]:
    return [Node(host.name, gpus) for host in fabric.hosts]


def arrival(
    name: str, gpus: int, sync_bytes: int = 0, iterations: int = 10, at_s: float = 0.0, costs: Costs = FREE, **more: int
) -> Arrival:
    request = Request(
        iterations, gpus, batch_size=gpus, traffic=Profile(sync_bytes, "ring", 0.5), **{"min_gpus": 0, "max_gpus": 0} | more
    )
    profile = DataParallelProfile(HyperbolicLoss(2.0, 0.1, 5.0), gpus, 0.5 * gpus, 0.0)
    return Arrival(at_s, "s", name, SimulatedJob(request, profile, costs))


def scenario(among: Sequence[Node], report_s: float) -> JointScenario:
    return JointScenario("given", FABRIC, tuple(among), seed=0, queues=8, report_s=report_s, searches=())


def run(
    arrivals: Sequence[Arrival],
    gpu: str | GpuPolicy[Any] = "fifo",
    network: str | NetworkPolicy[Any] = "fair",
    gpus: int = 2,
    report_s: float = 0.7,
    **more: Any,
) -> JointRun:
    chosen = gpu_policy(gpu) if isinstance(gpu, str) else gpu
    ordered = network_policy(network) if isinstance(network, str) else network
    given: dict[str, Any] = {"assumptions": QUIET} | more
    tuner = given.pop("tuner", NoTuner())
    return simulate_joint(scenario(nodes(gpus), report_s), arrivals, tuner, chosen, ordered, **given)


def test_a_trial_on_one_host_takes_as_long_as_it_computes() -> None:
    found = run([arrival("a", 2, sync_bytes=1_000_000)])
    assert found.jobs[0].ended_s == pytest.approx(10 * 0.5)
    assert found.network_bytes == 0
    assert found.idle_share == pytest.approx(6 / 8)


def test_a_trial_on_two_hosts_also_synchronises() -> None:
    found = run([arrival("a", 4, sync_bytes=1_000_000)])
    # Of a ring of four, each host sends 2 * 3/4 of the gradients to the other one.
    sync_s = 8 * frame_bytes(1_500_000, FABRIC.mtu) / RATE_BPS
    assert found.jobs[0].ended_s == pytest.approx(10 * (0.5 + sync_s))


@pytest.mark.parametrize("policy", ["fifo", "drf", "tetris"])
def test_without_traffic_it_is_the_simulator_of_gpus(policy: str) -> None:
    costs = Costs(0.1, 0.2, 1.5)
    arrivals = [arrival(f"t{i}", 1 + i % 4, iterations=8 + i, at_s=0.7 * i, costs=costs) for i in range(12)]
    timed = [replace(one, job=replace(one.job, report_s=0.7)) for one in arrivals]
    alone = simulate_gpus(gpu_policy(policy), nodes(), timed)
    both = run(arrivals, policy)
    assert [job.ended_s for job in both.jobs] == pytest.approx([job.ended_s for job in alone.jobs])
    assert [job.gpu_s for job in both.jobs] == pytest.approx([job.gpu_s for job in alone.jobs])


def test_changes_cost_what_they_cost_in_the_simulator_of_gpus() -> None:
    """At iterations' boundaries, a change of GPUs, one of the batch size during it, a suspension, and another batch size."""
    script = (
        (0.0, {"s/a": Grant.of({"h1": 2})}),
        (2.0, {"s/a": Grant.of({"h2": 2})}),
        (3.0, {"s/a": Grant.of({"h2": 2}, batch_size=4)}),
        (7.0, {}),
        (9.0, {"s/a": Grant.of({"h2": 2}, batch_size=4)}),
        (11.5, {"s/a": Grant.of({"h2": 2})}),
    )
    one = arrival("a", 2, iterations=24, costs=Costs(0.25, 0.25, 3.0, 0.5), max_batch_size=8)
    alone = simulate_gpus(Scripted(script), nodes(), [replace(one, job=replace(one.job, report_s=0.5))])
    both = run([one], Scripted(script), report_s=0.5)
    assert both.jobs[0].ended_s == pytest.approx(alone.jobs[0].ended_s)
    assert both.jobs[0].lost_s == pytest.approx(alone.jobs[0].lost_s)
    assert both.jobs[0].gpu_s == pytest.approx(alone.jobs[0].gpu_s)
    assert both.jobs[0].ended_s is not None
    assert both.jobs[0].lost_s > 2 * 3.0


@pytest.mark.parametrize("policy", ["fair", "sebf", "beamer"])
def test_with_everything_placed_at_once_it_is_the_simulator_of_the_network(policy: str) -> None:
    sizes = {"a": 400_000, "b": 900_000, "c": 1_300_000}
    placed = {"a": ["h1", "h1", "h2"], "b": ["h2", "h3"], "c": ["h1", "h2", "h3", "h4"]}
    rungs = (Rung("rung0", 3, 6),)
    arrivals = [
        replace(arrival(name, len(placed[name]), sync_bytes=size, iterations=6), stage="rung0", rungs=rungs)
        for name, size in sizes.items()
    ]
    grants = {f"s/{name}": Grant.of(Counter(hosts)) for name, hosts in placed.items()}
    both = run(arrivals, Scripted.always(grants), policy, gpus=3)
    trials = [{"trial": name, "workers": placed[name], "bytes": size, "compute_s": 0.5} for name, size in sizes.items()]
    content = {
        "name": "n",
        "topology": {"shape": "single", "hosts": 4, "rate": "20mbit"},
        "studies": [{"study": "s", "trials": trials, "rungs": [{"iterations": 6}]}],
    }
    alone = simulate(parse_network(content), policy, assumptions=QUIET)
    expected = {job.names[2]: job.end_s for job in alone.jobs}
    assert {job.key.split("/")[1]: job.ended_s for job in both.jobs} == pytest.approx(expected)
    assert len(set(expected.values())) == 3


def test_policies_see_how_the_network_slows_a_trial_down() -> None:
    policy = Scripted.always({"s/a": Grant.of({"h1": 2, "h2": 2})})
    (job,) = run([arrival("a", 4, sync_bytes=1_000_000)], policy).jobs
    assert job.ended_s is not None
    seen = {speed.step_s for one in policy.seen for speed in one.speeds}
    assert [*seen] == pytest.approx([job.ended_s / 10] * len(seen)), "whenever it reports"
    computed = [speed.step_s - speed.sync_s for one in policy.seen for speed in one.speeds]
    assert computed == pytest.approx([0.5] * len(computed))


def test_on_one_host_nothing_is_synchronised() -> None:
    policy = Scripted.always({"s/a": Grant.of({"h1": 2})})
    run([arrival("a", 2, sync_bytes=1_000_000)], policy)
    speeds = [speed for one in policy.seen for speed in one.speeds]
    assert [speed.step_s for speed in speeds] == pytest.approx([0.5] * len(speeds))
    assert [speed.sync_s for speed in speeds] == pytest.approx([0.0] * len(speeds), abs=1e-9)


@pytest.mark.parametrize(("batch_size", "least"), [(2, 1), (4, 2), (8, 4)])
def test_network_policies_see_what_is_left_in_the_trials_own_steps(batch_size: int, least: int) -> None:
    watching = Watching()
    policy = Scripted.always({"s/a": Grant.of({"h1": 1, "h2": 1}, batch_size=batch_size)})
    run([arrival("a", 2, sync_bytes=1000, iterations=16, max_batch_size=8)], policy, watching)
    assert watching.left[0] == 16
    assert min(watching.left) == least
    assert watching.left == sorted(watching.left, reverse=True)


def test_it_ends_where_nothing_moves_any_more_and_when_the_tuner_is_done() -> None:
    endless = replace(arrival("b", 8, min_gpus=8), study="s")
    arrivals = [
        arrival("a", 2),
        replace(endless, job=replace(endless.job, request=replace(endless.job.request, gpus=9, min_gpus=9))),
    ]
    for policy in ("fifo", "round-robin"):
        found = run(arrivals, policy, Watching())
        assert [job.ended_s for job in found.jobs] == [pytest.approx(5.0), None]
        assert found.mean_search_s == math.inf
    assert run([arrival("a", 2)], tuner=Impatient()).jobs == ()


def test_classes_may_have_a_minimum_share() -> None:
    placed = {"s/a": Grant.of({"h1": 1, "h2": 1}), "s/b": Grant.of({"h1": 1, "h2": 1})}
    arrivals = [arrival("a", 2, 500_000, 4), arrival("b", 2, 2_000_000, 4)]
    ends = {
        share: [
            job.ended_s for job in run(arrivals, Scripted.always(placed), "sebf", allocator=Classes(minimum_share=share)).jobs
        ]
        for share in (0.0, 0.3)
    }
    assert ends[0.0] != ends[0.3]


def test_what_nobody_has_registered_takes_its_share_of_every_link() -> None:
    arrivals = [arrival("a", 4, sync_bytes=1_000_000)]
    plain, slower = (run(arrivals, assumptions=replace(QUIET, unregistered_share=share)) for share in (0.0, 0.2))
    computing_s = 10 * 0.5
    assert 0.8 * (slower.end_s - computing_s) == pytest.approx(plain.end_s - computing_s)
    assert slower.network_bytes == plain.network_bytes, "of what is registered"
    with pytest.raises(InputError, match=r"unregistered_share: got 1.0.*below 1"):
        replace(QUIET, unregistered_share=1.0)


def test_attempts_declare_what_their_trial_does_on_what_it_was_given() -> None:
    def profile(*events: Event) -> Profile:
        tracker = Tracker(GpuLedger())
        request = Request(10, 4, min_gpus=1, max_gpus=8, batch_size=4, traffic=Profile(7, "ring", 0.5, 0.1))
        before = (
            NodesSeen(0.0, tuple(nodes())),
            StudyRegistered(0.0, "s"),
            TrialRegistered(0.0, "s", "a", 10),
            GpusRequested(0.0, "s/a", request),
        )
        grant = Grant.of({"h1": 1, "h2": 1})
        allocated = Allocated(1.0, "p", 1, None, {"s/a": grant}, {"s/a": (("h1", 0), ("h2", 0))})
        for event in (*before, *events, allocated):
            assert tracker.check(event)
            tracker.apply(event)
        attempt = tracker.trial("s/a").attempt
        assert attempt
        return attempt.profile

    assert profile() == Profile(7, "ring", 1.0, 0.1), "on half of the GPUs it computes twice as long"
    assert profile(TrialReported(0.5, "s/a", None, (Speed(2, 2, 0, 4, 3.0, 0.8),))) == Profile(7, "ring", 2.2, 0.1)
    assert profile(TrialReported(0.5, "s/a", None, (Speed(2, 2, 0, 4, 3.0, 0.0),))).compute_s == 1.0, "nothing was measured"
    assert profile(TrialReported(0.5, "s/a", None, (Speed(2, 1, 0, 4, 3.0, 0.8),))).compute_s == 1.0, "on another shape"


@pytest.mark.parametrize("gpu", few(sorted(GPU_POLICIES), always=("hermes", "convergence")))
def test_every_gpu_policy_ends_every_search_with_the_same_trials(gpu: str) -> None:
    scenario = load(shipped())
    winners = {("gpt2/t4", "bert-base/t1", "bert-base/t3", "vit-b16/t2", "vit-b16/t4")}
    found = set()
    for network in ("fair", "beamer"):
        one = simulate_scenario(scenario, gpu_policy(gpu), network_policy(network))
        assert {job.status for job in one.jobs} == {TrialStatus.FINISHED, TrialStatus.KILLED}
        assert len(one.stages) == 8
        found.add(tuple(job.key for job in one.jobs if job.status is TrialStatus.FINISHED))
        assert one.mean_search_s < math.inf
    assert found == winners


def test_a_run_is_repeated_exactly() -> None:
    scenario = load(shipped())
    first, second = (simulate_scenario(scenario, gpu_policy("ones"), network_policy("beamer")) for _ in range(2))
    assert first == second


def test_a_suspended_trial_goes_on_with_the_iteration_that_it_was_in() -> None:
    there = {"s/a": Grant.of({"h1": 2})}
    found = run([arrival("a", 2)], Scripted(((0.0, there), (2.2, {}), (4.0, there))), report_s=0.9)
    reports = [(report.at_s, report.iteration) for report in found.jobs[0].reports]
    expected = [(0.0, 0.0), (0.9, 1.0), (1.8, 3.0), (2.2, 4.0), (4.9, 6.0), (5.8, 8.0), (6.7, 9.0), (6.8, 10.0)]
    assert reports == [(pytest.approx(at_s), iteration) for at_s, iteration in expected]
    assert found.jobs[0].lost_s == pytest.approx(0.0)


def test_a_trial_that_is_suspended_while_it_starts_has_the_rest_of_its_start_before_it() -> None:
    there = {"s/a": Grant.of({"h1": 2})}
    costs = Costs(suspend_s=0.1, resume_s=0.1)
    given = arrival("a", 2, costs=costs)
    starting = replace(given, job=replace(given.job, start_s=4.0))
    found = run([starting], Scripted(((0.0, there), (1.0, {}), (2.0, there), (3.0, {}), (5.0, there))), report_s=0.9)
    # a second of its start, then 0.8 s after what resuming takes, then the rest and ten iterations of half a second
    assert found.jobs[0].ended_s == pytest.approx(5.0 + 0.2 + (4.0 - 1.0 - 0.8) + 5.0)
    assert found.jobs[0].lost_s == pytest.approx(2 * (4.0 + 2 * 0.2)), "what it waited for while suspended is not its loss"


def test_a_trial_that_is_suspended_while_it_is_resumed_waits_for_the_rest_of_that_once() -> None:
    there = {"s/a": Grant.of({"h1": 2})}
    costs = Costs(suspend_s=0.1, resume_s=0.3)
    script = ((0.0, there), (2.45, {}), (4.0, there), (4.3, {}), (5.0, there))
    found = run([arrival("a", 2, costs=costs)], Scripted(script), report_s=0.9)
    # 0.1 s of resuming was left, and 0.05 s of the fifth iteration, which five follow
    assert found.jobs[0].ended_s == pytest.approx(5.0 + 0.4 + 0.1 + 0.05 + 5 * 0.5)
    assert found.jobs[0].lost_s == pytest.approx(2 * (0.3 + 0.4 + 0.1))


def test_what_a_suspended_trial_had_computed_of_its_iteration_is_lost_when_it_moves() -> None:
    here, there = ({"s/a": Grant.of({host: 2})} for host in ("h1", "h2"))
    found = run([arrival("a", 2)], Scripted(((0.0, here), (2.2, {}), (3.0, there))), report_s=0.9)
    assert found.jobs[0].ended_s == pytest.approx(3.0 + 6 * 0.5)
    assert found.jobs[0].lost_s == pytest.approx(2 * 0.2)


def test_a_trial_that_moves_completes_the_iteration_that_it_is_in() -> None:
    here, there = ({"s/a": Grant.of({host: 2})} for host in ("h1", "h2"))
    found = run([arrival("a", 2)], Scripted(((0.0, here), (2.2, there))), report_s=0.9)
    assert found.jobs[0].ended_s == pytest.approx(2.5 + 2.5), "5 iterations here, then 5 there, as moving takes no time"
    assert found.jobs[0].lost_s == pytest.approx(0.0)


def test_network_policies_see_all_that_is_left_to_a_trial_that_is_about_to_move() -> None:
    here, there = ({"s/a": Grant.of({host: 2})} for host in ("h1", "h2"))
    watching = Watching()
    run([arrival("a", 2)], Scripted(((0.0, here), (2.2, there))), watching, report_s=0.9)
    assert set(watching.left) == set(range(1, 11))
    assert watching.left == sorted(watching.left, reverse=True)


def test_a_trial_that_is_given_gpus_of_one_that_leaves_waits_for_its_iteration() -> None:
    first = {"s/a": Grant.of({"h1": 2})}
    later = {"s/a": Grant.of({"h2": 2}), "s/b": Grant.of({"h1": 2})}
    found = run([arrival("a", 2), arrival("b", 2)], Scripted(((0.0, first), (2.2, later))), report_s=0.9)
    assert found.jobs[1].started_s == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nodes": [Node("h9", 2)]}, "nodes"),
        ({"arrivals": [arrival("a", 1), arrival("a", 1)]}, "arrivals"),
        ({"report_s": 0.0}, "report_s"),
    ],
)
def test_what_cannot_be_simulated_is_refused(change: dict[str, object], named: str) -> None:
    given: dict[str, object] = {"nodes": nodes(), "arrivals": [arrival("a", 1)], "report_s": 1.0} | change
    work = scenario(given["nodes"], given["report_s"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=named):
        simulate_joint(work, given["arrivals"], NoTuner(), gpu_policy("fifo"), network_policy("fair"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("gang", False), ("traffic", Profile())])
def test_trials_that_may_run_on_a_part_or_say_nothing_of_their_traffic_are_refused(field: str, value: object) -> None:
    one = arrival("a", 2)
    other = replace(one, job=replace(one.job, request=replace(one.job.request, **{field: value})))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=field):
        run([other])


CONTENT = {
    "name": "n",
    "topology": {"shape": "single", "hosts": 2, "rate": "20mbit"},
    "gpus_per_host": 2,
    "searches": [
        {
            "name": "s",
            "request": {"gpus": 2, "max_gpus": 4},
            "job": {"bytes": "1MB", "compute_s": 0.1},
            "curves": [{"floor": 0.1, "half": 3}, {"floor": 0.2, "half": 3}],
            "rungs": [{"iterations": 2, "keep": 1}, {"iterations": 4}],
        }
    ],
}


def changed(**fields: object) -> dict[str, object]:
    return CONTENT | {"searches": [CONTENT["searches"][0] | fields]}  # type: ignore[index, operator]


def trained(*configurations: object) -> dict[str, object]:
    """Return a search that trains on real packets, whose gradients have 200 kB."""
    return changed(program="digits", configurations=[*configurations], job={"bytes": "200kB", "compute_s": 0.1})


def test_a_simulation_is_the_same_whatever_runs_on_real_packets() -> None:
    given = trained({"learning_rate": 0.1}, {"learning_rate": 0.2, "momentum": 0.5, "channels": 4})
    (search,) = parse(given).searches
    assert search.configurations == {
        "t0": {"learning_rate": 0.1, "momentum": 0.0, "channels": 8},
        "t1": {"learning_rate": 0.2, "momentum": 0.5, "channels": 4},
    }
    plain = parse(changed(job={"bytes": "200kB", "compute_s": 0.1}))
    runs = [simulate_scenario(one, gpu_policy("fifo"), network_policy("fair")) for one in (parse(given), plain)]
    assert runs[0].search_s == pytest.approx(runs[1].search_s)
    assert [(job.key, job.status) for job in runs[0].jobs] == [(job.key, job.status) for job in runs[1].jobs]


def test_the_shipped_search_that_trains_can_be_simulated() -> None:
    scenario = load(shipped().with_name("digits.yaml"))
    assert {plan.program for plan in scenario.searches} == {"digits"}
    run = simulate_scenario(scenario, gpu_policy("fifo"), network_policy("beamer"))
    ended = {plan.name: [job.key for job in run.jobs if job.key.startswith(plan.name)] for plan in scenario.searches}
    finished = [job.key for job in run.jobs if job.status is TrialStatus.FINISHED]
    assert sorted(key.split("/")[0] for key in finished) == sorted(ended)


def test_searches_may_synchronise_by_parameter_servers_beside_their_workers() -> None:
    job = {"bytes": "1MB", "compute_s": 0.1, "collective": "parameter-server"}
    scenario = parse(changed(request={"gpus": 4}, job=job))
    assert all(trial.request.servers for trial in scenario.searches[0].trials.values())
    found = simulate_scenario(scenario, gpu_policy("fifo"), network_policy("fair"), QUIET)
    # Of four workers and four servers each host has two: its workers push a quarter of the gradient to each of the servers of
    # the other host, and pull as much. The first rung has two trials of two iterations, the second one more of two.
    phase_s = 4 * 8 * frame_bytes(250_000, scenario.fabric.mtu) / RATE_BPS
    assert found.end_s == pytest.approx(6 * (0.1 + 2 * phase_s))
    assert [trial.status for trial in found.jobs] == [TrialStatus.FINISHED, TrialStatus.KILLED]


def test_curves_are_as_written_or_drawn_from_the_seed() -> None:
    (search,) = parse(CONTENT).searches
    assert [trial.profile.outcome(0).loss for trial in search.trials.values()] == [1.0, 1.0]
    drawn = changed(curves={"trials": 5, "floor": [0.1, 0.9], "half": [1, 4]})
    losses = [
        [trial.profile.outcome(3).loss for trial in parse(drawn | {"seed": seed}).searches[0].trials.values()]
        for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1] != losses[2]
    assert len(set(losses[0])) == 5


def test_trials_compute_alike_or_for_times_drawn_from_the_seed() -> None:
    def computing(jitter: float, seed: int) -> list[float]:
        job = {"bytes": "1MB", "compute_s": 0.4, "fixed_s": 0.1, "compute_jitter": jitter}
        curves = {"trials": 400, "floor": [0.1, 0.9], "half": [1, 4]}
        (search,) = parse(changed(job=job, curves=curves, rungs=[{"iterations": 4}]) | {"seed": seed}).searches
        for trial in search.trials.values():
            gpus = trial.request.gpus
            (step_s, _) = trial.profile.step_s(Grant.of({"h1": gpus}), gpus)
            assert trial.request.traffic.compute_s == pytest.approx(step_s), "what is declared is what it does"
        return [(trial.request.traffic.compute_s or 0.0) - 0.1 for trial in search.trials.values()]

    assert computing(0.0, 0) == pytest.approx([0.4] * 400)
    drawn = computing(0.2, 1)
    assert drawn == computing(0.2, 1) != computing(0.2, 2)
    logs = [math.log(seconds / 0.4) for seconds in drawn]
    assert fmean(logs) == pytest.approx(0.0, abs=0.03)
    assert stdev(logs) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (7, "scenario"),
        (CONTENT | {"gpus_per_host": 0}, "gpus_per_host"),
        (CONTENT | {"searches": [*CONTENT["searches"], *CONTENT["searches"]]}, r"searches\[1\].name"),  # type: ignore[misc]
        (changed(request={"gpus": 5}), r"searches\[0\].request.gpus"),
        (changed(request={"gpus": 2, "min_gpus": 3}), r"searches\[0\].request.gpus"),
        (changed(job={"bytes": "1MB", "compute_s": 0.1, "compute_jitter": -0.1}), r"searches\[0\].job.compute_jitter"),
        (changed(curves=7), r"searches\[0\].curves"),
        (changed(curves=[{"flor": 1, "half": 2}]), r"searches\[0\].curves\[0\].flor"),
        (changed(curves={"trials": 2, "floor": 0.1, "half": [1, 4]}), r"searches\[0\].curves.floor"),
        (changed(curves={"floor": [0.1, 0.2], "half": [1, 4]}), r"searches\[0\].curves.trials"),
        (changed(rungs=[{"iterations": 3 * 10**12}]), r"searches\[0\].rungs\[0\].iterations"),
        (changed(arrival_s=1e18), r"searches\[0\].arrival_s: got 1e\+18, expected less than or equal to 31622400"),
        (changed(job={"bytes": "1MB", "compute_s": 1e18}), r"searches\[0\].job.compute_s: .* less than or equal to 31622400"),
        (changed(curves={"trials": 10**9, "floor": [0.1, 0.2], "half": [1, 4]}), r"searches\[0\].curves.trials: .*1048576"),
        (changed(curves=[{"floor": 1e300, "half": 2}]), r"searches\[0\].curves\[0\].floor: .*1000000000000000"),
        (CONTENT | {"gpus_per_host": 2**31 - 1}, "gpus_per_host: .* less than or equal to 1024"),
        (CONTENT | {"searches": []}, "searches: got \\[\\], expected a list with at least 1 entry"),
        (changed(job={"bytes": 10**16, "compute_s": 0.1}), r"searches\[0\].job.bytes"),
        (changed(curves=[]), r"searches\[0\].curves"),
        (changed(curves={"trials": 2, "floor": [0.9, 0.1], "half": [1, 4]}), r"searches\[0\].curves.floor"),
        (changed(rungs=[{"iterations": 2}, {"iterations": 4}]), r"searches\[0\].rungs\[0\].keep"),
        (changed(rungs=[{"iterations": 2, "keep": 1}, {"iterations": 2}]), r"searches\[0\].rungs\[1\].iterations"),
        (changed(job={"bytes": "1MB", "compute_s": 0.1, "collective": "rign"}), r"searches\[0\].job.collective"),
        (
            changed(job={"bytes": "1MB", "compute_s": 0.1, "collective": "halving-doubling"}),
            r"searches\[0\].job.collective.*3 workers",
        ),
        (changed(program="digit"), r"searches\[0\].program.*did you mean 'digits'"),
        (changed(configurations=[{}, {}]), r"searches\[0\].configurations.*without a program that has them: digits"),
        (changed(program="digits"), r"searches\[0\].configurations.*a list of 2, one for each curve"),
        (trained({"learning_rate": 0.1}), r"searches\[0\].configurations.*a list of 2"),
        (trained({"learning_rate": 0.1}, {"momentum": 0.9}), r"searches\[0\].configurations\[1\].learning_rate"),
        (trained({"learning_rate": 0.1}, {"learning_rate": 0}), r"searches\[0\].configurations\[1\].learning_rate"),
        (
            trained({"learning_rat": 0.1}, {"learning_rate": 1}),
            r"searches\[0\].configurations\[0\].learning_rat.*did you mean 'learning_rate'",
        ),
        (
            trained({"learning_rate": 0.1}, {"learning_rate": 0.1, "channels": 64}),
            r"searches\[0\].job.bytes: got 200000, expected at least 306268, the smallest gradient of",
        ),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(content: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse(content)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("gpus_per_host: 2\nserches: []", "did you mean 'searches'"),
        ("name: s\ntopology: {}\nsearches: [7]", "gpus_per_host: got None"),
        ("name: s\nsearchs: []", "searchs: got .*studies"),
        ("[]", "a mapping with name, topology"),
    ],
)
def test_a_file_with_searches_or_gpus_is_read_as_one_for_both_levels(content: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(content)
    with pytest.raises(InputError, match=named):
        load_either(file, {"--joint": None})


def test_of_the_shipped_scenarios_an_option_of_the_gpu_level_chooses_the_one_for_both() -> None:
    assert load_either(None, {"--joint": None})[0] == shipped_network()
    path, scenario = load_either(None, {"--gpu-policy": "fifo", "--joint": None})
    assert (path, isinstance(scenario, JointScenario)) == (shipped(), True)


def test_a_trial_may_be_resized_beyond_what_there_is() -> None:
    (search,) = parse(changed(request={"gpus": 2, "max_gpus": 10**6})).searches
    assert search.trials["t0"].request.most == 10**6
