"""What trials live through: pauses, other numbers of GPUs, rungs, nodes that are killed."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest

from beamer.decision.policy import Stateless

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from ray import tune
from ray.tune import Callback, Tuner
from ray.tune.execution.tune_controller import TuneController
from ray.tune.result import NODE_IP
from ray.tune.schedulers import TrialScheduler

from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.errors import InputError
from beamer.gpu.events import Allocated, NodesSeen, TrialReported
from beamer.gpu.model import Allocation, Cluster, Job, Request
from beamer.gpu.placement import CompactPlacer, pack
from beamer.gpu.policies import GpuPolicy, gpu_policy
from beamer.schedule.statistics import SearchStatistics
from beamer.studies.events import StageSealed, TrialEnded
from beamer.studies.journal.store import Journal
from beamer.studies.model import Rung, TrialStatus, split_key
from eval.ray_cluster import LocalRayCluster
from tests.ray.searches import Regression, Trial, overlaps, run, steps, undisturbed, write

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

E = TypeVar("E")
RATES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4)


@dataclass(frozen=True)
class Restless(GpuPolicy[Stateless]):
    """Give a job one more GPU with every second iteration that it has done, and now and then take jobs off theirs."""

    name = "restless"
    resizes = True
    State = Stateless

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        sizes = {job.key: 1 + int(job.done) // 2 for job in jobs}
        kept = [job for job in jobs if job.grant and job.grant.size == sizes[job.key] and rng.random() < 0.9]
        others = [job for job in rng.sample(jobs, len(jobs)) if job not in kept]
        placer, grants = CompactPlacer(cluster), {}
        for job in kept + others:
            if grant := placer.place(job, sizes[job.key], batch_size=8 * sizes[job.key]):
                grants[job.key] = grant
        return state, grants, None


def journal_of(folder: Path) -> str:
    """Return the URL of a journal."""
    return f"sqlite:///{folder / 'journal.db'}"


def events(folder: Path, kind: type[E]) -> list[E]:
    """Return the events of a kind that a search's journal holds."""
    journal = Journal(journal_of(folder), writes=False)
    try:
        return [event for event in journal.replay() if isinstance(event, kind)]
    finally:
        journal.close()


def suspensions(folder: Path) -> dict[str, int]:
    """Return how often each trial was taken off its GPUs or moved to others."""
    journal, statistics = Journal(journal_of(folder), writes=False), SearchStatistics()
    try:
        for event in journal.replay():
            statistics.apply(event)
    finally:
        journal.close()
    return {split_key(key)[1]: counts.suspensions + counts.restarts for key, counts in statistics.counts.items()}


def test_no_step_is_lost_or_done_twice_however_often_trials_move(cluster: LocalRayCluster, tmp_path: Path) -> None:
    request = Request(6, max_gpus=3, batch_size=8)
    scheduler = BeamerScheduler(Restless(), request, batch_size="batch_size", journal=journal_of(tmp_path))
    results = run(tmp_path, scheduler, RATES[4:], pause_s=0.05)
    assert not results.errors
    done = steps(tmp_path)
    assert sorted([line.loss for line in lines] for lines in done.values()) == sorted(
        undisturbed(rate, 6) for rate in RATES[4:]
    )
    assert all([(line.step, line.gpus) for line in lines] == [(i + 1, 1 + i // 2) for i in range(6)] for lines in done.values())
    lines = [line for lines in done.values() for line in lines]
    assert overlaps(lines) == []
    assert all(line.batch_size == 8 * line.gpus for line in lines)
    moved = suspensions(tmp_path)
    assert moved.keys() == done.keys()
    assert min(moved.values()) >= 2


@pytest.mark.long
def test_a_trial_runs_where_it_was_granted_gpus(cluster: LocalRayCluster, tmp_path: Path) -> None:
    run(tmp_path, BeamerScheduler("fifo", journal=journal_of(tmp_path)), RATES[:4], iterations=2)
    granted = {
        split_key(key)[1]: dict(grant.gpus) for event in events(tmp_path, Allocated) for key, grant in event.grants.items()
    }
    assert len({node for gpus in granted.values() for node in gpus}) == 2
    for trial, lines in steps(tmp_path).items():
        assert {node: 1 for line in lines for node, _ in line.devices} == granted[trial]


def trained(config: dict[str, Any]) -> None:
    """Train as a function does that keeps a checkpoint of every second step."""
    from tempfile import TemporaryDirectory

    model, first = Regression(config["rate"]), 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            model.weights, first = np.load(Path(folder) / "weights.npy"), int(np.load(Path(folder) / "step.npy")) + 1
    for step in range(first, 5):
        with TemporaryDirectory() as folder:
            loss = model.step()
            write(config, tune.get_context().get_trial_id(), step, loss, 0.0, 1.0)
            np.save(Path(folder) / "weights.npy", model.weights)
            np.save(Path(folder) / "step.npy", step)
            tune.report({"loss": loss, "step": step}, checkpoint=None if step % 2 else tune.Checkpoint.from_directory(folder))


@dataclass(frozen=True)
class Level(GpuPolicy[Stateless]):
    """Let no job get two steps ahead of one that waits."""

    name = "level"
    State = Stateless

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        return state, pack(cluster, sorted(jobs, key=lambda job: job.done // 2)), None


@pytest.mark.long
def test_functions_are_paused_with_their_checkpoints_only(cluster: LocalRayCluster, tmp_path: Path) -> None:
    scheduler = BeamerScheduler(Level(), Request(4), iteration="step", journal=journal_of(tmp_path))
    run(tmp_path, scheduler, RATES[:5], trainable=trained)
    assert any(suspensions(tmp_path).values())
    assert sorted([line.loss for line in lines] for lines in steps(tmp_path).values()) == sorted(
        undisturbed(rate, 4) for rate in RATES[:5]
    )


@pytest.mark.long
def test_losers_are_stopped_at_the_rungs(cluster: LocalRayCluster, tmp_path: Path) -> None:
    rungs = (Rung("r0", 6, 2), Rung("r1", 3, 4), Rung("r2", 1, 8))
    results = run(tmp_path, BeamerScheduler("fifo", rungs=rungs, journal=journal_of(tmp_path)), RATES, reuse=True)
    assert not results.errors
    best = sorted(RATES, key=lambda rate: undisturbed(rate, 2)[-1])
    assert sorted(best[:3], key=lambda rate: undisturbed(rate, 4)[-1])[0] == best[0]
    until = {rate: 8 if rate == best[0] else 4 if rate in best[:3] else 2 for rate in RATES}
    assert {result.config["rate"]: result.metrics["training_iteration"] for result in results} == until
    assert [event.stage for event in events(tmp_path, StageSealed)] == ["r0", "r1", "r2"]
    ends = [event.status for event in events(tmp_path, TrialEnded)]
    assert ends == [TrialStatus.KILLED] * 5 + [TrialStatus.FINISHED]


@pytest.mark.long
def test_who_comes_next_runs_in_the_process_of_who_is_paused_or_ends(cluster: LocalRayCluster, tmp_path: Path) -> None:
    # trials that have not reported twice come first, so that each is paused once, but for the last ones
    policy = gpu_policy("hermes", window=1, quantum_costs=0.0)  # whatever the start of a process takes
    scheduler = BeamerScheduler(policy, Request(4), journal=journal_of(tmp_path))
    results = run(tmp_path, scheduler, RATES, reuse=True, pause_s=0.3)  # so that decisions come between a trial's results
    assert not results.errors
    assert sum(suspensions(tmp_path).values()) >= 2
    done = steps(tmp_path)
    assert sorted([line.loss for line in lines] for lines in done.values()) == sorted(undisturbed(rate, 4) for rate in RATES)
    assert len({line.process for lines in done.values() for line in lines}) <= 4, "no more than GPUs"


@pytest.mark.long
def test_the_search_ends_with_the_first_trial_that_meets_the_target(cluster: LocalRayCluster, tmp_path: Path) -> None:
    target = undisturbed(RATES[-1], 6)[-1]
    request = Request(500, target_loss=target)
    scheduler = BeamerScheduler("fifo", request, stop_at_target=True, journal=journal_of(tmp_path))
    results = run(tmp_path, scheduler, RATES[2:], pause_s=0.1)
    [reached] = [event for event in events(tmp_path, TrialReported) if event.report and event.report.loss <= target]
    assert reached.report
    [rate] = [result.config["rate"] for result in results if result.metrics["trial_id"] == split_key(reached.trial)[1]]
    steps_done = int(reached.report.iteration)
    assert [loss <= target for loss in undisturbed(rate, steps_done)].index(True) == steps_done - 1
    assert all(result.metrics.get("training_iteration", 0) < 500 for result in results)
    ends = {event.trial: event.status for event in events(tmp_path, TrialEnded)}
    assert [key for key, status in ends.items() if status is TrialStatus.FINISHED] == [reached.trial]


@pytest.mark.long
def test_results_are_read_though_some_trials_never_started(cluster: LocalRayCluster, tmp_path: Path) -> None:
    rates = (RATES[-1],) * 4 + RATES
    request = Request(500, target_loss=undisturbed(RATES[-1], 2)[-1])
    results = run(tmp_path, BeamerScheduler("fifo", request, stop_at_target=True), rates, pause_s=0.1)
    assert not results.errors
    iterations = [result.metrics.get("training_iteration", 0) for result in results]
    assert len(iterations) == len(rates)
    assert 0 in iterations
    assert max(iterations) >= 2


def test_a_trial_whose_results_lack_a_key_fails_the_search(cluster: LocalRayCluster, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the key 'accuracy'"):
        run(tmp_path, BeamerScheduler("fifo", accuracy="accuracy"), RATES[:1], iterations=2)


class Killing(BeamerScheduler):
    """Kills the node of the first trial that has come to `at`."""

    def __init__(self, *arguments: Any, kill: Callable[[str], int], at: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.kill, self.at, self.killed = kill, at, False

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if result["training_iteration"] == self.at and not self.killed:
            self.killed = True
            self.kill(result[NODE_IP])
        return super().on_trial_result(tune_controller, trial, result)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"kill": None}


@pytest.mark.long
def test_a_search_ends_correctly_though_a_node_is_killed(cluster: LocalRayCluster, tmp_path: Path) -> None:
    scheduler = Killing("fifo", journal=journal_of(tmp_path), kill=cluster.kill, at=2)
    try:
        results = run(tmp_path, scheduler, RATES[1:], iterations=8, pause_s=0.5, saved_every=1, failures=5)
    finally:
        cluster.add(2)
    assert scheduler.killed
    assert not results.errors
    done = steps(tmp_path)
    assert sorted(lines[-1].loss for lines in done.values()) == sorted(undisturbed(rate, 8)[-1] for rate in RATES[1:])
    assert [sum(node.gpus for node in event.nodes) for event in events(tmp_path, NodesSeen)] == [4, 2]
    assert any(lines[0].devices[0][0] != lines[-1].devices[0][0] for lines in done.values())


@dataclass
class Interrupted(Callback):  # type: ignore[misc]
    """Interrupts an experiment, as from a terminal, at the first result of step `at`, once."""

    at: int
    marker: Path

    def on_trial_result(self, *, result: dict[str, Any], **info: Any) -> None:
        if result["training_iteration"] == self.at and not self.marker.exists():
            self.marker.touch()
            signal.raise_signal(signal.SIGINT)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_search_goes_on_that_was_saved_while_its_trials_were_held(
    cluster: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = TuneController.__getstate__

    def held(self: TuneController) -> dict[str, Any]:
        return saved(self) | {"_cached_trial_decisions": {trial.trial_id: TrialScheduler.NOOP for trial in self.get_trials()}}

    rungs = (Rung("r0", 4, 2), Rung("r1", 2, 4))
    with monkeypatch.context() as patched:
        patched.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
        patched.setattr(TuneController, "__getstate__", held)
        scheduler = BeamerScheduler("fifo", rungs=rungs, journal=journal_of(tmp_path))
        interruption = Interrupted(3, tmp_path / "interrupted")
        run(tmp_path, scheduler, RATES[:4], saved_every=1, callbacks=[interruption])
    assert interruption.marker.exists()
    experiment = tmp_path / "results" / "search"
    assert '"NOOP"' in max(experiment.glob("experiment_state-*.json")).read_text(), "what it was held by is saved"
    results = Tuner.restore(str(experiment), tune.with_resources(Trial, {"cpu": 1, "gpu": 1})).fit()
    assert not results.errors
    assert sorted(result.metrics["training_iteration"] for result in results) == [2, 2, 4, 4]


def test_half_a_gpu_and_an_unknown_end_are_refused() -> None:
    from ray.tune import PlacementGroupFactory

    from beamer.engines.ray_tune.cluster import gpus_asked

    for gpus in (0, 0.5, 1.5):
        with pytest.raises(InputError, match="whole GPUs"):
            gpus_asked(PlacementGroupFactory([{"CPU": 1, "GPU": gpus}]))
    with pytest.raises(InputError, match="mode"):
        BeamerScheduler("fifo", mode="best")  # type: ignore[arg-type]
