"""A scenario file: a network and the searches that share it; the emulation and the simulator run the same one.

Each study is one successive-halving search: all its trials run in the first rung; of every rung the best `keep` trials continue
in the next, with that rung's iterations. Which trials are best follows from the scenario's seed alone, so that every policy,
emulated or simulated, is given exactly the same work.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from inspect import signature
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from beamer import entry_points
from beamer.errors import InputError, nearest
from beamer.file_numbers import Iterations, PositiveSeconds, Seconds, SyncBytes, Trials, Weight
from beamer.network.collectives import phases
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.network.plan import QUEUES, check_queues
from beamer.studies.model import Role, Rung, Worker, check_identifier
from beamer.studies.registration import check_rungs
from beamer.units import UNSCALED_WINDOW_BYTES, parse_size
from beamer.validation import FileEntry, check_arguments, checked
from beamer.yaml_files import read_yaml

MAX_WINDOW_BYTES = 2**30  # TCP's largest window, with the largest scale (RFC 7323)


@dataclass(frozen=True)
class StagePlan:
    """A rung with its trials resolved; the job of a trial has the trial's name.

    finish: how many jobs end the stage by finishing, upon which the others are killed; None: all of them.
    """

    name: str
    jobs: tuple[JobSpec, ...]
    finish: int | None = None


@dataclass(frozen=True)
class StudyPlan:
    """One search: its stages run one after another."""

    name: str
    """The study's name."""
    weight: float
    """The weight of its stages in the objective."""
    arrival_s: float
    """Seconds after the scenario's start or, closed-loop, after the end of the study named by `after`."""
    stages: tuple[StagePlan, ...]
    """Its rungs with their trials."""
    after: str | None = None
    """The study that it waits for; None: none."""

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The stages as the study declares them when it registers, with the steps at which they judge their trials."""
        steps = accumulate(max(job.iterations for job in stage.jobs) for stage in self.stages)
        return tuple(Rung(stage.name, len(stage.jobs), step) for stage, step in zip(self.stages, steps, strict=True))


@dataclass(frozen=True)
class CableFailure:
    """A cable that is dead, in both directions, from `at_s` to `until_s` (None: to the end)."""

    ends: tuple[str, str]
    at_s: float
    until_s: float | None = None


@dataclass(frozen=True)
class TransportSettings:
    """TCP and queues where packets are real; the simulator shares rates and has neither.

    At an MTU of 9 kB queues of 400 packets hold the windows of 13 connections. What a starved class loses stays lost until its
    connection's time-out, which agents bound at 2.1 s; before Linux 6.15 it has doubled several times from `rto_min_s` on.
    """

    congestion_control: str = "reno"
    """TCP's congestion control on trainers' connections, by the kernel's name."""
    queue_packets: int = 400
    """Packets that a class may queue at a port."""
    window_bytes: int = 262144
    """The largest window of a connection; 65 535 times a power of two is kept."""
    rto_min_s: float = 2.0
    """Seconds before TCP takes what is not acknowledged for lost."""


@dataclass(frozen=True)
class Scenario:
    """A fabric, the studies that run on it and the cables that fail meanwhile."""

    name: str
    """The scenario's name."""
    fabric: Fabric
    """The network."""
    seed: int
    """The seed of the policies' draws."""
    queues: int
    """Classes per port."""
    studies: tuple[StudyPlan, ...]
    """The searches, which run in stages."""
    failures: tuple[CableFailure, ...] = ()
    """The cables that fail."""
    start_up_s: float = 0.0
    """Seconds from each job's start to its first iteration; in the emulation, from having opened its connections."""
    transport: TransportSettings = TransportSettings()
    """TCP and queues where packets are real."""


class _Trial(FileEntry):
    trial: str
    """The trial's name in its study."""
    workers: list[str] = Field(min_length=1)
    """Hosts of its workers, in order of their ranks."""
    servers: list[str] = Field(default=[])
    """Hosts of its parameter servers; only the collective `parameter-server` has any."""
    bytes: SyncBytes
    """Bytes of its gradients, which a synchronisation adds up over the workers; units as in `600kB` and `4MiB`."""
    collective: str = "ring"
    """The collective of a synchronisation: `ring`, `halving-doubling`, `parameter-server`, `fsdp` or `all-to-all`.

    The emulation has `ring` and `parameter-server` alone.
    """
    compute_s: Seconds = 0.0
    """Seconds of computing in an iteration."""
    overlap: float = Field(default=0.0, ge=0, le=1)
    """Share of the computing, 0 to 1, during which gradients are already sent."""


class _Rung(FileEntry):
    iterations: Iterations
    """Iterations that each trial runs in this rung, beside those of the rungs before it.

    `rungs.iterations` of a search counts from a trial's beginning.
    """
    keep: Trials | None = None
    """How many trials go on to the next rung; the last rung has no such key."""
    finish: Trials | None = None
    """How many trials end the rung by finishing, upon which the others are stopped; by default all; simulated only."""


class _Study(FileEntry):
    study: str
    """The study's name."""
    weight: Weight = 1.0
    """The weight of its stages in the objective, against those of other studies."""
    arrival_s: Seconds = 0.0
    """Seconds from the scenario's start, or from the end of the study named by `after`, to its own start."""
    after: str | None = None
    """The study that it waits for, one listed before it; by default none."""
    trials: list[_Trial] = Field(min_length=1)
    """Its trials, all of which run in the first rung."""
    rungs: list[_Rung] = Field(min_length=1)
    """Its rungs, in order."""


class _Failure(FileEntry):
    link: str
    """The cable that fails, as its ends: `l1-s1`."""
    at_s: Seconds = 0.0
    """Seconds from the scenario's start at which it fails, in both directions."""
    until_s: PositiveSeconds | None = None
    """Seconds from the scenario's start at which it carries again; by default never."""


class _File(FileEntry):
    name: str
    """The scenario's name."""
    topology: dict[str, Any]
    """The network: its `shape`, and that shape's parameters.

    Shapes are `single`, `dumbbell`, `leaf-spine`, `fat-tree` and those of other packages.
    """
    seed: int = 0
    """The seed of the policies' draws; it also decides which trials go on at a rung."""
    queues: int = QUEUES
    """Managed classes per port, 1 to 8."""
    start_up_s: Seconds = 0.0
    """Seconds from a job's start to its first iteration; at least 0.5 where it is emulated."""
    congestion_control: str = Field(default=TransportSettings.congestion_control, pattern=r"^[a-z0-9_]{1,15}$")
    """TCP's congestion control on trainers' connections, by the kernel's name; emulated only."""
    queue_packets: int = Field(default=TransportSettings.queue_packets, ge=1, le=100_000)
    """Packets that a class may queue at a port; emulated only."""
    window: Annotated[
        int, BeforeValidator(lambda v: parse_size(v, "window")), Field(ge=UNSCALED_WINDOW_BYTES, le=MAX_WINDOW_BYTES)
    ] = TransportSettings.window_bytes
    """The largest window of a connection in bytes, or as `256KiB`; 65 535 times a power of two is kept; emulated only."""
    rto_min: float = Field(default=TransportSettings.rto_min_s, ge=0.001, le=2)  # Agents bound time-outs a little above.
    """Seconds before TCP takes what is not acknowledged for lost; emulated only."""
    studies: list[_Study] = Field(min_length=1)
    """The searches that share the network."""
    failures: list[_Failure] = Field(default=[])
    """Cables that fail; simulated only."""


def shipped() -> Path:
    """Return the file of the scenario that comes with the package."""
    return Path(str(files("beamer.workloads") / "scenarios" / "overlapping-searches.yaml"))


def load(path: Path) -> Scenario:
    """Read a scenario file. Raises `InputError` that names the field, the value and what was expected."""
    return parse(read_yaml(path, "scenario"))


def parse(data: Any) -> Scenario:
    """Build a scenario from the content of a scenario file. Raises `InputError`."""
    file = checked(_File, data, "scenario")
    check_identifier(file.name, "name")
    fabric = build_topology(file.topology)
    _unique([s.study for s in file.studies], "studies")
    studies = tuple(_study(s, f"studies[{i}]", file.seed, fabric) for i, s in enumerate(file.studies))
    for i, study in enumerate(file.studies):
        earlier = [other.study for other in file.studies[:i]]
        if study.after is not None and study.after not in earlier:
            raise InputError(f"studies[{i}].after", study.after, f"a study listed before it: {', '.join(earlier) or 'none is'}")
    failures = tuple(_failure(failure, f"failures[{i}]", fabric) for i, failure in enumerate(file.failures))
    _check_paths(fabric, studies, failures)
    return Scenario(
        file.name,
        fabric,
        file.seed,
        check_queues(file.queues),
        studies,
        failures,
        file.start_up_s,
        transport=TransportSettings(file.congestion_control, file.queue_packets, file.window, file.rto_min),
    )


def build_topology(parameters: dict[str, Any]) -> Fabric:
    """Build the fabric that `shape` names with the other parameters. Raises `InputError`."""
    shapes = entry_points.find("beamer.topologies")
    shape = parameters.get("shape")
    if not isinstance(shape, str) or shape not in shapes:
        raise InputError("topology.shape", shape, nearest(str(shape), shapes))
    build = entry_points.load(shapes[shape], "a function")
    if not callable(build):
        raise entry_points.refused(shapes[shape], "a function")
    arguments = {key: value for key, value in parameters.items() if key != "shape"}
    check_arguments("topology", build, arguments, signature(build).parameters)
    fabric = build(**arguments)
    if not isinstance(fabric, Fabric):
        raise entry_points.refused(shapes[shape], f"a function that returns a Fabric, not {type(fabric).__name__}")
    return fabric


def _study(study: _Study, field: str, seed: int, fabric: Fabric) -> StudyPlan:
    check_identifier(study.study, f"{field}.study")
    _unique([t.trial for t in study.trials], f"{field}.trials")
    for i, trial in enumerate(study.trials):
        _check_trial(trial, f"{field}.trials[{i}]", fabric)
    stages: list[StagePlan] = []
    trials: list[_Trial] = list(study.trials)
    for i, rung in enumerate(study.rungs):
        if rung.finish is not None and rung.finish > len(trials):
            raise InputError(f"{field}.rungs[{i}].finish", rung.finish, f"1 to {len(trials)}, the trials that run in this rung")
        stages.append(StagePlan(f"rung{i}", tuple(_job(t, rung.iterations) for t in trials), rung.finish))
        if i + 1 < len(study.rungs):
            if rung.keep is None or rung.keep > len(trials):
                raise InputError(f"{field}.rungs[{i}].keep", rung.keep, f"1 to {len(trials)}, the trials that run in this rung")
            trials = _best(trials, rung.keep, seed, study.study)
        elif rung.keep is not None:
            raise InputError(f"{field}.rungs[{i}].keep", rung.keep, "no such key in the last rung, after which nothing runs")
    plan = StudyPlan(study.study, study.weight, study.arrival_s, tuple(stages), study.after)
    try:
        check_rungs(plan.rungs)
    except InputError as error:
        raise InputError(f"{field}.{error.field}", error.value, error.expected) from error
    return plan


def _failure(failure: _Failure, field: str, fabric: Fabric) -> CableFailure:
    cables = [f"{link.src}-{link.dst}" for link in fabric.links]
    if failure.link not in cables:
        raise InputError(f"{field}.link", failure.link, nearest(failure.link, cables))
    if failure.until_s is not None and failure.until_s <= failure.at_s:
        raise InputError(f"{field}.until_s", failure.until_s, f"a time after at_s ({failure.at_s:g})")
    link = fabric.links[cables.index(failure.link)]
    return CableFailure((link.src, link.dst), failure.at_s, failure.until_s)


def dead(failures: Sequence[CableFailure], now_s: float) -> frozenset[tuple[str, str]]:
    """Return the cables that are dead at a time."""
    return frozenset(f.ends for f in failures if f.at_s <= now_s and (f.until_s is None or now_s < f.until_s))


def _check_paths(fabric: Fabric, studies: Sequence[StudyPlan], failures: Sequence[CableFailure]) -> None:
    """Check that every job has a path at any time, whenever it may run. Raises `InputError`."""
    pairs = {
        (a.host, b.host)
        for study in studies
        for stage in study.stages
        for job in stage.jobs
        for a in job.workers
        for b in job.workers
    }
    for i, failure in enumerate(failures):
        cables = dead(failures, failure.at_s)
        try:
            hops = fabric.next_hops.around(cables)
            for src, dst in sorted(pairs):
                fabric.path(src, dst, 0, hops)
        except InputError as error:
            link = "-".join(failure.ends)
            raise InputError(f"failures[{i}].link", link, f"one whose loss leaves every job a path ({error})") from error


def _best(trials: Sequence[_Trial], keep: int, seed: int, study: str) -> list[_Trial]:
    """Return the `keep` trials of least final loss, in their own order; the loss is drawn once per trial from the seed."""
    ranked = sorted(trials, key=lambda t: random.Random(f"{seed}/{study}/{t.trial}").random())
    surviving = {t.trial for t in ranked[:keep]}
    return [t for t in trials if t.trial in surviving]


def _check_trial(trial: _Trial, field: str, fabric: Fabric) -> None:
    check_identifier(trial.trial, f"{field}.trial")
    for kind, hosts in (("workers", trial.workers), ("servers", trial.servers)):
        for i, host in enumerate(hosts):
            if host not in fabric.host:
                raise InputError(f"{field}.{kind}[{i}]", host, nearest(host, fabric.host))
    try:
        phases(_job(trial, 1))
    except InputError as error:
        raise InputError(f"{field}.{error.field}", error.value, error.expected) from error


def _job(trial: _Trial, iterations: int) -> JobSpec:
    placed = [(h, Role.WORKER) for h in trial.workers] + [(h, Role.SERVER) for h in trial.servers]
    return JobSpec(
        name=trial.trial,
        workers=tuple(Worker(rank, host, role) for rank, (host, role) in enumerate(placed)),
        iterations=iterations,
        sync_bytes=trial.bytes,
        collective=trial.collective,
        compute_s=trial.compute_s,
        overlap=trial.overlap,
    )


def _unique(names: Sequence[str], field: str) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise InputError(f"{field}[{i}]", name, "a name that is not taken")
        seen.add(name)
