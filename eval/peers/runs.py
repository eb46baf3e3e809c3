"""Runs of a peer's simulator in processes of its interpreter, each kept in a file, so that a second start repeats none."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from beamer.errors import EngineError
from eval.arithmetic import kernels
from eval.peers.base import ROOT, Peer, sources_of
from eval.peers.contender import PeerRun
from eval.peers.report import PeerFigures
from eval.progress import RunsProgress, runs_progress
from eval.workers import as_they_end

ERROR_LINES = 12  # So many of the last lines are kept of what a run that failed printed.


@dataclass(frozen=True)
class FinishedRun:
    """What came of a run.

    key: of all that it depends on. random: whether random numbers were drawn. versions: of the peer's packages.
    """

    key: str
    figures: PeerFigures
    random: bool
    cpu_s: float
    versions: Mapping[str, str]

    @classmethod
    def read(cls, key: str, file: Path) -> "FinishedRun":
        """Return what a runner has left in a file."""
        result = json.loads(file.read_text())
        return cls(key, PeerFigures.of(result), result["random"], result["cpu_s"], result["versions"])


class RunningProcesses:
    """Processes that threads start, to be ended all together."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[str]] = set()
        self._ended = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Take in a process; end it where the others were ended while it started."""
        # This comes before `_ended` is read, as `end` sets it before it reads: one of them ends the process.
        self._processes.add(process)
        if self._ended:
            process.terminate()

    def discard(self, process: subprocess.Popen[str]) -> None:
        """Forget a process that has ended."""
        self._processes.discard(process)

    def end(self) -> None:
        """End all processes, also those that are just being started."""
        self._ended = True
        for process in list(self._processes):
            process.terminate()


@dataclass(frozen=True)
class PeerRuns:
    """Where and how runs of a peer are made.

    folder: of the simulator. python: that has its packages. cache: folder of results. known: runs that were made elsewhere, by
    their keys.
    """

    peer: Peer
    folder: Path
    python: Path
    cache: Path
    known: Mapping[str, FinishedRun] = field(default_factory=dict)

    def key(self, run: PeerRun) -> str:
        """Return the hash of all that a run's result depends on."""
        return run_key(self.peer, self.peer.content(self.folder), run)

    def file_of(self, run: PeerRun) -> Path:
        """Return where a run's result is kept."""
        whose = "theirs" if run.contender.own else "ours"
        return self.cache / f"{self.peer.name}-{run.workload}-{whose}-{run.contender.policy}-{run.seed}-{self.key(run)}.json"

    def still(self, found: Mapping[PeerRun, FinishedRun]) -> dict[PeerRun, FinishedRun]:
        """Return those of finished runs that would be the same if they were made now."""
        first: dict[str, PeerRun] = {}
        for run in sorted(found, key=lambda run: run.seed):
            first.setdefault(_without_seed(run), run)
        return {run: one for run, one in found.items() if one.key == self.key(run if one.random else first[_without_seed(run)])}

    def all(self, runs: Sequence[PeerRun], processes: int, console: Console) -> dict[PeerRun, FinishedRun]:
        """Return the results of runs, `processes` at a time. Raises `EngineError` for the first that fails.

        Runs that differ in their seeds alone share the first seed's result if it needed no random numbers.
        """
        first: dict[str, PeerRun] = {}
        for run in runs:
            first.setdefault(_without_seed(run), run)
        results = self._made(list(first.values()), processes, console)
        further = [run for run in runs if run not in results and results[first[_without_seed(run)]].random]
        results |= self._made(further, processes, console)
        return {run: results.get(run, results[first[_without_seed(run)]]) for run in runs}

    def _made(self, runs: Sequence[PeerRun], processes: int, console: Console) -> dict[PeerRun, FinishedRun]:
        self.cache.mkdir(parents=True, exist_ok=True)
        if not runs:
            return {}
        keys, files = {run: self.key(run) for run in runs}, {run: self.file_of(run) for run in runs}
        missing = [run for run in runs if keys[run] not in self.known and not files[run].exists()]
        running, known = RunningProcesses(), len(runs) - len(missing)
        shown = runs_progress(console, f"runs in {self.peer.title}", len(runs), known)
        with shown as progress, ThreadPoolExecutor(processes) as pool:
            try:
                for made in as_they_end([pool.submit(self._make, run, files[run], progress, running) for run in missing]):
                    progress.end(made.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                running.end()
                raise
        return {run: self.known.get(key) or FinishedRun.read(key, files[run]) for run, key in keys.items()}

    def _make(self, run: PeerRun, file: Path, progress: RunsProgress, running: RunningProcesses) -> str:
        """Make a run and return its title."""
        title = f"workload {run.workload}, seed {run.seed}: {run.contender.title}"
        progress.start(title)
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
            asked = Path(folder) / "run.json"
            asked.write_text(run.model_dump_json())
            command = [str(self.python), "-m", self.peer.runner, str(self.folder), str(asked), str(file)]
            with subprocess.Popen(
                command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process:
                running.add(process)
                assert process.stdout
                for line in process.stdout:
                    done, total = map(int, line.split())
                    progress.advance(title, done, total)
            running.discard(process)
            if process.returncode:
                errors.seek(0)
                said = "".join(errors.readlines()[-ERROR_LINES:])
                raise EngineError(f"{self.peer.title}, {title} failed:\n{said}")
        if file != self.file_of(run):
            file.unlink()
            raise EngineError(f"{self.peer.title}, {title}: the sources changed while it ran; start again")
        return title


def run_key(peer: Peer, content: str, run: PeerRun) -> str:
    """Return the hash of all that a run's result depends on. content: the hash of the peer's sources.

    The kernels of linear algebra are those of this machine, which the peer's interpreter has as well, whatever its versions,
    which are in the list of its packages. Of a policy of the peer's own they are left out: it is what ours are compared with.
    """
    own = run.contender.own
    asked = run.model_dump_json(exclude={"contender": {"label"}})
    packages = (peer.folder / "requirements.txt").read_text()
    parts = [content, sources_of(peer, own), asked, packages, *([] if own else [kernels()])]
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


def _without_seed(run: PeerRun) -> str:
    return run.model_dump_json(exclude={"seed"})


def _environment() -> dict[str, str]:
    """Return the environment of a run: one thread, as several run at a time."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
