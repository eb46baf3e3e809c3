"""A scenario file for both levels: hosts with GPUs on a network, and searches whose trials ask for them.

Nothing is placed in it: where a trial runs is for the GPU level to decide, and what its coflows load follows from that. A
trial's loss follows from its iterations alone, so that every pair of policies is given exactly the same work. On real packets a
search may run a program that trains its `configurations`; its curves then are what a simulation takes their losses for.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from beamer.engines.profiles import DataParallelProfile, HyperbolicLoss
from beamer.engines.simulated import SimulatedJob
from beamer.errors import InputError
from beamer.file_numbers import (
    MAX_NODE_GPUS,
    Amount,
    Iterations,
    PositiveAmount,
    PositiveSeconds,
    Seconds,
    SyncBytes,
    Trials,
)
from beamer.gpu.model import Cluster, Costs, Job, Node, Request, Stage
from beamer.gpu.placement import can_ever_run
from beamer.network.collectives import PARAMETER_SERVER, check_sizes
from beamer.network.fabric import Fabric
from beamer.network.plan import QUEUES, check_queues
from beamer.studies.halving import declared_rungs
from beamer.studies.model import MAX_RANK, Profile, Rung, check_identifier
from beamer.studies.registration import check_profile, check_rungs
from beamer.validation import FileEntry, checked, input_error
from beamer.workloads.programs import STAND_IN, Configuration, Program, check_program, configurations
from beamer.workloads.scenario import Scenario, build_topology
from beamer.workloads.scenario import parse as parse_network
from beamer.workloads.scenario import shipped as shipped_network
from beamer.yaml_files import read_yaml


@dataclass(frozen=True)
class SearchPlan:
    """A search by successive halving."""

    name: str
    """The study's name."""
    arrival_s: float
    """When all of its trials ask for GPUs, seconds after the scenario's start."""
    rungs: tuple[Rung, ...]
    """Its rungs."""
    trials: dict[str, SimulatedJob]
    """What each trial runs in a simulation, by name."""
    program: str
    """The program of `beamer.workloads.programs` that runs on real packets."""
    configurations: dict[str, Configuration]
    """What the program is given, by trial."""


@dataclass(frozen=True)
class JointScenario:
    """Searches that share the GPUs of a fabric's hosts."""

    name: str
    """The scenario's name."""
    fabric: Fabric
    """The network."""
    nodes: tuple[Node, ...]
    """The hosts as nodes with GPUs."""
    seed: int
    """The seed of the policies' draws."""
    queues: int
    """Classes per port."""
    report_s: float
    """Seconds between two reports of a trial."""
    searches: tuple[SearchPlan, ...]
    """The searches."""


class _Costs(FileEntry):
    start_s: Seconds = 0.0
    """Seconds from a trial's first start to its first iteration."""
    suspend_s: Seconds = 0.0
    """Seconds that suspending a trial takes, its memory kept; simulated only."""
    resume_s: Seconds = 0.0
    """Seconds that resuming a suspended trial takes; simulated only."""
    restart_s: Seconds = 0.0
    """Seconds from a start with a checkpoint, on other GPUs or another number of them, to the next iteration."""


class _Request(FileEntry):
    gpus: int = Field(default=1, ge=1, le=MAX_RANK)
    """GPUs that a trial is written for; policies that do not resize grant as many."""
    min_gpus: int = Field(default=0, ge=0, le=MAX_RANK)
    """The fewest GPUs that it can run on; 0: `gpus`."""
    max_gpus: int = Field(default=0, ge=0, le=MAX_RANK)
    """The most GPUs that it can run on; 0: `gpus`."""


class _Job(FileEntry):
    bytes: SyncBytes
    """Bytes of a trial's gradients, which a synchronisation adds up over its GPUs; units as in `600kB` and `4MiB`."""
    compute_s: PositiveSeconds
    """Seconds of computing in an iteration on `request.gpus` GPUs; on twice as many it is half."""
    compute_jitter: float = Field(default=0.0, ge=0, le=3)
    """By how much trials differ in computing: the standard deviation of the logarithm of `compute_s`."""
    fixed_s: Seconds = 0.0
    """Seconds of each iteration that no further GPU shortens."""
    collective: str = "ring"
    """The collective of a synchronisation, as in a scenario without GPUs; emulated, `ring` alone."""
    overlap: float = Field(default=0.0, ge=0, le=1)
    """Share of the computing, 0 to 1, during which gradients are already sent."""
    epoch: Iterations = 1
    """Iterations between two reports that policies may expect; a program on real packets reports so often."""


class _Curve(FileEntry):
    start: PositiveAmount = 1.0
    """The loss of a trial before its first iteration."""
    floor: Amount
    """The loss that it falls to: after i iterations it is `floor + (start - floor) / (1 + i / half)`."""
    half: PositiveAmount
    """Iterations after which half of the fall is done."""


class _Draw(FileEntry):
    trials: Trials
    """How many trials the search has; each is given a curve of its own."""
    start: PositiveAmount = 1.0
    """The loss of every trial before its first iteration."""
    floor: tuple[Amount, Amount]
    """The least and the largest loss that trials fall to, drawn uniformly."""
    half: tuple[PositiveAmount, PositiveAmount]
    """The least and the largest number of iterations after which half of the fall is done, drawn uniformly."""


_CURVES = TypeAdapter(list[_Curve])


class _Rung(FileEntry):
    iterations: Iterations
    """The iteration, from a trial's beginning, at which the rung ends.

    `rungs.iterations` of a study, in a scenario without GPUs, counts those of its rung alone.
    """
    keep: Trials | None = None
    """How many trials go on to the next rung; the last rung has no such key."""


class _Search(FileEntry):
    name: str
    """The search's name."""
    arrival_s: Seconds = 0.0
    """Seconds from the scenario's start at which all of its trials ask for GPUs."""
    request: _Request = _Request()
    """What each of its trials asks for."""
    job: _Job
    """What each of its trials does in an iteration."""
    program: str = STAND_IN
    """The program that runs on real packets: `stand-in` only communicates, `digits` trains (extra `digits`)."""
    configurations: list[Any] | None = None
    """What `digits` trains in each trial, a list of `learning_rate`, `momentum` (0) and `channels` of a convolution (8)."""
    curves: Any
    """Loss curves: a list with a Curve for each trial, or one Draw."""
    rungs: list[_Rung] = Field(min_length=1)
    """Its rungs, in order."""


class _File(FileEntry):
    name: str
    """The scenario's name."""
    topology: dict[str, Any]
    """The network: its `shape`, and that shape's parameters.

    Shapes are `single`, `dumbbell`, `leaf-spine`, `fat-tree` and those of other packages.
    """
    gpus_per_host: int = Field(ge=1, le=MAX_NODE_GPUS)
    """GPUs of each host."""
    seed: int = 0
    """The seed of all draws: those of policies, curves and computing."""
    queues: int = QUEUES
    """Managed classes per port, 1 to 8."""
    report_s: PositiveSeconds = 1.0
    """Seconds between two reports of a simulated trial."""
    costs: _Costs = _Costs()
    """What starting and changing a trial takes."""
    searches: list[_Search] = Field(min_length=1)
    """The searches that share GPUs and network."""


def shipped() -> Path:
    """Return the file of the scenario for both levels that comes with the package."""
    return Path(str(files("beamer.workloads") / "scenarios" / "shared-gpus.yaml"))


def load(path: Path) -> JointScenario:
    """Read a scenario file for both levels. Raises `InputError` that names the field, the value and what was expected."""
    return parse(read_yaml(path, "scenario"))


def load_either(file: Path | None, gpu_options: Mapping[str, str | None]) -> tuple[Path, Scenario | JointScenario]:
    """Read a scenario file, for both levels if it has searches or GPUs, else for a network alone; return its path, too.

    file: None: the shipped one, with an option of the GPU level that for both. gpu_options: None: not given.
    Raises `InputError`, also for such an option beside a scenario for a network alone.
    """
    given = [(option, value) for option, value in gpu_options.items() if value is not None]
    path = file or (shipped() if given else shipped_network())
    data = read_yaml(path, "scenario")
    if isinstance(data, dict) and not data.keys().isdisjoint(("searches", "gpus_per_host")):
        return path, parse(data)
    network = parse_network(data)
    if given:
        raise InputError(*given[0], f"a scenario whose searches ask for GPUs beside it, which {network.name} is not")
    return path, network


def parse(data: Any) -> JointScenario:
    """Build a scenario for both levels from the content of its file. Raises `InputError`."""
    file = checked(_File, data, "scenario")
    check_identifier(file.name, "name")
    fabric = build_topology(file.topology)
    nodes = tuple(Node(host.name, file.gpus_per_host) for host in fabric.hosts)
    searches: dict[str, SearchPlan] = {}
    for i, search in enumerate(file.searches):
        if search.name in searches:
            raise InputError(f"searches[{i}].name", search.name, "a name that is not taken")
        searches[search.name] = _search(search, f"searches[{i}]", file, nodes)
    return JointScenario(
        file.name, fabric, nodes, file.seed, check_queues(file.queues), file.report_s, tuple(searches.values())
    )  # fmt: skip


def _search(search: _Search, field: str, file: _File, nodes: tuple[Node, ...]) -> SearchPlan:
    check_identifier(search.name, f"{field}.name")
    program = check_program(search.program, f"{field}.program")
    curves = _curves(search, field, file.seed)
    names = [f"t{i}" for i in range(len(curves))]
    given = configurations(program, search.configurations, len(curves), f"{field}.configurations")
    for configuration in given:
        program.check_bytes(configuration, search.job.bytes, f"{field}.job.bytes")
    rungs = declared_rungs([(rung.iterations, rung.keep) for rung in search.rungs], len(curves), f"{field}.rungs")
    with _below(field):
        check_rungs(rungs)
    with _below(f"{field}.request"):
        request = _request(search, rungs[-1].step, _traffic(search, f"{field}.job"), program)
        if not can_ever_run(Job.waiting(search.name, request, 0.0, Stage("", "")), Cluster(nodes)):
            raise InputError("gpus", request.gpus, f"what the hosts have, {Cluster(nodes).gpus} in all")
    most = min(request.most, Cluster(nodes).gpus)
    check_sizes(f"{field}.job.collective", search.job.collective, request.least, most, request.servers)
    costs = Costs(file.costs.suspend_s, file.costs.resume_s, file.costs.restart_s)
    trials = {
        name: _trial(search, request, loss, slowness, costs, file.costs.start_s)
        for name, loss, slowness in zip(names, curves, _slowness(search, file.seed, len(curves)), strict=True)
    }
    return SearchPlan(
        search.name, search.arrival_s, rungs, trials, search.program, dict(zip(names, given, strict=True))
    )  # fmt: skip


def _curves(search: _Search, field: str, seed: int) -> list[HyperbolicLoss]:
    """Return a loss curve for each trial: as written, or drawn from the scenario's seed and the search's name."""
    if not search.curves or not isinstance(search.curves, list | dict):
        raise InputError(f"{field}.curves", search.curves, "a curve for each trial, or ranges to draw them from")
    try:
        if isinstance(search.curves, list):
            curves = _CURVES.validate_python(search.curves)
            return [HyperbolicLoss(curve.start, curve.floor, curve.half) for curve in curves]
        draw, rng = _Draw.model_validate(search.curves), Random(f"{seed}/{search.name}")
    except ValidationError as error:
        raise input_error(error, prefix=f"{field}.curves") from error
    for name in ("floor", "half"):
        low, high = getattr(draw, name)
        if low > high:
            raise InputError(f"{field}.curves.{name}", [low, high], "the lower end first")
    return [HyperbolicLoss(draw.start, rng.uniform(*draw.floor), rng.uniform(*draw.half)) for _ in range(draw.trials)]


def _traffic(search: _Search, field: str) -> Profile:
    job = search.job
    traffic = Profile(job.bytes, job.collective, job.compute_s + job.fixed_s, job.overlap)
    try:
        check_profile(traffic)
    except InputError as error:
        name = {"sync_bytes": "bytes"}.get(error.field, error.field)
        raise InputError(f"{field}.{name}", error.value, error.expected) from error
    return traffic


def _request(search: _Search, iterations: int, traffic: Profile, program: Program) -> Request:
    asked, epoch, size = search.request, search.job.epoch, program.batch_size or search.request.gpus
    return Request(
        iterations,
        asked.gpus,
        asked.min_gpus,
        asked.max_gpus,
        epoch=epoch,
        batch_size=size,
        servers=traffic.collective == PARAMETER_SERVER,
        traffic=traffic,
    )


@contextmanager
def _below(field: str) -> Iterator[None]:
    """Name what is wrong by where it is in the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{field}.{error.field}", error.value, error.expected) from error


def _slowness(search: _Search, seed: int, count: int) -> list[float]:
    """Return for so many trials how many times as long as the search says the computing of each lasts."""
    rng = Random(f"{seed}/{search.name}/jitter")
    return [math.exp(search.job.compute_jitter * rng.gauss(0.0, 1.0)) for _ in range(count)]


def _trial(
    search: _Search, request: Request, loss: HyperbolicLoss, slowness: float, costs: Costs, start_s: float
) -> SimulatedJob:
    """Return a trial whose workers share what takes one of the requested size `compute_s`; the network adds the rest."""
    compute_s, fixed_s = search.job.compute_s * slowness, search.job.fixed_s
    traffic = replace(request.traffic, compute_s=compute_s + fixed_s)
    profile = DataParallelProfile(loss, request.batch_size, compute_s * request.gpus, fixed_s)
    return SimulatedJob(replace(request, traffic=traffic), profile, costs, start_s=start_s)
