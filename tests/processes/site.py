"""What tests on real processes share: a directory with an engine, and observations of processes by /proc alone."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from beamer.engines.local import Launcher, LaunchSpec, LocalCluster, LocalEngine, LocalNode
from beamer.engines.local.supervisor.groups import candidates, reopen
from beamer.engines.local.supervisor.processes import stat
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.model import Costs, Report

PATIENCE_S = 60.0
MAX_PAUSE_S = 0.1
ONE_THREAD = (("OPENBLAS_NUM_THREADS", "1"),)


def works(kind: str) -> bool:
    for one, path in candidates(f"beamer-probe-{os.getpid()}", kind):
        group = reopen(one, path, "BEAMER_PROBE=1")
        try:
            group.open()
        except OSError:
            return False
        group.close()
        return True
    return False


def until(holds: Callable[[], Any], what: str = "", max_pause_s: float = MAX_PAUSE_S) -> Any:
    """Wait up to `PATIENCE_S` for `holds` to return something true, and return it.

    Pauses grow to `max_pause_s`, since each call takes processor time from what is waited for.
    """
    patient, pause_s = time.monotonic() + PATIENCE_S, 0.005
    while not (result := holds()):
        assert time.monotonic() < patient, f"waited for {what or holds}"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, max_pause_s)
    return result


def read(pid: int, name: str) -> bytes:
    """Return what /proc holds of a process, nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def of_directory(root: Path) -> list[int]:
    """Return the living ranks, with all of their descendants, and supervisors below a directory, found by /proc alone."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            content = read(int(name), "environ") + read(int(name), "cmdline")
            process = stat(int(name))
            if str(root).encode() in content and process and process.state not in "ZX":
                found.append(int(name))
    return found


class PatientEngine(LocalEngine):
    """A local engine whose calls have the time that a machine that stalls takes."""

    def start(self, job: str, placement: Placement, timeout_s: float = PATIENCE_S) -> None:
        super().start(job, placement, timeout_s)

    def suspend(self, job: str, timeout_s: float = PATIENCE_S) -> None:
        super().suspend(job, timeout_s)

    def resume(self, job: str, timeout_s: float = PATIENCE_S) -> None:
        super().resume(job, timeout_s)

    def resize(self, job: str, placement: Placement | None, timeout_s: float = PATIENCE_S) -> None:
        super().resize(job, placement, timeout_s)

    def checkpoint(self, job: str, timeout_s: float = PATIENCE_S) -> None:
        super().checkpoint(job, timeout_s)

    def stop(self, job: str, timeout_s: float = PATIENCE_S) -> None:
        super().stop(job, timeout_s)


class Cable(Launcher):
    """Runs commands here as long as a file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def wrap(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", f'[ -e {shlex.quote(str(self._file))} ] && exec "$@"', "sh", *command]


@dataclass
class Site:
    """A directory with an engine on nodes of this machine. specs: what jobs are, by key."""

    root: Path
    specs: dict[str, LaunchSpec] = field(default_factory=dict)
    nodes: tuple[LocalNode, ...] = (LocalNode("localhost", 8),)
    group: str = "auto"
    engines: list[LocalEngine] = field(default_factory=list)
    reports: dict[str, list[Report]] = field(default_factory=dict)
    costs: dict[str, Costs] = field(default_factory=dict)

    def engine(self, **options: Any) -> LocalEngine:
        made = PatientEngine(LocalCluster(self.nodes), self.root / "jobs", self.specs.__getitem__, group=self.group, **options)
        self.engines.append(made)
        return made

    def program(self, job: str, code: str, **options: Any) -> None:
        self.specs[job] = LaunchSpec((sys.executable, "-c", code), **options)

    def trainer(self, job: str, iterations: int, *arguments: str, **options: Any) -> Path:
        """Have a job run the deterministic trainer; return its trace."""
        trace, gate = self.root / f"{job}.trace", self.root / f"{job}.gate"
        command = (sys.executable, "-m", "beamer.testing.trainer", "--iterations", str(iterations))
        files = ("--trace", str(trace), "--gate", str(gate))
        self.specs[job] = LaunchSpec((*command, *files, *arguments), env=ONE_THREAD, batch_size=64, **options)
        return trace

    def hold(self, job: str, at: int) -> None:
        """Let a job not go beyond an iteration, so that it runs however long the test takes."""
        gate = self.root / f"{job}.gate"
        new = gate.with_suffix(".new")
        new.write_text(str(at))
        new.replace(gate)

    def release(self, job: str) -> None:
        """Let a job run to its end."""
        (self.root / f"{job}.gate").unlink()

    def see(self, engine: LocalEngine, job: str) -> Observed:
        """Return what the engine sees of a job, its reports with all before, its costs as last delivered."""
        for key, seen in engine.report().items():
            known = self.reports.setdefault(key, [])
            known += seen.reports[known[-1:] == list(seen.reports[:1]) :]  # the last one of a job that has ended is repeated
            if seen.costs:
                self.costs[key] = seen.costs
            if key == job:
                found = seen
        return replace(found, reports=tuple(self.reports[job]), costs=self.costs.get(job))

    def until_state(self, engine: LocalEngine, job: str, *states: RunState) -> Observed:
        def reached() -> Observed | None:
            seen = self.see(engine, job)
            return seen if seen.state in states else None

        return until(reached, f"{job} to be {states}")

    def until_step(self, engine: LocalEngine, job: str, beyond: float = 0.0) -> float:
        """Wait until a job has reported an iteration beyond this one, and return it."""

        def reached() -> float:
            reports = self.see(engine, job).reports
            return reports[-1].iteration if reports and reports[-1].iteration > beyond else 0.0

        return until(reached, f"{job} to be beyond {beyond}")

    def ranks(self) -> list[int]:
        """Return the processes that carry the mark of a rank or a rank's descendant."""
        return [pid for pid in of_directory(self.root) if b"BEAMER_RANKS_OF=" in read(pid, "environ")]

    def supervisors(self) -> list[int]:
        ranks = set(self.ranks())
        return [pid for pid in of_directory(self.root) if pid not in ranks]


def on(*names: str) -> Placement:
    """Return a placement of a rank per name, on GPUs of each node that follow one another."""
    return Placement(tuple((name, names[:i].count(name)) for i, name in enumerate(names)))
