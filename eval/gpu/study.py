"""The study of GPU policies: its config, its runs, and the keys under which finished ones are kept."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from inspect import getfile
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.console import Console

from beamer.errors import InputError, nearest
from beamer.gpu.model import Costs
from beamer.gpu.policies import GPU_POLICIES, GpuPolicy
from beamer.yaml_files import read_json, read_yaml
from eval.config_section import ConfigSection
from eval.gpu.claim import SENSITIVITY
from eval.gpu.claims import CLAIMS, Claim, Figures, GpuContender, Inputs
from eval.gpu.restart_costs import restart_costs
from eval.resume import ResultCache, Task, digest, folder_digest, run_resumably, source_digest
from eval.workers import on_processes

CONFIG = Path(__file__).parent.parent / "configs" / "gpu.yaml"
OF_NO_RUN = ("beamer.gpu.policies", "eval.gpu.knowledge", "eval.gpu.report", "eval.statistics")
"""Modules that claims import and that decide nothing about a run: the registry of policies, of which a run has one, and what is
shown of results."""
CONTENDERS = {"policies", "sensitivity"}  # fields of claims that list who runs, of which a run has one


class GpuStudyConfig(ConfigSection):
    """What the study consists of, as in the config file. parameter_seeds: of cells that compare parameters, at most `seeds`."""

    seeds: int = Field(ge=2)
    parameter_seeds: int = Field(ge=2)
    first_seed: int
    claims: dict[str, dict[str, Any]]

    @property
    def drawn(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def drawn_for(self, claim: Claim, cell: str) -> range:
        """Return the seeds of a claim's cell."""
        drawn = self.drawn[: claim.seeds or self.seeds]
        return drawn[: self.parameter_seeds] if cell == SENSITIVITY else drawn

    def claim(self, name: str, changes: Mapping[str, Any] | None = None) -> Claim:
        """Return a claim, with `changes` to its section. Raises `InputError` for one that does not exist."""
        known = [one for one in CLAIMS if one in self.claims]
        if name not in known:
            raise InputError("claim", name, nearest(name, known))
        return CLAIMS[name].model_validate({**self.claims[name], **(changes or {})})


def read(path: Path = CONFIG) -> GpuStudyConfig:
    """Return the study of a config file."""
    return GpuStudyConfig.model_validate(read_yaml(path, "--config"))


@dataclass(frozen=True)
class Run:
    """A contender's run of a claim's cell, on the work of a seed."""

    claim: Claim
    cell: str
    contender: GpuContender
    seed: int

    def key(self, inputs: Inputs) -> str:
        """Return a digest of all that determines its figures, but for the arithmetic, as of `Task`."""
        return digest(
            _conditions(self.claim.model_dump(mode="json", exclude={"seeds"})),
            self.cell,
            self.contender.model_dump(mode="json", exclude={"label"}),
            self.seed,
            folder_digest(folder) if (folder := inputs.folder(self.claim.data)) else "",
            vars(inputs.costs) if inputs.costs else None,
            _sources(type(self.claim), GPU_POLICIES[self.contender.policy]),
            *map(_recorded, self.claim.recorded),
        )

    def task(self, inputs: Inputs) -> Task:
        """Return it as a task."""
        label = f"{self.cell}, {self.contender.name}, seed {self.seed}"
        return Task(self.key(inputs), label, run_one, (self.claim, self.cell, self.contender, self.seed, inputs))


def run_one(claim: Claim, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
    """Return the figures of one run, with the processor time that it took."""
    started = time.process_time()
    figures = claim.run(cell, contender, seed, inputs)
    return {"seed": seed, **figures, "cpu_s": time.process_time() - started}


def _conditions(value: Any) -> Any:
    """Return a claim's section without its lists of contenders."""
    if not isinstance(value, dict):
        return value
    return {key: _conditions(one) for key, one in value.items() if not (key in CONTENDERS and isinstance(one, list))}


@lru_cache
def _recorded(path: Path) -> str:
    """Return a digest of what committed results are: their figures and their config, and not what they were made with."""
    document = read_json(path, "the results")
    return digest(document["config"], document["runs"])


@lru_cache
def _sources(claim: type[Claim], policy: type[GpuPolicy[Any]]) -> str:
    ours = source_digest((claim.__module__, policy.__module__), without=OF_NO_RUN)
    return digest(ours, Path(getfile(policy)).read_text())  # another package's policy is none of ours


@dataclass(frozen=True)
class Runner:
    """Runs what a cache does not have."""

    cache: ResultCache
    processes: int
    console: Console

    def run(self, runs: Sequence[Run], inputs: Inputs, title: str) -> list[Figures]:
        """Return the figures of runs, in their order."""
        return run_resumably([run.task(inputs) for run in runs], self.cache, on_processes(self.processes), self.console, title)

    def measured_costs(self) -> Costs:
        """Return what suspending, resuming and restarting a real training job takes, the medians, and print where from.

        They are measured once per cache: other costs would be other runs.
        """
        key = digest("costs", source_digest(["eval.gpu.restart_costs"]))
        found, when = self.cache.find(key), "costs, by an earlier start"
        if found is None:
            when = "costs"
            measured = restart_costs()
            found = {"source": measured.source, "costs": asdict(measured.costs)}
            self.cache.store(key, found)
        self.console.print(f"{when}: {found['source']}")
        return Costs(**found["costs"])


def runs_of(claim: Claim, config: GpuStudyConfig, cells: str = "") -> list[Run]:
    """Return the runs of a claim's cells whose names contain `cells`."""
    return [
        Run(claim, cell, contender, seed)
        for cell in claim.cells()
        if cells in cell
        for contender in claim.contenders(cell)
        for seed in config.drawn_for(claim, cell)
    ]


def grouped(runs: Sequence[Run], figures: Sequence[Figures]) -> dict[str, dict[str, list[Figures]]]:
    """Return figures by cell and contender."""
    results: dict[str, dict[str, list[Figures]]] = {}
    for run, one in zip(runs, figures, strict=True):
        results.setdefault(run.cell, {}).setdefault(run.contender.name, []).append(one)
    return results
