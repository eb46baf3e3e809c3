"""Figures of studies that are committed, and the sections of the docs that follow from them.

A study is committed as `eval/results/COMMAND.json`, its config and its runs; its sections are called "COMMAND NAME", a name for
each of its tables, and its plots "COMMAND-NAME.png" in docs/images. `python -m eval COMMAND --docs` renews all of them;
`python -m eval report --docs` draws the plots again from the committed figures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from beamer.errors import InputError
from beamer.yaml_files import read_json
from eval.documents import markdown, rewritten
from eval.interval_plot import IntervalPlot, draw_all
from eval.json_lines import json_lines
from eval.origin import CONFIGS, made_with

RESULTS = Path(__file__).parent / "results"
FOLDER = Path(__file__).parent.parent / "docs"
IMAGES = FOLDER / "images"
LEVELS = 3  # Levels of a file: the study, its runs, a cell; a contender has a line.


class Tabled(Protocol):
    """A study as far as it is committed."""

    def as_json(self) -> Mapping[str, Any]:
        """Return its config and figures as plain JSON."""

    def tables(self) -> Mapping[str, Sequence[Table]]:
        """Return every table by the name of its section."""

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""


@runtime_checkable
class Plotted(Protocol):
    """A study whose document shows plots as well."""

    def plots(self) -> Mapping[str, IntervalPlot]:
        """Return every plot by a name."""


def print_tables(study: Tabled, console: Console) -> None:
    """Print every table of a study."""
    for tables in study.tables().values():
        for table in tables:
            console.print(table)


def seed_range(first: int, count: int) -> str:
    """Return so many seeds one after another, in words."""
    return f"{first} to {first + count - 1}" if count > 1 else str(first)


S = TypeVar("S", bound=Tabled)


@dataclass(frozen=True)
class Committed(Generic[S]):
    """A study's committed figures and the document that shows them.

    command: of `python -m eval`. document: its name in docs. from_json: the study that a file's content is of.
    """

    command: str
    document: str
    from_json: Callable[[Mapping[str, Any]], S]

    @property
    def results(self) -> Path:
        """The file with the figures."""
        return RESULTS / f"{self.command}.json"

    @property
    def config(self) -> Path | None:
        """The committed config; None for a command that has none, whose settings are constants of its code."""
        path = CONFIGS / f"{self.command}.yaml"
        return path if path.exists() else None

    @property
    def path(self) -> Path:
        """The document."""
        return FOLDER / self.document

    def output(self, docs: bool, whole: bool, path: Path) -> Path:
        """Return where figures go: to the committed file for the docs, else to `path`.

        whole: whether all of the committed config is run. Raises `InputError` for docs of less.
        """
        if docs and not whole:
            raise InputError("--docs", "fewer runs", "all of the committed config, as the docs show them")
        return self.results if docs else path

    def read(self, path: Path | None = None) -> S:
        """Return the study that a file holds, by the config that is in it; without a path the committed one."""
        return self.from_json(read_json(path or self.results, "the results"))

    def known(self) -> S | None:
        """Return the committed study; None if there is none, or only one of a config that had other keys."""
        try:
            return self.read() if self.results.exists() else None
        except ValidationError:
            return None

    def write(self, study: S, path: Path) -> None:
        """Write a study's config and figures, and what they were made with."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_lines({**study.as_json(), **made_with(self.command)}, LEVELS))

    def current(self, text: str, study: S) -> str:
        """Return a document with the study's sections as its figures are. Raises `InputError` for one that it does not have."""
        return rewritten(text, self.sections(study))

    def sections(self, study: S) -> dict[str, str]:
        """Return the text of a study's sections by name."""
        return {f"{self.command} {name}": "\n".join(map(markdown, tables)) for name, tables in study.tables().items()}

    def plots(self, study: S) -> dict[str, IntervalPlot]:
        """Return a study's plots by the names of their files, without the ending."""
        found: Mapping[str, IntervalPlot] = study.plots() if isinstance(study, Plotted) else {}
        return {f"{self.command}-{name}": plot for name, plot in found.items()}

    def draw(self, study: S, folder: Path = IMAGES) -> list[Path]:
        """Draw a study's plots into PNG files of a folder; return their paths."""
        return draw_all(self.plots(study), folder)

    def renew(self, study: S) -> None:
        """Write the document's sections anew, and draw its plots."""
        self.path.write_text(self.current(self.path.read_text(), study))
        self.draw(study)
