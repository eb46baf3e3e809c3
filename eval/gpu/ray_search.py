"""How soon a real search on a Ray cluster finds its good configuration, under our policies and under Ray's own FIFO.

python -m eval.gpu.ray_search [--kill] [--repetitions N]

Every trial trains a small network by gradient descent; one learning rate of twelve reaches the target. Its place in the list is
random: of n repetitions each draws it from another n-th of the list, so that few of them cover it. The GPUs are declared, not
there: an iteration computes for milliseconds and then pauses for `pause_s`, which stands for the GPU's time, so that trials do
not wait for this machine's cores. What Ray itself takes to start, pause and resume trials is real.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import typer
from ray import tune
from ray.tune import Callback, CheckpointConfig, FailureConfig, RunConfig, Stopper, TuneConfig, Tuner
from ray.tune.schedulers import FIFOScheduler
from rich.console import Console
from rich.table import Table

from beamer.engines.ray_tune.local import LocalRayCluster
from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.gpu.model import Request
from beamer.schedule.statistics import SearchStatistics
from beamer.studies.journal.store import Journal
from eval.statistics import Interval, Ratio

RAY_FIFO = "ray's fifo"
GOOD = 0.03
BAD = (*(10.0**exponent for exponent in np.linspace(-6, -3, 8)), 300.0, 1000.0, 3000.0)
ROWS, INPUTS, HIDDEN, STEPS = 512, 10, 32, 3
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class RaySearch:
    """What is searched, and where.

    gpus: declared, of each node. iterations: of each trial. target_loss: only the good configuration has it before its end.
    pause_s: of each iteration. saved_every: iterations between two checkpoints that a failure goes back to. reuse: whether
    Tune runs the next trial in the process of the last. kill_after_s: when the node of a trial is killed, from the first
    result; None: not at all.
    """

    gpus: tuple[int, ...] = (2, 2)
    iterations: int = 150
    target_loss: float = 0.3
    pause_s: float = 0.1
    saved_every: int = 5
    reuse: bool = True
    kill_after_s: float | None = None


@dataclass(frozen=True)
class RayRun:
    """What a run of the search came to.

    place: of the good configuration in the list, from 0. to_target_s: from the search's begin; None: it was not reached.
    ended_s: when the search had ended. iterations: of all trials, those done twice counted once. pauses: of trials, by the
    policy; failures: of trials, by the node.
    """

    policy: str
    seed: int
    place: int
    to_target_s: float | None
    ended_s: float
    iterations: int
    pauses: int
    failures: int


@dataclass(frozen=True)
class RayComparison:
    """Runs of the same searches under several policies, paired by seed."""

    search: RaySearch
    outcomes: tuple[RayRun, ...]

    def seconds(self, policy: str) -> list[float]:
        """Return the times to the target, by seed, of a policy; infinite where it was not reached."""
        ordered = sorted((outcome for outcome in self.outcomes if outcome.policy == policy), key=lambda outcome: outcome.seed)
        return [float("inf") if outcome.to_target_s is None else outcome.to_target_s for outcome in ordered]

    def ratio(self, policy: str, base: str = RAY_FIFO) -> Ratio:
        """Return a policy's time to the target relative to another's."""
        return Ratio.of(self.seconds(policy), self.seconds(base))


class SmallNetwork:
    """A network with one hidden layer that learns the labels of another of its kind. Equal rates give equal losses."""

    def __init__(self, rate: float) -> None:
        rng = np.random.default_rng(0)
        self.rate = rate
        self.rows = rng.normal(size=(ROWS, INPUTS))
        self.labels = np.tanh(self.rows @ rng.normal(size=(INPUTS, 4))).sum(axis=1) > 0
        self.first = rng.normal(size=(INPUTS, HIDDEN)) / 3
        self.second = rng.normal(size=HIDDEN) / 6

    def train(self) -> float:
        """Make `STEPS` steps and return the loss."""
        for _ in range(STEPS):
            hidden, scores = self._scores()
            error = (1 / (1 + np.exp(-scores)) - self.labels) / ROWS
            slope = np.outer(error, self.second) * (1 - hidden * hidden)
            self.second = self.second - self.rate * hidden.T @ error
            self.first = self.first - self.rate * self.rows.T @ slope
        _, scores = self._scores()
        return float(np.mean(np.logaddexp(0, scores) - self.labels * scores))

    def _scores(self) -> tuple[Any, Any]:
        hidden = np.tanh(self.rows @ self.first)
        return hidden, np.clip(hidden @ self.second, -50, 50)


class NetworkTrial(tune.Trainable):  # type: ignore[misc]  # Ray is untyped where it is not installed
    """A configuration: its rate."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin anew."""
        self.network = SmallNetwork(config["rate"])

    def step(self) -> dict[str, float]:
        """Train for an iteration."""
        loss = self.network.train()
        time.sleep(self.config["pause_s"])
        return {"loss": loss}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the weights."""
        np.savez(Path(checkpoint_dir) / "weights.npz", first=self.network.first, second=self.network.second)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Read the weights."""
        with np.load(Path(checkpoint) / "weights.npz") as weights:
            self.network.first, self.network.second = weights["first"], weights["second"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial."""
        self.setup(new_config)
        return True


class TargetStopper(Stopper):  # type: ignore[misc]
    """End the search with the first trial that meets the target, and know when that was."""

    def __init__(self, loss: float) -> None:
        self.loss = loss
        self.reached_at: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Say whether the target was met, by this result or before."""
        if result["loss"] <= self.loss and self.reached_at is None:
            self.reached_at = time.monotonic()
        return self.reached_at is not None

    def stop_all(self) -> bool:
        """Say whether the target was met."""
        return self.reached_at is not None


class NodeKiller(Callback):  # type: ignore[misc]
    """Count failures and kill the node that the last result came from when it is time."""

    def __init__(self, cluster: LocalRayCluster, kill_after_s: float | None) -> None:
        self.cluster, self.kill_after_s = cluster, kill_after_s
        self.kill_at: float | None = None
        self.failures, self.killed = 0, 0

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps it for a restore, which does not come

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Kill the node if it is time."""
        if self.kill_after_s is None or self.killed:
            return
        self.kill_at = self.kill_at or time.monotonic() + self.kill_after_s
        if time.monotonic() >= self.kill_at:
            self.killed = self.cluster.kill(result["node_ip"])

    def replace_node(self) -> None:
        """Start a node in the place of the one that was killed."""
        if self.killed:
            self.cluster.add(self.killed)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Count a trial that continues after a failure."""
        self.failures += 1


def run(cluster: LocalRayCluster, search: RaySearch, policy: str, seed: int, place: int) -> RayRun:
    """Run the search of a seed under a policy, on a cluster that is whole again afterwards."""
    rates = Random(seed).sample(BAD, len(BAD))
    rates.insert(place, GOOD)
    target, killer = TargetStopper(search.target_loss), NodeKiller(cluster, search.kill_after_s)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="beamer-ray-"))
        journal = f"sqlite:///{folder}/journal.db"
        stack.callback(killer.replace_node)
        begun = time.monotonic()
        results = Tuner(
            tune.with_resources(NetworkTrial, {"cpu": 1, "gpu": 1}),
            param_space={"rate": tune.grid_search(rates), "pause_s": search.pause_s},
            tune_config=TuneConfig(
                scheduler=FIFOScheduler() if policy == RAY_FIFO else _scheduler(policy, search, journal),
                reuse_actors=search.reuse,
            ),
            run_config=RunConfig(
                storage_path=folder,
                stop=tune.stopper.CombinedStopper(target, tune.stopper.MaximumIterationStopper(search.iterations)),
                verbose=0,
                callbacks=[killer],
                failure_config=FailureConfig(max_failures=-1),
                checkpoint_config=CheckpointConfig(checkpoint_frequency=search.saved_every),
            ),
        ).fit()
        ended = time.monotonic()
        pauses = 0 if policy == RAY_FIFO else _pauses(journal)
    return RayRun(
        policy,
        seed,
        place,
        None if target.reached_at is None else target.reached_at - begun,
        ended - begun,
        sum(result.metrics.get("training_iteration", 0) for result in results),
        pauses,
        killer.failures,
    )


def _scheduler(policy: str, search: RaySearch, journal: str) -> BeamerScheduler:
    return BeamerScheduler(policy, Request(search.iterations, target_loss=search.target_loss), journal=journal)


def _pauses(url: str) -> int:
    """Return how often a trial's GPUs were taken from it, by the search's journal."""
    journal, statistics = Journal(url), SearchStatistics()
    try:
        for event in journal.replay():
            statistics.apply(event)
    finally:
        journal.close()
    return sum(counts.suspensions for counts in statistics.counts.values())


def measure(
    policies: Sequence[str] = ("hermes", RAY_FIFO), repetitions: int = 5, search: RaySearch | None = None, first_seed: int = 0
) -> RayComparison:
    """Run every seed's search under every policy, one after another on one cluster."""
    search = search or RaySearch()
    seeds = range(first_seed, first_seed + repetitions)
    places = [int((i + Random(seed).random()) / repetitions * (len(BAD) + 1)) for i, seed in enumerate(seeds)]
    with LocalRayCluster(search.gpus, path=ROOT) as cluster:
        warm = replace(search, iterations=2, kill_after_s=None)
        run(cluster, warm, RAY_FIFO, first_seed, 0)  # the first one starts all processes
        return RayComparison(
            search,
            tuple(
                run(cluster, search, policy, seed, place)
                for seed, place in zip(seeds, places, strict=True)
                for policy in policies
            ),
        )


def table(comparison: RayComparison) -> Table:
    """Return a table with a row per policy."""
    policies = list(dict.fromkeys(outcome.policy for outcome in comparison.outcomes))
    title = "time until the good configuration has reached its target, 95 % intervals"
    shown = Table(title=title, title_justify="left")
    for column in ("policy", "s", f"ratio to {policies[-1]}", "iterations", "pauses", "failures", "by place, s"):
        shown.add_column(column, justify="left" if column == "policy" else "right")
    for policy in policies:
        seconds = comparison.seconds(policy)
        mine = [outcome for outcome in comparison.outcomes if outcome.policy == policy]
        shown.add_row(
            policy,
            str(Interval.of(seconds)),
            "" if policy == policies[-1] else str(comparison.ratio(policy, policies[-1])),
            *(f"{np.mean([getattr(o, what) for o in mine]):.1f}" for what in ("iterations", "pauses", "failures")),
            "  ".join(f"{o.place}: {'-' if o.to_target_s is None else f'{o.to_target_s:.1f}'}" for o in mine),
        )
    return shown


def main(
    policies: Annotated[str, typer.Option(help="Names, the one that others are compared with last.")] = f"hermes,{RAY_FIFO}",
    repetitions: Annotated[int, typer.Option(min=2)] = 5,
    kill: Annotated[bool, typer.Option(help="Kill a node in between.")] = False,
    seed: int = 0,
) -> None:
    """Compare policies on a real search, on a local Ray cluster with four declared GPUs."""
    search = RaySearch(kill_after_s=5.0 if kill else None)
    Console(width=None if sys.stdout.isatty() else 160).print(table(measure(policies.split(","), repetitions, search, seed)))


if __name__ == "__main__":
    typer.run(main)
