"""One disturbed search under one policy, run by `beamer schedule` in a process of its own, and what came of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beamer.engines.local.record import last_run
from beamer.yaml_files import dump_yaml
from eval.engines.disturber import Disturber
from eval.engines.program import FLAWS
from eval.engines.search import DisturbedSearch

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "round-robin": ("quantum_s=1",),
    "pollux": ("interval_s=1",),
    "drf": ("interval_s=2", "patience_s=1"),
    "optimus": ("interval_s=2", "patience_s=1"),
    "slaq": ("epoch_s=1", "patience_s=1"),
}
"""Of policies that decide at intervals: made for trainings of hours, not of seconds."""
KILLS_WITHIN = 0.6
"""Of the time that a search takes, within which its kills are spread: what comes later finds nobody left."""
LAUNCH_S = 0.8
"""About what a launch of the search takes of it."""
SOME_FAILED = 3
"""The exit code of `beamer schedule` where some configurations failed."""


@dataclass(frozen=True)
class EngineOutcome:
    """What came of a search under a policy.

    launches: of jobs, in all. taken: ports that another program had. killed: ranks. failed_runs: of sound configurations, each
    started again. refused: configurations with a line that is shown as none of progress. elapsed_s: of the search. winner: that
    it names. failures: what should not have been, in words.
    """

    policy: str
    launches: int
    taken: int
    killed: int
    failed_runs: int
    refused: int
    elapsed_s: float
    winner: str
    failures: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def run(policy: str, search: DisturbedSearch, patience_s: float, seed: int = 0) -> EngineOutcome:
    """Return what comes of a search under a policy. patience_s: after which it counts as held up."""
    with tempfile.TemporaryDirectory(prefix="beamer-engines-") as name:
        root = Path(name).resolve()
        (root / "search.yaml").write_text(dump_yaml(search.content(root)))
        sizes = search.sizes
        every_s = KILLS_WITHIN * LAUNCH_S * (sizes.sound + sizes.kills) / max(sizes.kills, 1)
        disturber = Disturber(
            root / "dir", sizes.port_share, sizes.kills, sizes.retries, dict(search.rates), every_s, seed
        )  # fmt: skip
        command = [sys.executable, "-m", "beamer.cli", "schedule", str(root / "search.yaml"), "--dir", str(root / "dir")]
        command += ["--policy", policy, "--json", str(root / "figures.json"), "--quiet"]
        command += [word for setting in SETTINGS.get(policy, ()) for word in ("--set", setting)]
        begun_s = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            with disturber:
                output, _ = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            output = _ended(process)
            return EngineOutcome(
                policy, 0, disturber.taken.total(), disturber.killed.total(), 0, 0, time.monotonic() - begun_s, "",
                (f"it did not end within {patience_s:g} s: {output[-2000:]}",),
            )  # fmt: skip
        except BaseException:
            _ended(process)
            raise
        elapsed_s = time.monotonic() - begun_s
        return _outcome(policy, search, root, process.returncode, output, disturber, elapsed_s)


def _ended(process: "subprocess.Popen[str]") -> str:
    """Have a search save its jobs and end, so that no process is left, and return what it printed."""
    process.send_signal(signal.SIGTERM)
    return process.communicate()[0]


def _outcome(
    policy: str, search: DisturbedSearch, root: Path, code: int, output: str, disturber: Disturber, elapsed_s: float
) -> EngineOutcome:
    if code not in (0, 1, SOME_FAILED):
        failures: tuple[str, ...] = (f"exit code {code}: {output[-2000:]}",)
        return EngineOutcome(policy, 0, disturber.taken.total(), disturber.killed.total(), 0, 0, elapsed_s, "", failures)
    figures = json.loads((root / "figures.json").read_text())
    rows = {row["name"]: row for row in figures["configurations"]}
    found = _differences(search, root, code, figures["best"], rows)
    launches = sum(last_run(path).run for path in (root / "dir" / "jobs").iterdir() if path.is_dir())
    return EngineOutcome(
        policy,
        launches,
        disturber.taken.total(),
        disturber.killed.total(),
        sum(rows[name]["failures"] for name in search.rates),
        sum(bool(row["refused"]) for row in rows.values()),
        elapsed_s,
        figures["best"] or "",
        tuple(found),
    )


def _differences(
    search: DisturbedSearch, root: Path, code: int, winner: str | None, rows: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return how the search has not ended as if undisturbed, in words."""
    found: list[str] = []
    if code != SOME_FAILED:
        found.append(f"exit code {code}, expected {SOME_FAILED}")
    if winner != search.winner:
        found.append(f"the winner is {winner}, expected {search.winner}")
    last = search.sizes.rungs[-1][0]
    for name, target in search.targets.items():
        expected = "finished" if target == last else "killed"
        if (rows[name]["status"], rows[name]["iterations"]) != (expected, target):
            row = rows[name]
            found.append(
                f"{name} is {row['status']} after {row['iterations']:g}, expected {expected} after {target}: {row['reason']}"
            )
        found += search.differences(name, root / f"{name}.trace")
    for name in FLAWS:
        if rows[name]["status"] != "failed" or not rows[name]["reason"]:
            found.append(f"{name} is {rows[name]['status']}, expected failed with a reason")
        if rows[name]["failures"] != search.sizes.retries + 1:
            found.append(f"{name} failed {rows[name]['failures']} times, expected {search.sizes.retries + 1}")
    if not rows["lie"]["refused"]:
        found.append("what the lying program reports is not shown as refused")
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_of(root, pid)]
    return [*found, *([f"processes are left: {', '.join(left)}"] if left else [])]


def _is_of(root: Path, pid: str) -> bool:
    try:
        return int(pid) != os.getpid() and os.fsencode(root) in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
