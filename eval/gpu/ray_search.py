"""How soon a real search on a Ray cluster reaches its target under our policies, and under Ray Tune's own schedulers.

python -m eval.gpu.ray_search [--kill] [--repetitions N] [--json FILE]

Every trial trains a small network by gradient descent; of twelve learning rates one reaches the target, or several do. Their
order is random: of n repetitions each draws the place of a single good one from another n-th of the list, so that few of them
cover it. The GPUs are declared, not there: an iteration computes for milliseconds and then pauses for `pause_s`, which stands
for the GPU's time, so that trials hardly wait for this machine's cores. What Ray itself takes to start, pause and resume trials
is real, and takes longer on a machine that does other things: contenders take turns, seed by seed.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from ray import tune
from ray.tune import Callback, CheckpointConfig, FailureConfig, RunConfig, Stopper, TuneConfig, Tuner
from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler
from rich.table import Table

from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.errors import InputError, nearest
from beamer.gpu.model import Request
from beamer.lazy_commands import errors_as_exit_codes
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.yaml_files import read_json
from eval.console import wide_console
from eval.gpu.ray_trial import NetworkTrial
from eval.ray_cluster import LocalRayCluster

ROOT = Path(__file__).parents[2]
REDUCTION_FACTOR = 4  # the default of Tune's ASHA, and the one that its authors recommend [Li et al. 2020]


@dataclass(frozen=True)
class RaySearch:
    """What is searched, and where.

    good, bad: learning rates that reach the target within their iterations, and others. gpus: declared, of each node.
    iterations: of each trial, at most. pause_s: of each iteration. saved_every: iterations between two checkpoints that a
    failure goes back to. reuse: whether Tune runs the next trial in the process of the last. kill_after_s: when the node of a
    trial is killed, from the first result; None: not at all.
    """

    good: tuple[float, ...]
    bad: tuple[float, ...]
    target_loss: float
    gpus: tuple[int, ...] = (2, 2)
    iterations: int = 150
    pause_s: float = 0.1
    saved_every: int = 5
    reuse: bool = True
    kill_after_s: float | None = None

    def rates(self, seed: int, part: tuple[int, int]) -> list[float]:
        """Return the rates in the order of a seed; a single good one is in the i-th of n parts of the list, for (i, n)."""
        rng = Random(seed)
        if len(self.good) > 1:
            return rng.sample(self.good + self.bad, len(self.good) + len(self.bad))
        rates = rng.sample(self.bad, len(self.bad))
        rates.insert(int((part[0] + rng.random()) / part[1] * (len(rates) + 1)), self.good[0])
        return rates


SEARCHES: Mapping[str, RaySearch] = {
    "one good": RaySearch((0.03,), (*np.geomspace(1e-6, 1e-3, 8).tolist(), 300.0, 1000.0, 3000.0), 0.3),
    "several good": RaySearch(
        tuple(np.geomspace(1e-3, 1.0, 12)[-4:].tolist()), tuple(np.geomspace(1e-3, 1.0, 12)[:-4].tolist()), 0.2
    ),
}

Build = Callable[[RaySearch], TrialScheduler]
"""A scheduler for a search."""


def _asha(search: RaySearch) -> TrialScheduler:
    return AsyncHyperBandScheduler(
        metric="loss", mode="min", max_t=search.iterations, grace_period=1, reduction_factor=REDUCTION_FACTOR
    )


def _in_rungs(policy: str) -> Build:
    def build(search: RaySearch) -> TrialScheduler:
        return BeamerScheduler(policy, rungs=AsynchronousHalving(search.iterations, REDUCTION_FACTOR))

    return build


def _told_the_target(policy: str) -> Build:
    def build(search: RaySearch) -> TrialScheduler:
        return BeamerScheduler(policy, Request(search.iterations, target_loss=search.target_loss))

    return build


CONTENDERS: Mapping[str, Build] = {
    "asha": _asha,
    "fifo": lambda search: FIFOScheduler(),
    "hermes": _in_rungs("hermes"),
    "convergence": _in_rungs("convergence"),
    "hermes, no rungs": _told_the_target("hermes"),
    "convergence, no rungs": _told_the_target("convergence"),
}
"""The first two are Tune's own. With rungs a policy is told what ASHA is told: the metric, the most iterations, the reduction
factor. Without rungs it ends no trial, and is told the target."""


@dataclass(frozen=True)
class RayRun:
    """What a run of a search came to.

    search, contender: by name. rates: in their order. first_result_s, to_target_s: from the search's begin; None: there was
    none. Until its first result a search starts a process per GPU, which takes the same under all contenders, and most of what
    a loaded machine adds. gpu_s: in which trials held GPUs, by their status in Tune, until the target or the end. ended_s: when
    the search had ended. iterations: of all trials, those done twice counted once. pauses: of trials, by the scheduler.
    failures: of trials, by the node.
    """

    search: str
    contender: str
    seed: int
    rates: tuple[float, ...]
    first_result_s: float | None
    to_target_s: float | None
    gpu_s: float
    ended_s: float
    iterations: int
    pauses: int
    failures: int

    @property
    def searched_s(self) -> float:
        """From the first result to the target; infinite where it was not reached."""
        return inf if self.to_target_s is None or self.first_result_s is None else self.to_target_s - self.first_result_s


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


class ClusterCallback(Callback):  # type: ignore[misc]
    """Note the first result, count GPU-seconds, pauses and failures, and kill the node of the last result when it is time."""

    def __init__(self, cluster: LocalRayCluster, target: TargetStopper, kill_after_s: float | None) -> None:
        self.cluster, self.target, self.kill_after_s = cluster, target, kill_after_s
        self.gpu_s = 0.0
        self.first_at: float | None = None
        self.kill_at: float | None = None
        self.pauses, self.failures, self.killed = 0, 0, 0
        self._counted_s = time.monotonic()
        self._holders: set[Any] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps the state for a restore, which does not come.

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Count."""
        self._count(trials)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Count."""
        self._count(trials)

    def _count(self, trials: Sequence[Any]) -> None:
        now = time.monotonic()
        until = now if self.target.reached_at is None else max(self.target.reached_at, self._counted_s)
        self.gpu_s += len(self._holders) * (until - self._counted_s)
        self._counted_s = now
        self.pauses += sum(trial.status == Trial.PAUSED for trial in self._holders)
        self._holders = set() if self.target.stop_all() else {trial for trial in trials if trial.status == Trial.RUNNING}

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Note the first; kill the node if it is time."""
        self.first_at = self.first_at or time.monotonic()
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


def run(cluster: LocalRayCluster, name: str, search: RaySearch, contender: str, seed: int, part: tuple[int, int]) -> RayRun:
    """Run the search of a seed under a contender, on a cluster that is whole again afterwards.

    part: as of `RaySearch.rates`.
    """
    rates = search.rates(seed, part)
    target = TargetStopper(search.target_loss)
    callback = ClusterCallback(cluster, target, search.kill_after_s)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="beamer-ray-"))
        stack.callback(callback.replace_node)
        begun = time.monotonic()
        results = Tuner(
            tune.with_resources(NetworkTrial, {"cpu": 1, "gpu": 1}),
            param_space={"rate": tune.grid_search(rates), "pause_s": search.pause_s},
            tune_config=TuneConfig(scheduler=CONTENDERS[contender](search), reuse_actors=search.reuse),
            run_config=RunConfig(
                storage_path=folder,
                stop=tune.stopper.CombinedStopper(target, tune.stopper.MaximumIterationStopper(search.iterations)),
                verbose=0,
                callbacks=[callback],
                failure_config=FailureConfig(max_failures=-1),
                checkpoint_config=CheckpointConfig(checkpoint_frequency=search.saved_every),
            ),
        ).fit()
        ended = time.monotonic()
    return RayRun(
        name,
        contender,
        seed,
        tuple(rates),
        None if callback.first_at is None else callback.first_at - begun,
        None if target.reached_at is None else target.reached_at - begun,
        callback.gpu_s,
        ended - begun,
        sum(result.metrics.get("training_iteration", 0) for result in results),
        callback.pauses,
        callback.failures,
    )


def measure(
    searches: Mapping[str, RaySearch],
    contenders: Sequence[str],
    seeds: Sequence[int],
    done: Sequence[RayRun] = (),
    on_run: Callable[[RayRun], None] = lambda run: None,
) -> list[RayRun]:
    """Run every seed's searches under every contender, one after another on one cluster, and return all runs.

    done: runs of these searches from before, which are not made again. on_run: called after each new one.
    """
    runs = {(one.search, one.contender, one.seed): one for one in done}
    wanted = [
        (name, contender, seed)
        for turn, seed in enumerate(seeds)
        for name in searches
        for contender in (*contenders[turn % len(contenders) :], *contenders[: turn % len(contenders)])  # load drifts
    ]
    missing = [key for key in wanted if key not in runs]
    gpus = {search.gpus for search in searches.values()}
    assert len(gpus) == 1, "one cluster serves all searches"
    if missing:
        with LocalRayCluster(gpus.pop(), path=ROOT) as cluster:
            name, search = next(iter(searches.items()))
            warm = replace(search, iterations=2, kill_after_s=None)
            run(cluster, name, warm, "fifo", seeds[0], (0, 1))  # The first run starts all processes.
            for key in missing:
                name, contender, seed = key
                part = (list(seeds).index(seed), len(seeds))
                runs[key] = run(cluster, name, searches[name], contender, seed, part)
                on_run(runs[key])
    return [runs[key] for key in wanted]


def table(name: str, runs: Sequence[RayRun]) -> Table:
    """Return a table with a row per contender, ordered by the medians from the first result to the target."""
    seeds = len({one.seed for one in runs})
    shown = Table(title=f"{name}: medians of {seeds} seeds (least to most) until the target", title_justify="left")
    columns = ("s", "s from the first result", "GPU-seconds", "iterations", "pauses", "failures", "from the first, by seed")
    for column in ("contender", *columns):
        shown.add_column(column, justify="left" if column == "contender" else "right")
    rows = {contender: [one for one in runs if one.contender == contender] for contender in {one.contender for one in runs}}
    for contender, mine in sorted(rows.items(), key=lambda item: median(one.searched_s for one in item[1])):
        figures = (
            [inf if one.to_target_s is None else one.to_target_s for one in mine],
            [one.searched_s for one in mine],
            [one.gpu_s for one in mine],
        )
        shown.add_row(
            contender,
            *(f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})" for values in figures),
            *(f"{np.mean([getattr(one, what) for one in mine]):.1f}" for what in ("iterations", "pauses", "failures")),
            "  ".join(f"{one.searched_s:.1f}" for one in sorted(mine, key=lambda one: one.seed)),
        )
    return shown


def read(path: Path, searches: Mapping[str, RaySearch]) -> list[RayRun]:
    """Return the runs that a file holds of these very searches; none if there is no file."""
    if not path.exists():
        return []
    document = read_json(path, "the results")
    same = {name for name, search in searches.items() if document["searches"].get(name) == _plain(asdict(search))}
    return [RayRun(**one | {"rates": tuple(one["rates"])}) for one in document["runs"] if one["search"] in same]


def write(path: Path, searches: Mapping[str, RaySearch], runs: Sequence[RayRun]) -> None:
    """Write the runs of searches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "searches": {name: asdict(search) for name, search in searches.items()},
        "runs": [asdict(one) for one in runs],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def main(
    contenders: Annotated[str, typer.Option(help="Names, separated by semicolons.")] = ";".join(CONTENDERS),
    search: Annotated[str, typer.Option(help="Only this search.")] = "",
    repetitions: Annotated[int, typer.Option(min=1)] = 5,
    kill: Annotated[bool, typer.Option(help="Kill a node in between.")] = False,
    seed: int = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every run here; runs that it holds are not made again.", dir_okay=False)
    ] = None,
) -> None:
    """Compare schedulers on real searches, on a local Ray cluster with four declared GPUs."""
    names = contenders.split(";")
    logging.getLogger("ray.tune").setLevel(logging.ERROR)  # Tune warns of result files that it has not copied yet.
    for option, given, known in (("--search", [search] if search else [], SEARCHES), ("--contenders", names, CONTENDERS)):
        for one in given:
            if one not in known:
                raise InputError(option, one, nearest(one, list(known)))
    searches = {name: one for name, one in SEARCHES.items() if search in ("", name)}
    if kill:
        searches = {name: replace(one, kill_after_s=5.0) for name, one in searches.items()}
    done = read(json_file, searches) if json_file else []
    console = wide_console(160)

    def keep(one: RayRun) -> None:
        done.append(one)
        seconds = f"{one.searched_s:.1f} s from the first result, {one.gpu_s:.1f} GPU-seconds"
        console.print(f"{one.search}, seed {one.seed}, {one.contender}: {seconds}")
        if json_file:
            write(json_file, searches, done)

    runs = measure(searches, names, range(seed, seed + repetitions), tuple(done), keep)
    for name in searches:
        console.print(table(name, [one for one in runs if one.search == name]))


if __name__ == "__main__":
    with errors_as_exit_codes("ray_search"):
        typer.run(main)
