"""Runs that a second start does not repeat: results of finished runs in files, by a key of what determines them.

key = digest(config, seed, source_digest(["eval.gpu.claims.hermes"]))     # parts that JSON can hold
results = run_resumably([Task(key, "fifo, seed 1", run, (seed,)), ...], ResultCache(folder), on_processes(2), console, title)
"""

import ast
import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from beamer.errors import EngineError
from eval.arithmetic import arithmetic, calculated
from eval.progress import runs_progress
from eval.workers import Workers, as_they_end

ROOT = Path(__file__).resolve().parent.parent

Result = Mapping[str, Any]
"""A run's, as plain JSON."""


class ResultCache:
    """Results of finished runs, a file each in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str) -> Result | None:
        """Return the result of a run, None if there is none, or none that can be read."""
        try:
            found: Result = json.loads((self._folder / f"{key}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return found

    def store(self, key: str, result: Result) -> None:
        """Keep the result of a run; a reader sees all of it or nothing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{key}.{os.getpid()}.part"
        unfinished.write_text(json.dumps(result))
        unfinished.replace(self._folder / f"{key}.json")

    def forget(self) -> None:
        """Remove every result."""
        for path in self._folder.glob("*.json"):
            path.unlink()


def run_cache(command: str, anew: bool) -> ResultCache:
    """Return the results that earlier runs of a command left in this directory. anew: forget them."""
    cache = ResultCache(Path("results") / f"{command}-runs")
    if anew:
        cache.forget()
    return cache


def digest(*parts: Any) -> str:
    """Return a key of plain JSON values; mappings are equal in any order of their keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def source_digest(modules: Collection[str], without: Collection[str] = (), root: Path = ROOT) -> str:
    """Return a digest of the code of modules and of all that they import, as far as those lie below `root`.

    Comments, docstrings and layout are no part of it.
    without: modules that are left out with what only they import. Packages count with what is imported from them by name, not
    with all that their `__init__` imports because a module in them is.
    """
    found = {name: code(path.read_text()) for name, path in sorted(imported_sources(modules, without, root).items())}
    return digest(found)


def imported_sources(modules: Collection[str], without: Collection[str] = (), root: Path = ROOT) -> dict[str, Path]:
    """Return the files of `source_digest` by module."""
    found: dict[str, Path] = {}
    left = list(modules)
    while left:
        name = left.pop()
        path = None if name in found or name in without else _file_of(name, root)
        if path:
            found[name] = path
            left += _imports(path.read_text())
    return found


@functools.cache
def code(source: str) -> str:
    """Return what a source does, in a form that comments, docstrings and layout do not change."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # A docstring is a text that nothing takes, as are those below the fields of a class.
            node.body = [one for one in node.body if not (isinstance(one, ast.Expr) and _is_text(one.value))]
    return ast.dump(tree)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _file_of(module: str, root: Path) -> Path | None:
    stem = root.joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


@functools.cache  # there are more sources than `lru_cache` keeps by default
def _imports(source: str) -> tuple[str, ...]:
    """Return the names that a source imports; one that is imported from a package may be a module or not."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(found)


@functools.cache
def folder_digest(folder: Path) -> str:
    """Return a digest of the files in a folder and below, links to folders included."""
    below = (Path(where) / name for where, _, names in os.walk(folder, followlinks=True) for name in names)
    files = sorted(path for path in below if path.is_file())
    return digest([[str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files])


@dataclass(frozen=True)
class Task:
    """A run: `function(*arguments)`, elsewhere.

    key: of what determines it, but for the arithmetic of whoever makes it. label: what messages call it.
    """

    key: str
    label: str
    function: Callable[..., Result]
    arguments: tuple[Any, ...]

    @property
    def cache_key(self) -> str:
        """The key of its result as this process's arithmetic makes it."""
        return digest(self.key, dict(arithmetic()))


def run_resumably(tasks: Sequence[Task], cache: ResultCache, workers: Workers, console: Console, title: str) -> list[Result]:
    """Return the results of tasks in their order: those that the cache has, and the others, which it is given as they end.

    workers: that run the others. Tasks of one key are run once. A task that raises ends all of them, as an interrupt does; what
    ended before is kept.

    Raises `EngineError` for a worker that calculates otherwise than this process, as where processors are of several kinds.
    """
    known = {task.key: result for task in tasks if (result := cache.find(task.cache_key)) is not None}
    missing = {task.key: task for task in tasks if task.key not in known}
    with runs_progress(console, title, len(missing) + len(known), len(known)) as progress:
        if missing:
            with workers(len(missing)) as pool:
                running = {pool.submit(calculated, task.function, task.arguments): task for task in missing.values()}
                for ended in as_they_end(running):
                    task = running[ended]
                    try:
                        known[task.key], made_with = ended.result()
                        _check_arithmetic(made_with)
                    except Exception as error:
                        error.add_note(f"in {task.label}")
                        raise
                    cache.store(task.cache_key, known[task.key])
                    progress.end(task.label)
    return [known[task.key] for task in tasks]


def _check_arithmetic(made_with: Mapping[str, str]) -> None:
    """Check that a worker calculates as this process does, under whose arithmetic its result is kept."""
    if other := {name: value for name, value in made_with.items() if arithmetic().get(name) != value}:
        ours = {name: arithmetic().get(name) for name in other}
        raise EngineError(
            f"a worker calculates with {other}, this process with {ours}: figures of both would stand in one table; "
            "run on one kind of machine, or set OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES to what all have"
        )
