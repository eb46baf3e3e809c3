"""Searches by `beamer schedule` on the site's GPU, and what is read of their journals."""

import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from subprocess import TimeoutExpired
from typing import Any

from beamer.errors import EngineError
from beamer.gpu.events import Allocated, TrialReported
from beamer.studies.events import Event
from beamer.studies.journal.store import Journal
from beamer.yaml_files import dump_yaml
from eval.nvidia.program import SHOWN, OutOfTimeError
from eval.nvidia.site import ROOT, Site
from eval.orderly_end import completed

GAP = 5.0
"""Between two reports, in medians, from which on nothing has computed between them."""
LEAST_GAP_S = 0.1


@dataclass(frozen=True)
class Searched:
    """A search that has ended. rows: figures of its trials, as `beamer schedule --json` has them. wall_s: of the command."""

    rows: tuple[Mapping[str, Any], ...]
    reached_s: float | None
    wall_s: float
    events: tuple[Event, ...]

    def failures(self, finish: bool) -> list[str]:
        """Return what should not have been, in words. finish: whether all trials are to have finished."""
        found = [f"{row['name']} failed {row['failures']} times: {row['reason']}" for row in self.rows if row["failures"]]
        ended = [f"{row['name']} is {row['status']}: {row['reason']}" for row in self.rows if row["status"] != "finished"]
        return [*found, *(ended if finish else [])]


def document(site: Site, name: str, trials: Collection[Mapping[str, Any]], iterations: int, gib: float = 0.0) -> dict[str, Any]:
    """Return a search file. trials: of each its name, its rate and the path of its trace."""
    program = site.program("{rate}", "{iterations}", "{trace}", gib)
    return {
        "name": name,
        "nodes": [{"name": "localhost", "gpus": 1, "devices": [site.device]}],
        "job": {"command": ["{python}", *program], "cwd": str(ROOT), "request": {"iterations": iterations}},
        "configurations": list(trials),
        "silent_s": site.sizes.patience_s,
    }


def searched(
    site: Site, folder: Path, content: Mapping[str, Any], policy: str, until_s: float, settings: Collection[str] = ()
) -> Searched:
    """Run a search in a folder of its own. Raises `EngineError` where it fails, and `OutOfTimeError`."""
    folder.mkdir()
    (folder / "search.yaml").write_text(dump_yaml(content))
    # `env` becomes the command, so that signals reach it.
    variables = [f"{name}={value}" for name, value in site.env.items() if os.environ.get(name) != value]
    command = [
        "env",
        *variables,
        sys.executable,
        "-m",
        "beamer.cli",
        "schedule",
        str(folder / "search.yaml"),
        "--dir",
        str(folder / "dir"),
    ]
    command += ["--policy", policy, "--json", str(folder / "figures.json"), "--quiet"]
    command += [word for setting in settings for word in ("--set", setting)]
    begun_s = time.monotonic()
    try:
        done = completed(command, ROOT, max(until_s - begun_s, 0.0))
    except TimeoutExpired as error:
        raise OutOfTimeError(f"no time was left for the search {content['name']} under {policy}") from error
    wall_s = time.monotonic() - begun_s
    if not (folder / "figures.json").exists():
        raise EngineError(f"beamer schedule ended with {done.returncode}: {done.stderr.strip()[-SHOWN:]}")
    figures = json.loads((folder / "figures.json").read_text())
    rows = tuple(figures["configurations"])
    return Searched(rows, figures["target_reached_s"], wall_s, events(f"sqlite:///{folder}/dir/journal.db"))


def events(url: str) -> tuple[Event, ...]:
    """Return what a journal holds."""
    journal = Journal(url, writes=False)
    try:
        return tuple(journal.replay())
    finally:
        journal.close()


def starts_s(found: Iterable[Event]) -> dict[str, float]:
    """Return the seconds from each trial's first grant to its first report after that, in order of the grants."""
    granted: dict[str, float] = {}
    started: dict[str, float] = {}
    for event in found:
        if isinstance(event, Allocated):
            for trial in event.grants:
                granted.setdefault(trial, event.at_s)
        elif isinstance(event, TrialReported) and event.report and event.report.at_s >= granted.get(event.trial, float("inf")):
            started.setdefault(event.trial, event.report.at_s - granted[event.trial])
    return {trial: started[trial] for trial in granted if trial in started}


def idle_s(found: Iterable[Event]) -> float:
    """Return the seconds between the first report and the last one in which no trial computed: gaps beyond an iteration's."""
    at_s = sorted(event.report.at_s for event in found if isinstance(event, TrialReported) and event.report)
    gaps = [after - before for before, after in pairwise(at_s)]
    usual = median(gaps) if gaps else 0.0
    return sum(gap - usual for gap in gaps if gap > max(GAP * usual, LEAST_GAP_S))
