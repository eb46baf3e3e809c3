"""A search file: nodes, a job template, the configurations that it is run with, and who judges them."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import product
from math import inf, prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from beamer.client.urls import LAUNCHER_VARIABLE, STUDY_VARIABLE, TRIAL_VARIABLE, CommandLauncher
from beamer.engines.local import LaunchSpec
from beamer.engines.local.spec import COLLECTIVE_TIMEOUT_S
from beamer.errors import InputError, nearest
from beamer.file_numbers import MAX_EXIT_STATUS, AnyAmount, Iterations, PositiveSeconds, Seconds, Trials
from beamer.gpu.limits import RunLimits
from beamer.gpu.model import Cluster, Job, Node, Request, Stage, check_request
from beamer.gpu.placement import can_ever_run
from beamer.network.collectives import check_sizes
from beamer.schedule.engine_settings import DEFAULT_ENGINE, ENGINES, EngineSettings
from beamer.schedule.sampling import SamplerEntry, Sampling, trial_name
from beamer.schedule.template import OWN, Trial, Value, check_placeholder, filled, grid, placeholders, trials
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.studies.halving import declared_rungs
from beamer.studies.model import MAX_STEPS, Rung, check_identifier, split_key
from beamer.validation import FileEntry, build, checked
from beamer.yaml_files import EVERY_KEY, parse_scalar, read_yaml

RETRIES = 2
"""How often a configuration that failed is started again where the search says nothing: two accidents are no defect of it, and
one that has a defect takes three starts. Where a share p of starts fails by accident, p^3 of the configurations are lost."""
MAX_EXTREMES = 4096
"""Configurations at the ends of ranges that are checked before a search begins: a check takes a millisecond."""
MAY_CHANGE = ("retries", "timeout_s", "silent_s", "collective_timeout_s", "poll_s")
"""What may be another when a search is continued, beside what its engine says."""

AS_WRITTEN = (
    ("configurations",),
    ("grid",),
    ("job", "command"),
    ("job", "env"),
    ("sampler", "parameters", EVERY_KEY, "categorical"),
)
"""What programs are given: a learning rate of 1e-4 reaches them as "1e-4", and `true` as "true"."""


def _text(value: Any) -> Any:
    """Take numbers of data that are from no file: an argument may be one."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_Text = Annotated[str, BeforeValidator(_text)]


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError('a text, a number, true or false; quote what is to be a text, such as "null" or "[64, 64]"')
    return str(value)


_Scalar = Annotated[str, BeforeValidator(_scalar)]


class _Job(FileEntry):
    command: list[_Text] = Field(min_length=1)
    """The program and its arguments, the same for every rank; `{placeholders}` stand for a configuration's values."""
    python: str = ""
    """What `{python}` stands for: the program's interpreter, a path or a name that is found on PATH.

    A path with a `/` is relative to the search file. By default it is the interpreter that runs `beamer schedule`.
    """
    preload: list[str] = Field(default=[])
    """Names of modules that the program imports, such as `torch`: its processes start with them imported, once on each node.

    The command is a Python program then. By default every process imports its modules itself.
    """
    cwd: str = "."
    """The directory in which the program runs, relative to the search file."""
    env: dict[str, _Text] = Field(default={})
    """Environment variables that the program is given beside those of `beamer schedule`."""
    checkpoint: str = ""
    """The path that the program restarts from and writes to, relative to the search file; by default one below `--dir`.

    On several machines it lies on a file system that all share, and has `{name}` in it.
    """
    progress: str = ""
    """What finds reports in the output: `json`, the default, for lines of JSON, the name of a [format](../../tuners/run.md), or
    a regular expression of the package `regex`.

    Its named groups are `iteration` or `samples`, `loss` and, if the program prints them, `accuracy`, `gradient_sqr` and
    `gradient_var`.
    """
    stop_signal: str = "SIGTERM"
    """The signal upon which all ranks write a checkpoint at one iteration and exit."""
    checkpoint_signal: str = "SIGUSR1"
    """The signal upon which the ranks write a checkpoint at the next iteration and continue."""
    stopped_code: int = Field(default=0, ge=0, le=MAX_EXIT_STATUS)
    """The exit code, 0 to 255, of a rank that has stopped upon `stop_signal`."""
    grace_s: Seconds = 30.0
    """Seconds after `stop_signal` at which ranks that still run are killed; what came after their last checkpoint is lost."""
    request: dict[str, Any] = Field(default={})
    """What a configuration asks for: fields of `beamer.gpu.model.Request`, such as `gpus`, `max_gpus` and `batch_size`.

    `iterations` is one of them where there are no rungs. `target_loss` is the search's own key; `servers` is refused.
    """


class _Rung(FileEntry):
    iterations: Iterations
    """The iteration, from a configuration's beginning, at which the rung ends.

    `rungs.iterations` of a study, in a scenario without GPUs, counts those of its rung alone.
    """
    keep: Trials | None = None
    """How many configurations go on to the next rung; the last rung has no such key."""


class _AsynchronousHalving(FileEntry):
    iterations: Iterations
    """The iteration at which a configuration ends that is never ended before."""
    reduction_factor: int = Field(default=4, ge=2, le=MAX_STEPS)
    """One in so many goes on at a rung, and each rung lies so many times as far as the one before."""
    first: Iterations = 1
    """The iteration of the first rung."""


class _File(FileEntry):
    name: str
    """The search's name."""
    engine: str = DEFAULT_ENGINE
    """The engine that runs it: `local`, or one of another package, which has keys of its own."""
    job: _Job
    """What is run for each configuration."""
    configurations: list[dict[str, _Scalar]] | None = Field(default=None, min_length=1)
    """The configurations: a list of mappings from names to values, each with an optional `name`. These, `grid` or `sampler`."""
    grid: dict[str, Annotated[list[_Scalar], Field(min_length=1)]] | None = Field(default=None, min_length=1)
    """Lists of values by name, of which every combination is a configuration."""
    sampler: SamplerEntry | None = None
    """Who draws the configurations, and from what, in place of a list."""
    rungs: list[_Rung] = Field(default=[])
    """The rungs of successive halving, in order; by default every configuration runs to its last iteration."""
    asynchronous_halving: _AsynchronousHalving | None = None
    """Asynchronous successive halving in place of `rungs`: at a rung a configuration goes on or ends at once.

    It is compared with those that came there before, so that who goes on depends on who comes first.
    """
    target_loss: AnyAmount | None = None
    """The loss that the search is to reach, which policies know; by default none."""
    stop_at_target: bool = False
    """Whether the search ends with the first configuration that reaches `target_loss`; the others are killed."""
    retries: int = Field(default=RETRIES, ge=0, le=MAX_STEPS)
    """How many times a configuration that has failed is started again, in all."""
    timeout_s: PositiveSeconds | None = None
    """The longest time that a configuration may run in one rung, seconds on GPUs; by default unlimited."""
    silent_s: PositiveSeconds | None = None
    """The longest time that a configuration may print nothing, seconds on GPUs; by default unlimited."""
    collective_timeout_s: Seconds = COLLECTIVE_TIMEOUT_S
    """Seconds after which the program gives up in a collective; 0: never.

    A configuration of several ranks that has been suspended for half of it is parked: it restarts from its checkpoint.
    """
    poll_s: float | None = Field(default=None, gt=0, le=60, allow_inf_nan=False)
    """Seconds between two observations of the jobs, at most 60; by default 0.1, or 1 where a node is behind ssh."""


@dataclass(frozen=True)
class TrialJob:
    """What a trial asks for, and what runs for it until each of its targets, by step."""

    request: Request
    launches: Mapping[int, LaunchSpec]


@dataclass(frozen=True)
class Search:
    """A search: its jobs by trial."""

    name: str
    """The study's name."""
    engine: EngineSettings
    """Where it runs."""
    trials: tuple[Trial, ...]
    """Its configurations; where they are drawn, those that have been."""
    rungs: tuple[Rung, ...]
    """The rungs at which trials are judged; (): every trial runs to its end."""
    jobs: Mapping[str, TrialJob]
    """What is run, by trial."""
    target_loss: float | None
    """The loss that it is to reach; None: none."""
    stop_at_target: bool
    """Whether it ends when the loss is reached."""
    limits: RunLimits
    """The limits of its configurations' runs."""
    poll_s: float | None
    """Seconds between two observations of the runs; None: the engine's own interval."""
    base: Path
    """The directory that the file's paths are relative to."""
    content: Mapping[str, Any] = field(repr=False)
    """The file's content, checked."""
    make: Callable[[Trial], TrialJob] = field(repr=False, compare=False)
    """Returns what is run for a configuration. Raises `InputError`."""
    sampling: Sampling | None = None
    """How its configurations are drawn; None: all are known."""
    extremes: tuple[TrialJob, ...] = field(default=(), repr=False)
    """What is run for configurations at the ends of the ranges that others are drawn from."""
    asynchronous: AsynchronousHalving | None = None
    """Who goes on at the rungs; None: those of the least losses, when all have come there."""

    @property
    def fixed(self) -> list[str]:
        """The keys of its content that stay as they are when it is continued."""
        return [key for key in self.content if key not in (*MAY_CHANGE, *self.engine.may_change)]

    @cached_property
    def rung(self) -> dict[str, int]:
        """Rungs' numbers by the name of their stage."""
        return {rung.name: number for number, rung in enumerate(self.rungs)}

    @property
    def python(self) -> str:
        """What `{python}` stands for, "" where the file does not name it."""
        given = str(self.content["job"]["python"])
        return _interpreter(given, self.base) if given else ""

    @property
    def trial_count(self) -> int:
        """How many configurations it has, those included that are drawn later."""
        return self.sampling.trials if self.sampling else len(self.trials)

    def with_drawn(self, trial: Trial) -> "Search":
        """Return the search with another configuration, which has been drawn. Raises `InputError`."""
        return replace(self, trials=(*self.trials, trial), jobs={**self.jobs, trial.name: self.make(trial)})

    @property
    def widest(self) -> int:
        """The most GPUs that a job may have."""
        return max(job.request.most for job in (*self.jobs.values(), *self.extremes))

    @property
    def grace_s(self) -> float:
        """The longest time that a job is given to stop with a checkpoint."""
        return max(launch.grace_s for job in (*self.jobs.values(), *self.extremes) for launch in job.launches.values())

    def launch(self, key: str, step: int, directory: Path) -> LaunchSpec:
        """Return what to run for a trial until a step, which is one of its targets.

        directory: the search's, where checkpoints lie that have no place of their own. A trial's is the same whatever its
        target, so that it continues where it stopped.
        """
        _, trial = split_key(key)
        spec = self.jobs[trial].launches[step]
        return spec if spec.checkpoint else replace(spec, checkpoint=str(directory.resolve() / "checkpoints" / trial))


def shipped() -> Path:
    """Return the file of the search that comes with the package."""
    return Path(str(files("beamer.schedule") / "search.yaml"))


def load(path: Path) -> Search:
    """Read a search file. Raises `InputError` that names the file, the field, the value and what was expected."""
    data = read_yaml(path, "search", AS_WRITTEN)
    try:
        return parse(data, path.resolve().parent)
    except InputError as error:
        raise InputError(f"{path}: {error.field}", error.value, error.expected) from error


def parse(data: Any, base: Path, names: Callable[[Sequence[Mapping[str, Value]]], Sequence[str]] | None = None) -> Search:
    """Build a search from the content of a search file in the directory `base`. Raises `InputError`.

    names: returns what configurations are named that say nothing of it; None: as `template.derived_name` does.
    """
    if not isinstance(data, dict):
        raise InputError("search", data, f"a mapping with {', '.join(_File.model_fields)}")
    chosen_engine = ENGINES.choose("engine", data.get("engine", DEFAULT_ENGINE))
    if shared := _File.model_fields.keys() & chosen_engine.model_fields.keys():
        expected = f"an engine whose settings leave {', '.join(sorted(shared))} to the search itself"
        raise InputError("engine", data.get("engine"), expected)
    known = [*_File.model_fields, *chosen_engine.model_fields]
    for key in data:
        if key not in known:
            raise InputError(str(key), data[key], nearest(str(key), known))
    file = checked(_File, {key: value for key, value in data.items() if key in _File.model_fields}, "search")
    engine = checked(chosen_engine, {key: value for key, value in data.items() if key in chosen_engine.model_fields}, "search")
    if file.job.preload and not engine.preloads:
        raise InputError("job.preload", file.job.preload, f"no modules, as the engine {data.get('engine')} preloads none")
    check_identifier(file.name, "name")
    if file.stop_at_target and file.target_loss is None:
        raise InputError("stop_at_target", True, "false where there is no target_loss")
    if sum(one is not None for one in (file.configurations, file.grid, file.sampler)) != 1:
        raise InputError("configurations", file.configurations, "a list, or a grid or a sampler in its place, one of them")
    if file.sampler is not None:
        return _of_sampler(file, file.sampler, engine, base)
    named = "grid" if file.configurations is None else "configurations"
    configurations = file.configurations or grid(file.grid or {})
    chosen = trials(configurations, named, None if names is None else names(configurations))
    rungs = _rungs(file, len(chosen))
    jobs = {trial.name: _trial_job(file, trial, rungs, base) for trial in chosen}
    _check_checkpoints(file.job.checkpoint, jobs)
    for name, job in jobs.items():
        _check_fits(engine.declared, name, job.request)
    return _search(file, engine, base, rungs, chosen, jobs)


def _rungs(file: _File, count: int) -> tuple[Rung, ...]:
    """Return the rungs of a search of so many configurations. Raises `InputError`."""
    if (halving := _asynchronous(file)) is not None:
        if file.rungs:
            raise InputError("asynchronous_halving", halving.iterations, "no such key beside rungs")
        return halving.rungs
    return declared_rungs([(rung.iterations, rung.keep) for rung in file.rungs], count, "rungs")


def _asynchronous(file: _File) -> AsynchronousHalving | None:
    given = file.asynchronous_halving
    if given is None:
        return None
    try:
        return AsynchronousHalving(given.iterations, given.reduction_factor, given.first)
    except InputError as error:
        raise InputError(f"asynchronous_halving.{error.field}", error.value, error.expected) from error


def _of_sampler(file: _File, entry: SamplerEntry, engine: EngineSettings, base: Path) -> Search:
    """Return a search whose configurations are drawn, after a check of those at the ends of their ranges."""
    job = file.job
    for name in entry.parameters:
        check_placeholder(name, "sampler.parameters", (*OWN, "name"))
    parts = {key: getattr(job, key) for key in ("command", "cwd", "env", "checkpoint", "request")}
    used = {key: placeholders(part, f"job.{key}") for key, part in parts.items()}
    for name in entry.parameters:
        if not any(name in names for names in used.values()):
            expected = f"a parameter that the program is given: {{{name}}} in job.command or job.env"
            raise InputError(f"sampler.parameters.{name}", name, expected)
    rungs = _rungs(file, entry.trials)
    parameters = entry.made(1).parameters
    asked = [name for name in parameters if name in used["request"]]
    count = prod(len(parameters[name].ends) for name in asked)
    if count > MAX_EXTREMES:
        raise InputError("job.request", count, f"at most {MAX_EXTREMES} combinations of the ends of ranges that it has")
    lowest = {name: parameter.ends[0] for name, parameter in parameters.items()}
    two = (trial_name(0), trial_name(1))
    _check_checkpoints(job.checkpoint, {name: _trial_job(file, Trial(name, lowest), rungs, base) for name in two})
    extremes = [
        _trial_job(file, Trial(trial_name(0), {**lowest, **dict(zip(asked, ends, strict=True))}), rungs, base)
        for ends in product(*(parameters[name].ends for name in asked))
    ]
    for one in extremes:
        _check_fits(engine.declared, trial_name(0), one.request)
    slots = max(sum(node.gpus for node in engine.declared) // min(one.request.least for one in extremes), 1)
    return _search(file, engine, base, rungs, (), {}, entry.made(slots), tuple(extremes))


def _search(
    file: _File,
    engine: EngineSettings,
    base: Path,
    rungs: tuple[Rung, ...],
    chosen: tuple[Trial, ...],
    jobs: Mapping[str, TrialJob],
    sampling: Sampling | None = None,
    extremes: tuple[TrialJob, ...] = (),
) -> Search:
    return Search(
        file.name, engine, chosen, rungs, jobs, file.target_loss, file.stop_at_target,
        RunLimits(file.retries, file.timeout_s or inf, file.silent_s or inf), file.poll_s, base,
        file.model_dump(mode="json") | engine.model_dump(mode="json"),
        lambda trial: _trial_job(file, trial, rungs, base), sampling, extremes, _asynchronous(file),
    )  # fmt: skip


def _trial_job(file: _File, trial: Trial, rungs: Sequence[Rung], base: Path) -> TrialJob:
    job = file.job
    own = {"python": _interpreter(job.python, base), "name": trial.name}
    # Beamer reads the request, and takes these values as numbers.
    values = {key: parse_scalar(str(value)) for key, value in trial.values.items()}
    asked = filled(job.request, {**values, **own}, "job.request")
    elsewhere = {"target_loss": "the search's", **({"iterations": "that of the rungs"} if rungs else {})}
    for key in asked.keys() & elsewhere.keys():
        raise InputError(f"job.request.{key}", asked[key], f"no such key here, it is {elsewhere[key]}")
    if rungs:
        asked["iterations"] = rungs[-1].step
    request: Request = build(Request, {**asked, "target_loss": file.target_loss}, "job.request")
    check_request(request, "job.request")
    if request.servers:
        raise InputError("job.request.servers", True, "false: parameter servers are not launched here")
    check_sizes("job.request.traffic.collective", request.traffic.collective, request.least, request.most)
    identity = {STUDY_VARIABLE: file.name, TRIAL_VARIABLE: trial.name, LAUNCHER_VARIABLE: CommandLauncher.SCHEDULE.value}
    identities = {rung.step: {**identity, "BEAMER_STAGE": rung.name} for rung in rungs} or {request.iterations: identity}
    return TrialJob(
        request,
        {
            step: _launch(file, request, step, {**trial.values, **own, "iterations": step}, identity, base)
            for step, identity in identities.items()
        },
    )


def _interpreter(given: str, base: Path) -> str:
    """Return what `{python}` stands for. Links of a path are kept, as a virtual environment is found by them."""
    if not given:
        return sys.executable
    return os.path.normpath(base / Path(given).expanduser()) if "/" in given else given


def _launch(
    file: _File, request: Request, step: int, values: Mapping[str, Value], identity: Mapping[str, str], base: Path
) -> LaunchSpec:
    job = file.job

    def fill(name: str) -> Any:
        return filled(getattr(job, name), values, f"job.{name}")

    try:
        return LaunchSpec(
            tuple(fill("command")),
            preload=tuple(job.preload),
            cwd=str(base / fill("cwd")),
            env=tuple({**identity, **fill("env")}.items()),
            checkpoint=str(base / fill("checkpoint")) if job.checkpoint else "",
            progress=job.progress,
            stop_signal=_signal(job.stop_signal, "stop_signal"),
            checkpoint_signal=_signal(job.checkpoint_signal, "checkpoint_signal"),
            stopped_code=job.stopped_code,
            grace_s=job.grace_s,
            batch_size=request.batch_size,
            iterations=step,
            every=request.epoch,
            collective_timeout_s=file.collective_timeout_s,
        )
    except InputError as error:
        prefix = "" if error.field.startswith("job.") else "job."
        raise InputError(f"{prefix}{error.field}", error.value, error.expected) from error


def _signal(name: str, where: str) -> int:
    if name not in signal.Signals.__members__:
        raise InputError(where, name, "the name of a signal, such as SIGUSR1")
    return signal.Signals[name]


def _check_checkpoints(template: str, jobs: Mapping[str, TrialJob]) -> None:
    paths = {os.path.normpath(launch.checkpoint) for job in jobs.values() for launch in list(job.launches.values())[:1]}
    if template and len(paths) < len(jobs):
        raise InputError("job.checkpoint", template, "a path that differs between configurations: one with {name}")


def _check_fits(declared: tuple[Node, ...], name: str, request: Request) -> None:
    """Check that a job can ever run, or it would be waited for forever."""
    nodes = Cluster(declared)
    if not can_ever_run(Job.waiting(name, request, 0.0, Stage("", "")), nodes):
        asked = {"gpus": request.gpus, "worker_cpus": request.worker_cpus}
        raise InputError("job.request", asked, f"what the nodes have, {nodes.gpus} GPUs in all")
