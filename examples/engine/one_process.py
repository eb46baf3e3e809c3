"""An engine that runs every job as one process on this machine, which ends with the engine.

A job that leaves its GPUs writes its checkpoint and ends: no memory is kept. Nodes are shares of the machine's GPUs.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from beamer.engines.local import LaunchSpec
from beamer.errors import EngineError
from beamer.gpu.engine import Engine, Observed, Placement, RunState, check_placement
from beamer.gpu.model import Costs, Node, Report, Speed
from beamer.schedule.engine_settings import EngineSettings, Launch

TAIL_BYTES = 500  # of what a program that failed has printed, in the reason


class OneProcessSettings(EngineSettings):
    """Keys of a search file."""

    niceness: int = Field(default=0, ge=0, le=19)
    """Of the programs, as `nice` takes it."""

    def open(self, directory: Path, launch: Launch, clock: Callable[[], float]) -> "OneProcess":
        """Return the engine."""
        return OneProcess(self.declared, directory, launch, clock, self.niceness)


@dataclass
class _Job:
    """A job. next: where it runs when it has come to an iteration boundary, None: nowhere. read: bytes of its output."""

    spec: LaunchSpec
    output: Path
    placement: Placement
    state: RunState = RunState.PARKED
    process: "subprocess.Popen[bytes] | None" = None
    next: Placement | None = None
    launch: int = 0
    read: int = 0
    started_s: float = 0.0
    seen_s: float = 0.0
    asked_s: float = 0.0
    stopping_s: float = 0.0
    service_s: float = 0.0
    reports: list[Report] = field(default_factory=list)
    delivered: int = 0
    exit: str = ""

    @property
    def done(self) -> float:
        return self.reports[-1].iteration if self.reports else -1.0


class OneProcess(Engine):
    """The engine."""

    keeps_memory = False

    def __init__(
        self, nodes: tuple[Node, ...], directory: Path, launch: Launch, clock: Callable[[], float], niceness: int
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._directory = directory
        self._spec_of = launch
        self._clock = clock
        self._niceness = niceness
        self._jobs: dict[str, _Job] = {}
        self._stopped: dict[str, _Job] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes: this machine is up."""
        return tuple(self._nodes.values())

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Run a job, from its checkpoint if it has one; one that is about to leave its GPUs runs on these afterwards."""
        check_placement(f"{job}: start", placement, self._nodes)
        if job not in self._jobs:
            self._jobs[job] = self._described(job, placement)
        known = self._jobs[job]
        if known.state is RunState.STOPPING:
            known.next = placement
        elif known.state is RunState.PARKED:
            self._launch(known, placement)

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Park a job."""
        self.resize(job, None)

    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Run a job on the GPUs that it had last, or is on its way to."""
        known = self._known(job, "resume")
        self.start(job, known.next or known.placement)

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Have a job leave its GPUs at an iteration boundary, and run on others if there are any."""
        known = self._known(job, "resize")
        if placement is not None:
            check_placement(f"{job}: resize", placement, self._nodes)
        if known.state is RunState.PARKED and placement is not None:
            self._launch(known, placement)
        elif known.state is RunState.STOPPING:
            known.next = placement
        elif known.state is RunState.RUNNING and placement != known.placement and known.process:
            known.state, known.next, known.asked_s = RunState.STOPPING, placement, self._clock()
            known.process.send_signal(known.spec.stop_signal)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """Kill a job and forget it."""
        if job in self._jobs:
            self._stopped[job] = self._jobs.pop(job)
            _kill(self._stopped[job])

    def report(self) -> Mapping[str, Observed]:
        """Return every job, after its output was read and its end seen."""
        return {job: self._observe(known) for job, known in self._jobs.items()}

    def close(self) -> None:
        """Kill all jobs: they end with the engine."""
        for known in self._jobs.values():
            _kill(known)

    def _known(self, job: str, call: str) -> _Job:
        if job not in self._jobs:
            raise EngineError(f"{job}: {call}: no such job has been started")
        return self._jobs[job]

    def _described(self, job: str, placement: Placement) -> _Job:
        try:
            spec = self._spec_of(job)
        except LookupError as error:
            raise EngineError(f"{job}: start: there is no such job ({error})") from error
        if spec.progress:
            raise EngineError(f"{job}: start: this engine reads lines of JSON alone, which job.progress asks not to")
        described = _Job(spec, self._directory / f"{job.replace('/', '_')}.output", placement)
        if before := self._stopped.get(job):  # One that has finished may be started again, to run farther.
            described.launch, described.service_s = before.launch, before.service_s
        return described

    def _launch(self, known: _Job, placement: Placement) -> None:
        """Start the process. Its death with this one is the kernel's: `setpriv` asks for that."""
        first = {name: sum(node.gpus for node in self.nodes()[:i]) for i, name in enumerate(self._nodes)}
        given = {
            "CUDA_VISIBLE_DEVICES": ",".join(str(first[node] + index) for node, index in placement.devices),
            "BEAMER_CHECKPOINT": known.spec.checkpoint,
            "BEAMER_BATCH_SIZE": str(placement.batch_size or known.spec.batch_size),
        }
        command = ["nice", "-n", str(self._niceness), "setpriv", "--pdeathsig", "KILL", *known.spec.command]
        with open(known.output, "ab") as output:
            known.process = subprocess.Popen(
                command,
                cwd=known.spec.cwd or None,
                env={**os.environ, **given, **dict(known.spec.env)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            known.read = output.tell()
        known.launch += 1
        known.placement, known.next, known.state = placement, None, RunState.RUNNING
        known.started_s, known.seen_s = self._clock(), 0.0

    def _observe(self, known: _Job) -> Observed:
        ended = known.process.poll() if known.process else None
        speed, costs = self._read(known)
        if ended is not None:
            self._end(known, ended)
        elif known.state is RunState.STOPPING and self._clock() > known.asked_s + known.spec.grace_s and known.process:
            known.process.kill()
        new = known.reports[known.delivered :] or (known.reports[-1:] if known.state.is_finished else [])
        known.delivered = len(known.reports)
        return Observed(
            known.state,
            known.placement if known.state.is_computing else None,
            tuple(new),
            (speed,) if speed else (),
            costs,
            exit=known.exit,
            target=known.spec.iterations,
            launch=known.launch,
        )

    def _read(self, known: _Job) -> tuple[Speed | None, Costs | None]:
        """Take in what a job has printed since; return how fast it was, and what its restart has taken, if that is new."""
        if known.process is None:
            return None, None
        with open(known.output, "rb") as output:
            output.seek(known.read)
            printed = output.read()
        lines = printed[: printed.rfind(b"\n") + 1]  # The rest of the last line may be on its way.
        known.read += len(lines)
        now, before = self._clock(), known.done
        for line in lines.splitlines():
            self._take(known, line, now)
        if known.done == before:
            return None, None
        speed = costs = None
        if known.seen_s:
            batch_size = known.placement.batch_size or known.spec.batch_size
            step_s = (now - known.seen_s) / (known.done - before)
            speed = Speed(len(known.placement.devices), 1, 0, batch_size, step_s)
        elif known.stopping_s:
            restart_s = known.stopping_s + now - known.started_s
            costs, known.stopping_s = Costs(resume_s=restart_s, restart_s=restart_s), 0.0
        known.seen_s = now
        return speed, costs

    def _take(self, known: _Job, line: bytes, now: float) -> None:
        """Note a line of progress; what was reported before the last restart is left out."""
        try:
            said = json.loads(line)
            iteration, loss = float(said["iteration"]), float(said["loss"])
        except (ValueError, TypeError, KeyError):
            return
        if iteration > known.done:
            known.reports.append(Report(now, iteration, loss, known.service_s + now - known.started_s))

    def _end(self, known: _Job, code: int) -> None:
        """Take in that a job's process has ended, and run it where it is to go on."""
        now = self._clock()
        known.process = None
        known.service_s += now - known.started_s
        if code == 0 and (known.state is RunState.RUNNING or known.done >= known.spec.iterations):
            known.state = RunState.FINISHED
        elif known.state is RunState.STOPPING:
            known.state, known.stopping_s = RunState.PARKED, now - known.asked_s
            if known.next:
                self._launch(known, known.next)
        else:
            known.state = RunState.FAILED
            tail = known.output.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
            known.exit = f"it ended with exit code {code} after {max(known.done, 0):g} iterations\n{tail}"


def _kill(known: _Job) -> None:
    if known.process:
        known.process.kill()
        known.process.wait()
