"""What our policies are told of a peer's jobs, and what comes of their grants there."""

from collections.abc import Mapping
from math import isnan
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from beamer.gpu.model import Costs, Grant, Job
from beamer.gpu.predictors.silence import PATIENCE_S, is_silent
from eval.peers.contender import UNKNOWN_END, PeerContender
from eval.peers.gavel.adapter import EqualShares, PolicyInRounds
from eval.peers.gavel.runner import count_restarts
from eval.peers.job_record import JobRecord
from eval.peers.pollux.adapter import RESTART_S, PolicyInSimulator

EPOCHS = 10


class Toy:
    """An application of ten epochs: 100 iterations each at 8 samples; at 16 samples the first epoch takes 80, the others 50."""

    name, init_batch_size, max_batch_size, min_local_bsz, max_local_bsz, max_epochs = "toy", 8, 64, 4, 16, EPOCHS
    validation: Mapping[int, Any] = {8: SimpleNamespace(metric=SimpleNamespace(values=[10.0, 80.0]))}

    def get_progress(self, epoch: int) -> float:
        return 100.0 * epoch

    def get_iteration(self, batch_size: int, epoch: int) -> float:
        return 100.0 * (epoch + 1) if batch_size == 8 else 80.0 + 50.0 * epoch

    def get_completion_epoch(self, batch_size: int) -> int:
        return EPOCHS - 1

    def get_best_metric(self, batch_size: int, epoch: int) -> float | None:
        return 30.0 * epoch if epoch else None  # percent, and larger is better


def toy(name: str = "a", epochs: float = 0.0, **changes: Any) -> Any:
    """A job of the simulator that has done so many epochs."""
    made = SimpleNamespace(
        name=name,
        application=Toy(),
        submission_time=5,
        target_num_replicas=None,
        target_batch_size=None,
        placement=(),
        atomic_bsz=0,
        accum_steps=0,
        profile={},
        max_profiled_replicas=0,
        grad_params=None,
        progress=100.0 * epochs,
        epoch=int(epochs),
        batch_sizes=[],
    )
    made.update_local_bsz = lambda placement: made.batch_sizes.append(made.target_batch_size)
    vars(made).update(changes)
    return made


class Seen:
    """The adapter with a policy that keeps what it is told and grants what the test says."""

    def __init__(self, **contender: Any) -> None:
        self.now = 60.0
        self.adapter = PolicyInSimulator(PeerContender(policy="fifo", **contender), lambda: self.now, Random(1))
        self.grants: dict[str, Grant] = {}
        self.jobs: list[Job] = []
        self.adapter.policy = SimpleNamespace(allocate=self.allocate)  # type: ignore[assignment]

    def allocate(self, state: Any, cluster: Any, jobs: Any, now: float, rng: Random) -> Any:
        self.jobs = list(jobs)
        return state, self.grants, None

    def look(self, *jobs: Any) -> Job:
        nodes = {number: SimpleNamespace(resources={"nvidia.com/gpu": 4}) for number in range(2)}
        self.given, wanted = self.adapter.optimize({job.name: job for job in jobs}, nodes, {}, nodes[0])
        assert wanted == 2
        return self.jobs[0]


def test_what_is_known_of_the_end() -> None:
    blind = Seen(knows="nothing").look(toy(epochs=2.5)).request
    assert (blind.known_end, blind.iterations) == (False, UNKNOWN_END)
    users = {"sizes": "users'", "knows": "declared end"}
    job = {"target_num_replicas": 2, "target_batch_size": 16}
    # before anything is done, ten times the samples of an epoch; later, as many epochs as declared at the pace so far
    assert Seen(**users).look(toy(**job)).request.iterations == EPOCHS * 100 * 8 // 16
    assert Seen(**users).look(toy(epochs=1.0, **job)).request.iterations == 80 * EPOCHS
    assert Seen(**users).look(toy(epochs=2.0, **job)).request.iterations == 130 * EPOCHS // 2
    assert Seen(sizes="users'", knows="true end").look(toy(epochs=2.0, **job)).request.iterations == 80 + 9 * 50


def test_sizes_of_users_and_free_ones() -> None:
    users = Seen(sizes="users'").look(toy(target_num_replicas=2, target_batch_size=16)).request
    assert (users.gpus, users.least, users.most, users.batch_size, users.max_batch_size) == (2, 1, 4, 16, 16)
    fresh = Seen().look(toy()).request
    assert (fresh.gpus, fresh.most, fresh.batch_size, fresh.max_batch_size) == (1, 1, 8, 64)
    assert Seen().look(toy(max_profiled_replicas=3)).request.most == 6
    assert Seen().look(toy(max_profiled_replicas=30)).request.most == 16  # of 4 samples at least
    assert (fresh.accumulates, fresh.sub_steps(1, 64), fresh.sub_steps(4, 64)) == (True, 4, 1)


def test_reports_are_what_the_job_shows() -> None:
    seen = Seen()
    seen.grants = {"a": Grant((("0000", 2), ("0001", 1)))}
    waiting = seen.look(toy(max_profiled_replicas=2))
    assert (waiting.reports, waiting.speeds, waiting.grant, waiting.submitted_s) == ((), (), None, 5.0)
    assert waiting.costs.restart_s == waiting.costs.resume_s == RESTART_S
    assert waiting.costs.rebatch_s == 0
    assert seen.given == {"a": [0, 0, 1]}
    seen.now = 120.0
    running = toy(
        epochs=0.5,
        placement=(2, 1),
        atomic_bsz=8,
        profile={(2, 3, 8): (0.5, 0.1)},
        grad_params=(1.0, 4.0),
        max_profiled_replicas=3,
    )
    job = seen.look(running)
    assert job.grant == Grant((("0000", 2), ("0001", 1)), batch_size=24)
    first, last = job.reports
    assert (first.at_s, first.iteration, first.loss) == (60.0, 0.0, 1.0)
    assert (last.at_s, last.iteration, last.loss, last.service_s) == (120.0, 50.0, pytest.approx(0.85), 30.0)
    assert (last.gradient_sqr, last.gradient_var) == (1.0, 4.0)
    (speed,) = job.speeds
    assert (speed.gpus, speed.nodes, speed.batch_size, speed.step_s, speed.sync_s) == (3, 2, 24, 0.5, 0.1)
    seen.now, running.progress, running.epoch = 180.0, 120.0, 1
    seen.grants = {}
    job = seen.look(running)
    assert job.reports[-1].loss == pytest.approx(0.64)  # a fifth of the way from 30 to 60 percent
    assert job.reports[-1].service_s == 90.0
    assert seen.given == {}
    seen.now = 240.0
    job = seen.look(running)
    assert (job.grant, job.last, job.service_s, job.gpu_s) == (
        None,
        Grant((("0000", 2), ("0001", 1)), batch_size=24),
        120.0,
        360.0,
    )
    assert len(job.reports) == 3


def test_a_job_that_reports_on_every_look_is_never_silent() -> None:
    seen, running = Seen(), toy(placement=(1,), atomic_bsz=8)
    seen.grants = {"a": Grant((("0000", 1),))}
    for hour in range(1, 5):
        seen.now = 3600.0 * hour
        job = seen.look(running)
        assert not is_silent(job, PATIENCE_S, seen.now)
    assert job.service_at(seen.now) == job.heard_s == 3 * 3600.0
    seen.grants = {}
    seen.look(running)
    seen.now += 3600.0
    assert seen.look(running).unheard_at(seen.now) == 0.0, "who waits cannot report"


def test_variances_are_those_of_the_batch_size_asked_for() -> None:
    seen = Seen(sizes="users'")
    seen.grants = {"a": Grant((("0000", 1),))}
    seen.look(toy(target_num_replicas=1, target_batch_size=16))
    job = seen.look(toy(target_num_replicas=1, target_batch_size=16, placement=(1,), atomic_bsz=16, grad_params=(1.0, 4.0)))
    assert job.reports[-1].gradient_var == 2.0
    assert job.grant == Grant((("0000", 1),))


def test_a_batch_size_is_the_jobs_own_choice_unless_the_policy_is_to_choose() -> None:
    job = toy(max_profiled_replicas=2)
    seen = Seen()
    seen.grants = {"a": Grant((("0000", 3),), batch_size=48)}
    seen.look(job)
    assert (job.target_batch_size, job.batch_sizes) == (None, [])
    seen = Seen(batches="policy")
    seen.grants = {"a": Grant((("0000", 3),), batch_size=48)}
    seen.look(job)
    assert (job.target_batch_size, job.batch_sizes) == (48, [48])
    seen.grants = {"a": Grant((("0000", 3),))}  # 8 samples on 3 GPUs, which take 4 at least
    seen.look(job)
    assert job.target_batch_size == 12


def test_a_job_counts_what_it_computes() -> None:
    job = JobRecord.seen_first("a", 0.0, Costs(restart_s=30.0), 0.0)
    one, other = Grant((("n", 1),)), Grant((("n", 2),))
    job.give(one, 0.0)
    for now in (20.0, 60.0):
        job.advance(now)
    assert job.computed_s == 30.0
    job.give(Grant((("n", 1),), batch_size=4), 60.0)  # another batch size alone is no restart
    job.advance(100.0)
    assert (job.computed_s, job.since_s) == (70.0, 0.0)
    job.give(other, 100.0)
    assert (job.since_s, job.service_s, job.gpu_s) == (100.0, 100.0, 100.0)
    job.give(None, 150.0)
    assert (job.last, job.service_s, job.gpu_s) == (other, 150.0, 200.0)


class OneJob:
    """A job's name in Gavel's simulator."""

    def __init__(self, number: int) -> None:
        self.number = number

    def singletons(self) -> tuple["OneJob", ...]:
        return (self,)

    def __str__(self) -> str:
        return str(self.number)


def test_rounds_of_gavel_are_chosen_by_our_policy() -> None:
    first, second, unseen = map(OneJob, range(3))
    scheduler = SimpleNamespace(
        now=0.0,
        _jobs={job: SimpleNamespace(scale_factor=4, total_steps=100) for job in (first, second, unseen)},
        _allocation={first: {}, second: {}},
        _per_job_start_timestamps=dict.fromkeys((first, second, unseen), 0.0),
        _total_steps_run={first: 0, second: 0},
        _throughputs={job: {"v100": 2.0} for job in (first, second)},
    )
    scheduler.get_current_timestamp = lambda: scheduler.now
    contender = PeerContender(policy="fifo", sizes="users'", knows="true end")
    rounds = PolicyInRounds(contender, scheduler, "v100", 1, 4, Random(1))
    told: list[list[Job]] = []
    allocate = rounds.policy.allocate

    def listening(state: Any, cluster: Any, jobs: Any, now: float, rng: Random) -> Any:
        told.append(list(jobs))
        return allocate(state, cluster, jobs, now, rng)

    rounds.policy = SimpleNamespace(allocate=listening)  # type: ignore[assignment]
    assert rounds.choose(["v100"]) == {"v100": [(first, 4)]}
    scheduler.now, scheduler._total_steps_run[first] = 360.0, 30
    assert rounds.choose(["v100"]) == {"v100": [(first, 4)]}
    running, waiting = told[1]
    assert (running.heard_s, waiting.heard_s, waiting.since_s) == (360.0, 0.0, 0.0)
    assert (running.done, running.remaining, running.request.known_end) == (30.0, 70.0, True)
    assert isnan(running.reports[-1].loss)
    assert (running.speeds[0].gpus, running.speeds[0].step_s, waiting.speeds, waiting.done) == (4, 0.5, (), 0.0)


def test_equal_shares_are_all_of_the_time() -> None:
    assert EqualShares().get_allocation({"a": 1.0}, {"a": 1}, {"v100": 4}) == {"a": {"v100": 1.0}}


def test_restarts_are_other_gpus_or_a_pause() -> None:
    one, other = OneJob(1), OneJob(2)
    rounds = iter([{one: (0, 1)}, {one: (1, 0)}, {one: (0, 2), other: (1,)}, {other: (1,)}, {one: (0, 2), other: (1,)}])
    restarts: dict[str, int] = {}
    schedule = count_restarts(lambda: next(rounds), restarts)
    counts = [(schedule(), dict(restarts))[1].get("1", 0) for _ in range(5)]
    assert counts == [0, 0, 1, 1, 2]
    assert "2" not in restarts
