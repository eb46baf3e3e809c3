"""Simulated GPU clusters: closed forms of the literature, accounting, failures, and what tuners do."""

import math
from dataclasses import dataclass, replace
from random import Random

import pytest

from beamer.engines.simulated import Outcome, SimulatedCluster, SimulatedJob, SimulatedProfile
from beamer.errors import EngineError, InputError
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Costs, Grant, Node, Request, Speed
from beamer.gpu.policies import GPU_POLICIES, GpuPolicy, gpu_policy
from beamer.gpu.tuners import HalvingTuner
from beamer.sim.gpu import Arrival, Failure, GpuRun, simulate_gpus
from beamer.studies.model import Rung, TrialStatus
from beamer.testing.gpu_policies import Exponential
from tests.support.tiers import long

N, G, K, W = 40, 4, 100, 5  # jobs, GPUs, iterations of a second each, window
FIXED = ("fifo", "round-robin", "srtf", "tiresias", "k8s-default", "hermes", "tetris")


@dataclass(frozen=True)
class Falling(SimulatedProfile):
    """A second per iteration; its loss falls to a floor, or stays where it is."""

    floor: float
    rate: float = 0.05

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        return 1.0, 0.0

    def outcome(self, iteration: float) -> Outcome:
        return Outcome(self.floor + (1 - self.floor) * math.exp(-self.rate * iteration))


def search(good: set[int], flat: float = 1.0, count: int = N, **request: float) -> list[Arrival]:
    asked = Request(iterations=K, **request)  # type: ignore[arg-type]
    return [Arrival(0.0, "s", f"t{i}", SimulatedJob(asked, Falling(0.05 if i in good else flat))) for i in range(count)]


def run(policy: GpuPolicy[object], arrivals: list[Arrival]) -> GpuRun:
    return simulate_gpus(policy, [Node("n0", G)], arrivals)


def jct_s(one: GpuRun, number: int) -> float:
    return next(job.jct_s for job in one.jobs if job.key == f"s/t{number}")


@pytest.mark.parametrize("good", [7, *long(0, 39)])
def test_one_good_job_among_many_takes_as_long_as_the_closed_forms_say(good: int) -> None:
    assert jct_s(run(gpu_policy("hermes"), search({good})), good) == pytest.approx(N * W / G + (K - W), abs=W)
    assert jct_s(run(gpu_policy("fifo"), search({good})), good) == (good // G + 1) * K
    # slices of one iteration: all finish within the last round
    assert jct_s(run(gpu_policy("round-robin", quantum_s=1.0), search({good})), good) == pytest.approx(N * K / G, abs=N / G)


@pytest.mark.long
def test_fifo_takes_half_of_the_whole_in_the_mean() -> None:
    mean = sum(jct_s(run(gpu_policy("fifo"), search({good})), good) for good in range(N)) / N
    assert mean == pytest.approx((N + 1) * K / (2 * G), rel=0.08)  # jobs start four at a time


@pytest.mark.long
def test_fixed_sizes_without_costs_spend_equal_gpu_seconds() -> None:
    spent = {name: sum(job.gpu_s for job in run(gpu_policy(name), search({3, 20})).jobs) for name in FIXED}
    assert spent == pytest.approx(dict.fromkeys(FIXED, N * K))


@pytest.mark.long
def test_identical_curves_gain_nothing() -> None:
    arrivals = search(set(range(N)))
    assert run(gpu_policy("hermes", hysteresis=1e9), arrivals).mean_jct_s == pytest.approx(
        run(gpu_policy("fifo"), arrivals).mean_jct_s, rel=0.05
    )
    best = run(gpu_policy("fifo"), arrivals).mean_jct_s
    for name in ("hermes", "convergence"):
        assert run(gpu_policy(name), arrivals).mean_jct_s >= best * (1 - 1e-9)


@pytest.mark.long
def test_a_target_that_only_the_good_can_reach_is_found_without_trying_the_others_for_long() -> None:
    arrivals = search({30}, target_loss=0.1)
    assert jct_s(run(gpu_policy("convergence"), arrivals), 30) < jct_s(run(gpu_policy("hermes"), arrivals), 30)


def elastic_jobs(restart_s: float) -> list[Arrival]:
    rng = Random(5)
    return [
        Arrival(
            rng.uniform(0, 600),
            "s",
            f"t{i}",
            SimulatedJob(
                Request(iterations=rng.randint(1000, 3000), gpus=2, min_gpus=1, max_gpus=4, epoch=100),
                Exponential(0.1, 0.05),
                Costs(restart_s=restart_s),
            ),
        )
        for i in range(12)
    ]


def test_equal_costs_give_equal_schedules_and_larger_ones_longer_ones() -> None:
    elastic, termination = (run(gpu_policy(name), elastic_jobs(2.0)) for name in ("elastic", "termination"))
    assert elastic.jobs == termination.jobs
    assert run(gpu_policy("termination"), elastic_jobs(20.0)).mean_jct_s > elastic.mean_jct_s
    assert elastic.mean_jct_s < run(gpu_policy("k8s-default"), elastic_jobs(2.0)).mean_jct_s


def test_changes_cost_what_the_costs_state() -> None:
    def two(suspend_s: float) -> GpuRun:
        job = SimulatedJob(Request(iterations=10), Falling(0.1), Costs(suspend_s, suspend_s, 100.0))
        arrivals = [Arrival(0.0, "s", f"t{i}", job) for i in range(2)]
        return simulate_gpus(gpu_policy("round-robin", quantum_s=5.0), [Node("n", 1)], arrivals)

    assert [job.ended_s for job in two(0.0).jobs] == [15.0, 20.0]
    dear = two(0.5)
    assert sum(job.lost_s for job in dear.jobs) > 0
    # resumed at 10, 15, 20 and 22, it computes nothing for suspend_s + resume_s = 1 s each time
    assert [job.ended_s for job in dear.jobs] == [22.0, 24.0]


def test_a_lost_node_takes_jobs_back_to_their_last_report() -> None:
    job = SimulatedJob(Request(iterations=100, epoch=10), Falling(0.1), Costs(restart_s=3.0))
    lost = simulate_gpus(
        gpu_policy("fifo"), [Node("a", 1), Node("b", 1)], [Arrival(0.0, "s", "t", job)], failures=[Failure(25.0, "a")]
    )
    assert lost.jobs[0].ended_s == 25.0 + 3.0 + (100 - 20)
    assert lost.jobs[0].lost_s == 5.0 + 3.0


def test_a_job_is_lost_with_the_node_of_its_parameter_servers() -> None:
    job = SimulatedJob(Request(iterations=100, epoch=10, servers=True, server_cpus=1.0), Falling(0.1))
    nodes = [Node("gpus", 1), Node("cores", 0, 4.0)]
    lost = simulate_gpus(gpu_policy("fifo"), nodes, [Arrival(0.0, "s", "t", job)], failures=[Failure(25.0, "cores", 40.0)])
    assert lost.jobs[0].lost_s == 5.0
    assert lost.jobs[0].ended_s == 40.0 + (100 - 20)


def test_a_change_is_charged_for_as_long_as_it_was_under_way() -> None:
    work = {"t": SimulatedJob(Request(iterations=100, epoch=10), Falling(0.1), Costs(restart_s=30.0))}
    engine = SimulatedCluster([Node("n", 2)], work)
    engine.start("t", Placement((("n", 0),)))
    engine.advance(5.0)
    engine.resize("t", Placement((("n", 0), ("n", 1))))
    engine.advance(15.0)
    engine.stop("t")
    assert (engine.busy_s, engine.lost_s) == ({"t": 5.0}, {"t": 2 * 10.0})
    engine.stop("t")
    with pytest.raises(EngineError, match="t: resize: no such job has been started"):
        engine.resize("t", None)


@dataclass(frozen=True)
class Epochs(SimulatedProfile):
    """A step takes a second per sample of a GPU and one to synchronise; each epoch is twice as slow as the one before."""

    epoch: int

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        return batch_size / grant.size + 1.0, 1.0

    def outcome(self, iteration: float) -> Outcome:
        return Outcome(1.0)

    def efficiency(self, batch_size: int, iteration: float) -> float:
        return float(0.5 ** (iteration // self.epoch))


def reported(engine: SimulatedCluster, until_s: float) -> list[tuple[float, float]]:
    """Let time pass, and return when the job reported which iteration since the last call."""
    while engine.next_s() <= until_s:
        engine.advance(engine.next_s())
    engine.advance(until_s)
    return [(report.at_s, report.iteration) for report in engine.report()["t"].reports]


def test_reports_come_by_the_clock_and_rates_change_between_them() -> None:
    request = Request(iterations=30, epoch=10, batch_size=1)
    job = SimulatedJob(request, Epochs(10), Costs(restart_s=12.0), report_s=30.0, start_s=5.0)
    engine = SimulatedCluster([Node("n", 2)], {"t": job})
    engine.advance(1.0)
    engine.start("t", Placement((("n", 0),)))
    # two seconds an iteration from 6 s on, four from the tenth at 26 s on, eight from the twentieth at 66 s on, until 146 s
    assert reported(engine, 60.0) == [(1.0, 0.0), (30.0, 11.0), (60.0, 18.5)]
    assert reported(engine, 80.0) == []
    engine.resize("t", Placement((("n", 1),)))
    assert reported(engine, 119.0) == [(90.0, 20 + 14 / 8)], "nothing but what was done before the change"
    assert reported(engine, 120.0) == [(120.0, 20 + 14 / 8 + 28 / 8)]
    assert reported(engine, 1000.0) == [(150.0, 29.0), (158.0, 30.0)]
    assert (engine.busy_s["t"], engine.lost_s["t"]) == (140.0, 5.0 + 12.0)


def test_a_job_that_reports_by_the_clock_goes_back_to_its_last_report() -> None:
    job = SimulatedJob(Request(iterations=30, epoch=10), Epochs(10), report_s=30.0)
    engine = SimulatedCluster([Node("n", 1), Node("m", 1)], {"t": job})
    engine.start("t", Placement((("n", 0),)))
    reported(engine, 33.0)
    engine.lose("n")
    assert engine.lost_s["t"] == 3.0
    engine.start("t", Placement((("m", 0),)))
    # 12.5 iterations until 30 s; the other 17.5 take 30 s and 80 s
    assert reported(engine, 1000.0)[-1] == (33.0 + 110.0, 30.0)


def test_accumulated_steps_synchronise_once() -> None:
    request = Request(iterations=9, gpus=2, batch_size=12, max_local_batch_size=2, accumulates=True)
    job = SimulatedJob(request, Epochs(100), report_s=60.0)
    grant = Grant.of({"n": 2})
    assert job.step(grant, 12) == Speed(2, 1, 0, 12, 3 * 2.0 + 1.0, 1.0, 3)
    assert job.step(grant, 4) == Speed(2, 1, 0, 4, 2.0 + 1.0, 1.0, 1)
    assert replace(job, request=replace(request, accumulates=False)).step(grant, 12) == Speed(2, 1, 0, 12, 6.0 + 1.0, 1.0, 1)
    engine = SimulatedCluster([Node("n", 2)], {"t": job})
    engine.start("t", Placement((("n", 0), ("n", 1))))
    engine.advance(60.0)
    assert engine.report()["t"].speeds == (job.step(grant, 12),)


def test_what_was_profiled_is_known_at_the_first_start() -> None:
    shapes = Grant.of({"n": 1}), Grant.of({"n": 2}, batch_size=4)
    job = SimulatedJob(Request(iterations=9, gpus=1, batch_size=2), Epochs(100), profiled=shapes)
    engine = SimulatedCluster([Node("n", 2)], {"t": job})
    engine.start("t", Placement((("n", 0),)))
    assert engine.report()["t"].speeds == (Speed(1, 1, 0, 2, 3.0, 1.0), Speed(2, 1, 0, 4, 3.0, 1.0))


@pytest.mark.parametrize(("batch_s", "end_s"), [(None, 4.0 + 30.0 + 12.0), (0.0, 4.0 + 12.0)])
def test_another_batch_size_on_the_same_gpus_costs_what_the_costs_state(batch_s: float | None, end_s: float) -> None:
    job = SimulatedJob(Request(iterations=8, batch_size=1), Epochs(100), Costs(restart_s=30.0, batch_s=batch_s), report_s=60.0)
    engine = SimulatedCluster([Node("n", 1)], {"t": job})
    engine.start("t", Placement((("n", 0),)))
    engine.advance(4.0)  # two iterations
    engine.resize("t", Placement((("n", 0),), batch_size=1))
    # six more
    assert reported(engine, 1000.0)[-1] == (end_s, 8.0)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_jobs_that_cannot_be_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="report_s"):
        SimulatedJob(Request(1), Falling(0.1), report_s=seconds)
    with pytest.raises(InputError, match="start_s"):
        SimulatedJob(Request(1), Falling(0.1), start_s=seconds)


def test_a_run_ends_where_the_policy_is_asked_again_and_again_for_nothing() -> None:
    job = SimulatedJob(Request(iterations=10, gpus=2, min_gpus=2), Falling(0.1))
    for name in GPU_POLICIES:
        stuck = simulate_gpus(gpu_policy(name), [Node("n", 1)], [Arrival(0.0, "s", "t", job)])
        assert stuck.jobs[0].jct_s == math.inf


def test_a_lost_node_charges_nothing_to_jobs_that_computed_nothing_on_it() -> None:
    work = {key: SimulatedJob(Request(iterations=100, epoch=10), Falling(0.1)) for key in ("ended", "suspended")}
    engine = SimulatedCluster([Node("n", 2)], work)
    for index, key in enumerate(work):
        engine.start(key, Placement((("n", index),)))
    engine.advance(5.0)
    engine.stop("ended")
    engine.suspend("suspended")
    engine.advance(9.0)
    engine.lose("n")
    assert engine.busy_s == {"ended": 5.0, "suspended": 5.0}
    assert engine.lost_s == {"ended": 0.0, "suspended": 5.0}
    assert {key: seen.state for key, seen in engine.report().items()} == {"suspended": RunState.PARKED}


def test_what_is_reported_as_a_node_is_lost_is_heard() -> None:
    engine = SimulatedCluster([Node("n", 1)], {"t": SimulatedJob(Request(iterations=10, epoch=10), Falling(0.1))})
    engine.start("t", Placement((("n", 0),)))
    engine.advance(10.0)
    engine.lose("n")
    seen = engine.report()["t"]
    assert (seen.state, [report.iteration for report in seen.reports]) == (RunState.FINISHED, [0.0, 10.0])


def test_hermes_queues_no_job_on_a_node_that_lacks_its_cores() -> None:
    job = SimulatedJob(Request(iterations=K, gpus=4, worker_cpus=2.0), Falling(0.1))
    arrivals = [Arrival(0.0, "s", "t0", job)]
    one = simulate_gpus(gpu_policy("hermes"), [Node("few", 4, 4.0), Node("many", 4, 8.0)], arrivals)
    assert jct_s(one, 0) == K


def test_a_short_job_does_not_wait_for_a_long_stage_that_began_with_it() -> None:
    rungs = (Rung("r0", trials=50, step=10), Rung("r1", trials=5, step=20))
    stage = [
        Arrival(0.0, "x", f"t{i}", SimulatedJob(Request(iterations=10), Falling(0.1)), "r0", rungs=rungs) for i in range(50)
    ]
    alone = Arrival(0.0, "y", "t", SimulatedJob(Request(iterations=30), Falling(0.1)), "r0")
    ended = {job.key: job.ended_s for job in simulate_gpus(gpu_policy("convergence"), [Node("n", 1)], [*stage, alone]).jobs}
    assert ended["y/t"] == 30.0


@pytest.mark.parametrize(
    ("failures", "message"),
    [
        ((Failure(5.0, "n0", 9.0), Failure(7.0, "n0")), r"failure\.at_s: got 7\.0, expected a time after 9 s"),
        ((Failure(5.0, "n0", 4.0),), r"failure\.back_s: got 4\.0, expected a time after 5 s"),
    ],
)
def test_failures_that_cannot_be_are_refused(failures: tuple[Failure, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate_gpus(gpu_policy("fifo"), [Node("n0", 1)], search({1}, count=2), failures=failures)


def test_an_unknown_node_and_a_repeated_job_are_refused() -> None:
    arrivals = search({1}, count=2)
    with pytest.raises(InputError, match=r"failure\.node: got 'x', expected one of n0"):
        simulate_gpus(gpu_policy("fifo"), [Node("n0", 1)], arrivals, failures=[Failure(1.0, "x")])
    with pytest.raises(InputError, match="a key that no other trial has"):
        simulate_gpus(gpu_policy("fifo"), [Node("n0", 1)], [*arrivals, arrivals[0]])


@pytest.mark.parametrize("name", GPU_POLICIES)
def test_halving_keeps_the_best_under_every_policy(name: str) -> None:
    rungs = (Rung("r0", 8, 10), Rung("r1", 4, 20), Rung("r2", 1, 40))

    arrivals = [
        Arrival(0.0, "s", f"t{i}", SimulatedJob(Request(iterations=40, epoch=5), Falling(0.1 + 0.1 * i)), rungs=rungs)
        for i in range(8)
    ]
    tuner = HalvingTuner("s", rungs)
    one = simulate_gpus(gpu_policy(name), [Node("n", 3)], arrivals, tuner, until_s=1e5)
    assert tuner.done
    assert {job.key: job.reports[-1].iteration for job in one.jobs} == {
        f"s/t{i}": 40 if i == 0 else 20 if i < 4 else 10 for i in range(8)
    }
    assert all(
        [report.iteration for report in job.reports] == [*range(0, int(job.reports[-1].iteration) + 1, 5)] for job in one.jobs
    )
    assert {job.key for job in one.jobs if job.status is TrialStatus.FINISHED} == {"s/t0"}
    assert {job.status for job in one.jobs} == {TrialStatus.FINISHED, TrialStatus.KILLED}


@pytest.mark.parametrize("name", ["fifo", "round-robin", "tiresias", "pollux", "elastic", "srtf", "hermes"])
def test_two_studies_end_their_stages_sooner_under_the_policy_that_knows_stages(name: str) -> None:
    """Two searches of unlike size on few GPUs: the mean time until a stage has ended."""

    def mean_stage_s(policy: str) -> float:
        arrivals = []
        for study, count, iterations in (("long", 6, 120), ("short", 4, 20)):
            rungs = (Rung("r0", count, iterations), Rung("r1", 1, 2 * iterations))
            job = SimulatedJob(Request(iterations=iterations, epoch=5), Falling(0.5))
            arrivals += [Arrival(0.0, study, f"t{i}", job, "r0", rungs=rungs) for i in range(count)]
        one = simulate_gpus(gpu_policy(policy), [Node("n", 3)], arrivals)
        ends = [max(job.jct_s for job in one.jobs if job.key.startswith(study)) for study in ("long", "short")]
        return sum(ends) / 2

    assert mean_stage_s("convergence") <= mean_stage_s(name)


def test_a_job_that_waits_long_is_promoted_and_stays_so() -> None:
    """Short jobs that fill the machine keep a long one from it, until it has waited long enough."""

    def end_s(promote: float) -> float:
        long = SimulatedJob(Request(iterations=40, epoch=40), Falling(0.1))
        short = SimulatedJob(Request(iterations=9, epoch=9), Falling(0.1))
        arrivals = [Arrival(0.0, "s", "t0", long)]
        arrivals += [Arrival(5.0 + 9.0 * i, "s", f"t{i}", short) for i in range(1, 40)]
        one = simulate_gpus(gpu_policy("tiresias", limits_gpu_s=(10.0,), promote=promote), [Node("n", 1)], arrivals)
        return jct_s(one, 0)

    assert end_s(0.0) == 39 * 9.0 + 40.0
    assert end_s(2.0) < end_s(0.0) / 2


def test_an_epoch_that_ends_where_it_begins_is_passed() -> None:
    class Stuck(Falling):
        def epoch_end(self, request: Request, iteration: float) -> float:
            return iteration

    job = SimulatedJob(Request(iterations=10), Stuck(0.05), report_s=3.0)
    cluster = SimulatedCluster([Node("n", 1)], {"s/t": job})
    cluster.start("s/t", Placement((("n", 0),)))
    while cluster.next_s() < math.inf:
        cluster.advance(cluster.next_s())
    assert cluster.report()["s/t"].reports[-1].iteration == 10.0
