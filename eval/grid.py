"""Experiments that run contenders on cells with seeds: one description of each, and the command that all of them share."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import typer
from pydantic import BaseModel

from beamer.errors import InputError
from beamer.gpu.policies import GPU_POLICIES
from beamer.network.policies import NETWORK_POLICIES
from beamer.yaml_files import read_yaml
from eval.committed import Committed, print_tables
from eval.console import wide_console
from eval.grid_study import GridConfig, GridStudy
from eval.origin import CONFIGS
from eval.resume import Result, Task, digest, imported_sources, run_cache, run_resumably, source_digest
from eval.workers import chosen_workers

REGISTRIES: Mapping[str, Mapping[str, type]] = {
    "beamer.gpu.policies": GPU_POLICIES,
    "beamer.network.policies": NETWORK_POLICIES,
}

ConfigFile = Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)]
Seeds = Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says.")]
CellPart = Annotated[str | None, typer.Option("--cells", help="Only cells whose name contains this.")]
JsonFile = Annotated[Path, typer.Option("--json", help="Write every run's figures here.")]
Docs = Annotated[bool, typer.Option("--docs", help="Write the committed figures, and the docs' tables and plots.")]
Anew = Annotated[bool, typer.Option("--anew", help="Repeat runs whose figures are known.")]
Processes = Annotated[int, typer.Option(min=1, help="Of this machine, that make the runs where no cluster does.")]
Ray = Annotated[str | None, typer.Option("--ray", help="Address of a Ray cluster that makes the runs, local for a new one.")]

C = TypeVar("C", bound=GridConfig)
K = TypeVar("K")
S = TypeVar("S", bound=GridStudy[Any])


@dataclass(frozen=True)
class GridRun:
    """A contender's run on a cell with a seed: `function(*arguments)`.

    code: the digest of the sources that its figures depend on. parts: what else they depend on, as plain JSON; None: all of the
    arguments.
    """

    function: Callable[..., Result]
    arguments: tuple[Any, ...]
    code: str
    parts: tuple[Any, ...] | None = None

    def task(self, label: str) -> Task:
        """Return it as a task, under a key of all that its figures depend on."""
        parts = self.arguments if self.parts is None else self.parts
        plain = [part.model_dump() if isinstance(part, BaseModel) else part for part in parts]
        return Task(digest(*plain, self.code), label, self.function, self.arguments)


@dataclass(frozen=True)
class GridOutput:
    """Where a command's figures go. whole: whether all of the committed config is run. processes, ray: as `chosen_workers`."""

    json_file: Path
    docs: bool
    anew: bool
    processes: int
    ray: str | None
    whole: bool


@dataclass(frozen=True)
class GridExperiment(Generic[C, K, S]):
    """An experiment that runs contenders on cells with seeds: what of it is its own.

    name: of its command, its config and its results. about: what its command's help says. document: with its tables.
    config, study: their types. cells: of a config, by name. runs: of a config, a cell's name, the cell and a seed, by
    contender. takes_cells: whether its tables can be made of some of the cells.
    """

    name: str
    about: str
    document: str
    config: type[C]
    study: type[S]
    cells: Callable[[C], Mapping[str, K]]
    runs: Callable[[C, str, K, int], Mapping[str, GridRun]]
    takes_cells: bool = True

    @property
    def committed(self) -> Committed[S]:
        """Its committed figures."""
        return Committed(self.name, self.document, partial(self.study.from_json, self.config))

    @property
    def config_file(self) -> Path:
        """The committed config."""
        return CONFIGS / f"{self.name}.yaml"

    @property
    def json_file(self) -> Path:
        """Where its figures go if nothing else is said."""
        return Path("results") / f"{self.name}.json"

    def read_config(self, path: Path | None = None, seeds: int | None = None) -> C:
        """Return a config file, checked; without a path the committed one. seeds: in place of as many as it says.

        Raises `pydantic.ValidationError` and `InputError`.
        """
        config = self.config.model_validate(read_yaml(path or self.config_file, "--config"))
        return config.model_copy(update={"seeds": seeds or config.seeds})

    def tasks(self, config: C, name: str, cell: K) -> dict[str, list[Task]]:
        """Return the runs of a cell as tasks by contender, seeds in order."""
        found: dict[str, list[Task]] = {}
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            for who, run in self.runs(config, name, cell, seed).items():
                found.setdefault(who, []).append(run.task(f"{name}, {who}, seed {seed}"))
        return found

    def run(self, config: C, part: str | None, output: GridOutput) -> S:
        """Make the runs that are not known yet, write the study that all make up, print its tables, and return it.

        part: of the names of the cells that are run; None: all.
        """
        cells = self.cells(config)
        tasks = {name: self.tasks(config, name, cells[name]) for name in chosen(cells, part)}
        json_file = self.committed.output(output.docs, output.whole, output.json_file)
        console = wide_console()
        every = [task for cell in tasks.values() for several in cell.values() for task in several]
        workers = chosen_workers(output.processes, output.ray)
        left = iter(run_resumably(every, run_cache(self.name, output.anew), workers, console, self.name))
        runs = {name: {who: [next(left) for _ in several] for who, several in of.items()} for name, of in tasks.items()}
        study = self.study.of_runs(config, runs)
        self.committed.write(study, json_file)
        if output.docs:
            self.committed.renew(study)
        print_tables(study, console)
        console.print(f"figures: {json_file}")
        return study

    def command(self) -> Callable[..., None]:
        """Return the function of its command, whose parameters are the options."""

        def run(
            config_file: ConfigFile = self.config_file,
            seeds: Seeds = None,
            cells: CellPart = None,
            json_file: JsonFile = self.json_file,
            docs: Docs = False,
            anew: Anew = False,
            processes: Processes = 2,
            ray: Ray = None,
        ) -> None:
            whole = not (seeds or cells or config_file != self.config_file)
            output = GridOutput(json_file, docs, anew, processes, ray, whole)
            self.run(self.read_config(config_file, seeds), cells, output)

        run.__doc__ = self.about
        return run if self.takes_cells else _without(run, "cells")


def _without(function: Callable[..., None], parameter: str) -> Callable[..., None]:
    """Return a function whose signature, as command lines read it, lacks a parameter that has a default."""
    signature = inspect.signature(function)
    kept = [one for name, one in signature.parameters.items() if name != parameter]
    vars(function)["__signature__"] = signature.replace(parameters=kept)
    return function


def chosen(names: Iterable[str], part: str | None) -> list[str]:
    """Return the names of cells that contain `part`. Raises `InputError` if none does."""
    known = list(names)
    found = [name for name in known if part is None or part in name]
    if not found:
        raise InputError("--cells", part, f"a part of one of {', '.join(known)}")
    return found


@cache
def code_digest(module: str, *policies: type) -> str:
    """Return a digest of the sources that a run of policies by `module` depends on: not those of other policies."""
    own = [policy.__module__ for policy in policies]
    needed = imported_sources(own, without=[*REGISTRIES])
    every = {policy.__module__ for registry in REGISTRIES.values() for policy in registry.values()}
    return source_digest([module, *own], without=every - needed.keys())
