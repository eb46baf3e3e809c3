"""Workloads of searches on a cluster, drawn from a seed, in the form of a scenario file.

A *search* tunes one model, trained one way by jobs of one size; its trials differ in hyper-parameters and in placement. A
search of several brackets is as many studies, which arrive together. Every search draws from a stream of its own, so that a
longer workload begins like a shorter one.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from beamer.errors import InputError, nearest
from beamer.network.collectives import COLLECTIVES, PARAMETER_SERVER, phases
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec
from beamer.studies.model import (
    MAX_RUNG_TRIALS,
    MAX_SECONDS,
    MAX_STEPS,
    MAX_SYNC_BYTES,
    MAX_WEIGHT,
    MIN_WEIGHT,
    Role,
    Worker,
    check_identifier,
)
from beamer.workloads.models import MODELS, Model
from beamer.workloads.placement import PLACEMENTS
from beamer.workloads.scenario import build_topology
from beamer.workloads.searches import Bracket, SearchAlgorithm, SuccessiveHalving, resized
from beamer.yaml_files import dump_yaml

# At this standard deviation, one in 44 trials computes four hundred times as long as the median, or longer.
MAX_JITTER = 3.0
ARRIVAL_DIGITS = 6  # Logarithms of different platforms agree on so many digits of a second.


@dataclass(frozen=True)
class Workload:
    """What to draw; equal workloads give equal files.

    Raises `InputError` for whatever cannot be drawn on this topology, before anything is drawn.
    """

    seed: int
    """The seed of all draws."""
    topology: Mapping[str, Any]
    """Shape and parameters as in a scenario file."""
    studies: int = 4
    """How many searches there are."""
    search: SearchAlgorithm = field(default_factory=SuccessiveHalving)
    """What each of them runs."""
    trials: tuple[int, ...] = ()
    """Trials of a search: one of these, drawn evenly; as `search` says if empty."""
    budget_spread: float = 1.0
    """A search's iterations are those of `search` times a factor from 1 / `budget_spread` to `budget_spread`.

    The factor is drawn log-uniformly. Jobs on shared clusters last for times that are orders of magnitude apart: Jeon et al.
    2019 (USENIX ATC, Philly), Hu et al. 2021 (SC, Helios), Weng et al. 2022 (NSDI, Alibaba PAI).
    """
    weights: tuple[float, ...] = (1.0,)
    """The weight of a search: one of these, drawn evenly."""
    models: tuple[str, ...] = ("resnet50",)
    """Names in `MODELS`, drawn evenly."""
    collectives: Mapping[str, float] = field(default_factory=lambda: {"ring": 1.0})
    """Names in `COLLECTIVES` with their relative frequencies.

    `all-to-all` moves as many bytes of tokens as the model has of gradients, as none is published.
    """
    workers: tuple[int, ...] = (4,)
    """Workers of a job: one of these, drawn evenly."""
    servers: int = 1
    """Parameter servers of a job that has any."""
    placement: str = "packed"
    """A name in `PLACEMENTS`."""
    arrivals_per_hour: float | None = None
    """Searches arrive open-loop as a Poisson process of this rate, the first at 0; all at 0 if None."""
    compute_ratio: float | None = None
    """How many times as long as its synchronisation alone on plane 0 a job computes; as in the models' table if None."""
    compute_jitter: float = 0.0
    """By how much the computing of a search's trials differs, as what they try changes it.

    Each lasts that long times a lognormal factor of median 1, of whose logarithm this is the standard deviation.
    """
    bytes_scale: float = 1.0
    """A factor on the gradients, so that slow links remain usable."""
    overlap: float = 0.0
    """The overlap of every job, as of a trial in a scenario file."""
    start_up_s: float = 0.0
    """Seconds as of a scenario file."""
    name: str = "workload"
    """The scenario's name."""

    def __post_init__(self) -> None:
        check_identifier(self.name, "name")
        _whole("seed", self.seed, None)
        _whole("studies", self.studies, 1)
        _within("studies", self.studies, 1, MAX_RUNG_TRIALS)
        _whole("servers", self.servers, 1)
        _names("models", self.models, MODELS)
        _names("collectives", self.collectives, COLLECTIVES)
        _names("placement", (self.placement,), PLACEMENTS)
        for name, frequency in self.collectives.items():
            _above_zero(f"collectives.{name}", frequency)
        _above_zero("bytes_scale", self.bytes_scale)
        _within("budget_spread", self.budget_spread, 1, MAX_STEPS)
        if not self.weights:
            raise InputError("weights", self.weights, "at least one weight")
        for weight in self.weights:
            _above_zero("weights", weight)
            _within("weights", weight, MIN_WEIGHT, MAX_WEIGHT)
        for trials in self.trials:
            resized(self.search, trials=trials)
        if self.arrivals_per_hour is not None:
            _above_zero("arrivals_per_hour", self.arrivals_per_hour)
        if self.compute_ratio is not None:
            _within("compute_ratio", self.compute_ratio, 0, MAX_SECONDS)
        _within("compute_jitter", self.compute_jitter, 0, MAX_JITTER)
        _within("overlap", self.overlap, 0, 1)
        _within("start_up_s", self.start_up_s, 0, MAX_SECONDS)
        self._check_jobs()

    def _check_jobs(self) -> None:
        if not self.workers:
            raise InputError("workers", self.workers, "at least one number of workers")
        for collective, workers in product(self.collectives, self.workers):
            _whole("workers", workers, 1)
            processes = workers + self._servers(collective)
            if processes > len(self.fabric.hosts):
                raise InputError("workers", workers, f"at most {len(self.fabric.hosts)} processes of a job, one per host")
            if not phases(self._spec(("",) * processes, collective, 1)) and self.compute_ratio is not None:
                raise InputError("compute_ratio", self.compute_ratio, "jobs of two workers or more, which have traffic")

    @cached_property
    def fabric(self) -> Fabric:
        """The network that the topology describes. Raises `InputError`."""
        return build_topology(dict(self.topology))

    @cached_property
    def _footprints(self) -> Footprints:
        return Footprints(self.fabric)

    def _servers(self, collective: str) -> int:
        return self.servers if collective == PARAMETER_SERVER else 0

    def _spec(self, hosts: tuple[str, ...], collective: str, sync_bytes: int) -> JobSpec:
        first_server = len(hosts) - self._servers(collective)
        placed = (Worker(i, host, Role.SERVER if i >= first_server else Role.WORKER) for i, host in enumerate(hosts))
        return JobSpec("job", tuple(placed), 1, sync_bytes, collective)

    def _arrivals(self) -> list[float]:
        if self.arrivals_per_hour is None:
            return [0.0] * self.studies
        rng = Random(f"{self.seed}/arrivals")
        arrivals = [0.0]
        while len(arrivals) < self.studies:
            arrivals.append(arrivals[-1] + 3600 * rng.expovariate(self.arrivals_per_hour))
            if arrivals[-1] > MAX_SECONDS:
                expected = f"a rate at which {self.studies} searches arrive within {MAX_SECONDS} seconds"
                raise InputError("arrivals_per_hour", self.arrivals_per_hour, expected)
        return [round(arrival, ARRIVAL_DIGITS) for arrival in arrivals]

    def _search(self, i: int) -> tuple[SearchAlgorithm, float]:
        """Return what the i-th search runs, and its weight."""
        rng = Random(f"{self.seed}/budget{i}")  # The stream is its own: other budgets leave models and placement as they are.
        factor = self.budget_spread ** rng.uniform(-1.0, 1.0)
        search = resized(self.search, factor=factor, trials=rng.choice(self.trials) if self.trials else None)
        return search, rng.choice(self.weights)

    def _study(
        self, name: str, arrival_s: float, weight: float, bracket: Bracket, trials: list[dict[str, Any]]
    ) -> dict[str, Any]:
        rungs = [
            # The key is missing where nothing follows.
            {"iterations": rung.iterations} | ({} if rung.keep is None else {"keep": rung.keep})
            for rung in bracket
        ]
        weighted = {} if weight == 1 else {"weight": float(weight)}
        return {"study": name} | weighted | {"arrival_s": arrival_s, "trials": trials, "rungs": rungs}

    def _slowness(self, rng: Random) -> float:
        """Return how many times as long as its model's the computing of a trial lasts."""
        return math.exp(self.compute_jitter * rng.gauss(0.0, 1.0)) if self.compute_jitter else 1.0

    def _trial(self, name: str, hosts: tuple[str, ...], model: Model, collective: str, slowness: float) -> dict[str, Any]:
        scaled_bytes = model.gradient_bytes * self.bytes_scale
        if scaled_bytes > MAX_SYNC_BYTES:
            expected = f"a factor with which {model.name} has at most {MAX_SYNC_BYTES} bytes"
            raise InputError("bytes_scale", self.bytes_scale, expected)
        sync_bytes = max(round(scaled_bytes), 1)
        if self.compute_ratio is None:
            compute_s = model.compute_s
        else:
            alone = self._footprints.of(self._spec(hosts, collective, sync_bytes), plane=0).gamma_s
            compute_s = self.compute_ratio * alone
        if slowness * compute_s > MAX_SECONDS:
            expected = f"with which no trial of {model.name} computes for more than {MAX_SECONDS} seconds a step"
            raise InputError("compute_ratio", self.compute_ratio, expected)
        first_server = len(hosts) - self._servers(collective)
        trial: dict[str, Any] = {"trial": name, "collective": collective, "workers": list(hosts[:first_server])}
        if hosts[first_server:]:
            trial["servers"] = list(hosts[first_server:])
        return trial | {"bytes": sync_bytes, "compute_s": float(slowness * compute_s), "overlap": float(self.overlap)}


def generate(workload: Workload) -> dict[str, Any]:
    """Return the workload as the content of a scenario file, plain data that `beamer.workloads.scenario.parse` accepts."""
    place = PLACEMENTS[workload.placement]
    frequencies = dict(sorted(workload.collectives.items()))
    load: Counter[str] = Counter()
    studies: list[dict[str, Any]] = []
    for i, arrival_s in enumerate(workload._arrivals()):
        rng, jitter = Random(f"{workload.seed}/search{i}"), Random(f"{workload.seed}/jitter{i}")
        model = MODELS[rng.choice(workload.models)]
        (collective,) = rng.choices(list(frequencies), list(frequencies.values()))
        processes = rng.choice(workload.workers) + workload._servers(collective)
        search, weight = workload._search(i)
        brackets = search.brackets()
        for bracket in brackets:
            trials: list[dict[str, Any]] = []
            for j in range(bracket[0].jobs):
                hosts = place(workload.fabric, processes, load, rng)
                load.update(hosts)
                trials.append(workload._trial(f"t{j}", hosts, model, collective, workload._slowness(jitter)))
            name = f"search{i}-{model.name}" + (f"-bracket{len(bracket) - 1}" if len(brackets) > 1 else "")
            studies.append(workload._study(name, arrival_s, weight, bracket, trials))
    topology = {"shape": workload.topology["shape"]} | dict(sorted(workload.topology.items()))
    started = {"start_up_s": float(workload.start_up_s)} if workload.start_up_s else {}
    return {"name": workload.name, "topology": topology, "seed": workload.seed} | started | {"studies": studies}


def write(workload: Workload, path: Path) -> None:
    """Write the workload as a scenario file. Raises `InputError` if the file cannot be written."""
    text = dump_yaml(generate(workload), flow=None, width=128)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError("--out", str(path), f"a file that can be written ({error.strerror})") from error


def _names(field: str, given: Any, known: Mapping[str, object]) -> None:
    if not given:
        raise InputError(field, given, f"at least one of {', '.join(sorted(known))}")
    for name in given:
        if name not in known:
            raise InputError(field, name, nearest(str(name), known))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _within(field: str, value: Any, least: float, most: float) -> None:
    if not (_number(value) and least <= value <= most):
        raise InputError(field, value, f"a number from {least:.15g} to {most:.15g}")


def _above_zero(field: str, value: Any) -> None:
    if not (_number(value) and value > 0):
        raise InputError(field, value, "a finite number above 0")


def _whole(field: str, value: Any, at_least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or (at_least is not None and value < at_least):
        expected = "a whole number" + ("" if at_least is None else f" of at least {at_least}")
        raise InputError(field, value, expected)
