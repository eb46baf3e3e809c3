"""`python -m eval starts`: searches of programs that take seconds to start, each start in its turn or ahead of it.

One slot, eight learning rates of which one or three reach the target loss and one diverges, in drawn orders. All else is the
same. Real processes, whose start is a sleep: what it takes of processors is left out.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Annotated

import typer
from rich.table import Table

from beamer.errors import InputError, nearest
from beamer.gpu.events import Allocated, TrialReported
from beamer.gpu.policies import GPU_POLICIES
from beamer.studies.journal.store import Journal
from beamer.yaml_files import dump_yaml
from eval.console import wide_console
from eval.machine import Machine
from eval.orderly_end import completed
from eval.origin import made_with

ROOT = Path(__file__).parents[2]
SEARCHES: Mapping[str, tuple[float, ...]] = {
    "one good": (0.01, 0.0001, 0.00015, 0.0002, 0.0003, 0.0004, 0.0006, 1.5),
    "three good": (0.02, 0.01, 0.008, 0.0001, 0.0002, 0.0003, 0.0006, 1.5),
}
"""Learning rates, those that reach the target within their iterations first, one that diverges last."""
TARGET_LOSS = 0.075  # A loss of the good ones is below it at every tenth iteration or so, once they have converged.
ITERATIONS = 400
PAUSE_S = 0.01
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class SearchRun:
    """One search. reached_s: until its target. idle: the share of the time since the first report in which nothing computed."""

    search: str
    policy: str
    ahead: bool
    seed: int
    reached_s: float
    idle: float


def searched(search: str, policy: str, ahead: bool, seed: int, start_s: float) -> SearchRun:
    """Run one search in its drawn order. Raises `InputError` where it does not reach its target."""
    rates = Random(seed).sample(SEARCHES[search], len(SEARCHES[search]))
    command = ["{python}", "-m", "eval.gpu.fresh_trainer", "--lr", "{lr}", "--iterations", "{iterations}"]
    command += ["--start-s", str(start_s), "--pause-s", str(PAUSE_S), "--seed", str(seed)]
    document = {
        "name": "starts",
        "nodes": [{"name": "localhost", "gpus": 1}],
        "job": {
            "command": command,
            "cwd": str(ROOT),
            "env": {"OPENBLAS_NUM_THREADS": 1},
            "request": {"iterations": ITERATIONS},
        },
        "grid": {"lr": rates},
        "target_loss": TARGET_LOSS,
        "stop_at_target": True,
        "prepare": ahead,
    }
    with tempfile.TemporaryDirectory(prefix="beamer-starts-") as folder:
        file = Path(folder) / "search.yaml"
        file.write_text(dump_yaml(document))
        program = [sys.executable, "-m", "beamer.cli", "schedule", str(file), "--dir", f"{folder}/dir"]
        done = completed([*program, "--policy", policy], ROOT, TIMEOUT_S)
        if done.returncode:
            raise InputError("search", f"{search} {policy}", f"one that ends well: {done.stderr}")
        return SearchRun(search, policy, ahead, seed, *times(f"sqlite:///{folder}/dir/journal.db"))


def times(url: str) -> tuple[float, float]:
    """Return when a journal's search reached its target, from its first grant on, and the share of idle time until then."""
    journal = Journal(url, writes=False)
    try:
        events = list(journal.replay())
    finally:
        journal.close()
    begun_s = next(event.at_s for event in events if isinstance(event, Allocated))
    reports = [(event.trial, event.report) for event in events if isinstance(event, TrialReported) and event.report]
    reached = [index for index, (_, report) in enumerate(reports) if report.loss <= TARGET_LOSS]
    if not reached:
        raise InputError("search", url, "one that reaches its target")
    until = reports[: reached[0] + 1]
    first_s, last_s = min(report.at_s for _, report in until), max(report.at_s for _, report in until)
    computed = {trial: report.service_s for trial, report in until}
    first = {trial: report.service_s for trial, report in reversed(until)}
    busy_s = sum(computed[trial] - first[trial] for trial in computed)
    return last_s - begun_s, max(1.0 - busy_s / (last_s - first_s), 0.0) if last_s > first_s else 0.0


def table(runs: Sequence[SearchRun], start_s: float) -> Table:
    """Return what came of searches, a row for each policy and search."""
    made = Table(title=f"starts of {start_s:g} s: seconds to the target, mean over orders, and median idle share of the slot")
    for name in ("search", "policy", "each in its turn", "ahead", "ratio", "idle, in turn", "idle, ahead"):
        made.add_column(name)
    for search, policy in dict.fromkeys((one.search, one.policy) for one in runs):
        of = [[one for one in runs if (one.search, one.policy, one.ahead) == (search, policy, how)] for how in (False, True)]
        turn, ahead = (mean(one.reached_s for one in some) for some in of)
        idle = [f"{median(one.idle for one in some):.0%}" for some in of]
        made.add_row(search, policy, f"{turn:.1f}", f"{ahead:.1f}", f"{ahead / turn:.2f}", *idle)
    return made


def starts(
    policies: Annotated[str, typer.Option(help="GPU policies, comma-separated.")] = "fifo,hermes,convergence",
    start_s: Annotated[float, typer.Option(min=0.0, help="Seconds that a program takes to start.")] = 5.0,
    orders: Annotated[int, typer.Option(min=1, help="Orders of the list, each with samples of its own.")] = 3,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every run's figures to this file.", dir_okay=False)
    ] = None,
) -> None:
    """Compare searches whose programs start ahead of their turn with the same ones without that, on real processes."""
    names = policies.split(",")
    for name in names:
        if name not in GPU_POLICIES:
            raise InputError("--policies", name, nearest(name, GPU_POLICIES))
    console, runs = wide_console(), list[SearchRun]()
    for seed in range(orders):
        for search in SEARCHES:
            for name in names:
                for ahead in (False, True):  # They take turns, as the machine's speed changes by the hour.
                    runs.append(searched(search, name, ahead, seed, start_s))
                    one = runs[-1]
                    console.print(f"{search}, {name}, {'ahead' if ahead else 'in turn'}, order {seed}: {one.reached_s:.1f} s")
    console.print(table(runs, start_s))
    if json_file is not None:
        found = {"machine": asdict(Machine.here()), "start_s": start_s, "runs": [asdict(one) for one in runs]}
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps({**found, **made_with("starts")}, indent=1) + "\n")
