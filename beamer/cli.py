"""`beamer`: one command line; commands that need more than the library are found by entry point."""

import json
import os
import sys
from contextlib import ExitStack
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from beamer.errors import BeamerError, EmulationError, InputError
from beamer.ordering import ordering
from beamer.report import plot_timeline, run_document, stage_table
from beamer.scenario import load, shipped
from beamer.sim import simulate as run_simulation

app = typer.Typer(
    help="Stage-aware coflow scheduling for hyper-parameter search.", no_args_is_help=True, pretty_exceptions_enable=False
)

ScenarioFile = Annotated[Path | None, typer.Argument(help="Scenario file (YAML); the shipped one by default.")]
PolicyList = Annotated[str, typer.Option("--policies", help="Comma-separated network policies, the first is the baseline.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", dir_okay=False)]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Draw the stages' timeline into this PNG.", dir_okay=False)]


def parse_policies(text: str) -> list[str]:
    """Return the names in a comma-separated list of network policies. Raises `InputError` for an unknown one."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        ordering(name)
    return names


def check_outputs(json_file: Path | None, plot: Path | None) -> None:
    """Make the directories of the output files, before any work is done for them. Raises `InputError` and leaves nothing."""
    if plot is not None and plot.suffix.lower() != ".png":
        raise InputError("--plot", str(plot), "a file name that ends in .png")
    with ExitStack() as undo:
        for option, path in (("--json", json_file), ("--plot", plot)):
            if path is not None:
                _check_output(path, option, undo)
        undo.pop_all()


def _check_output(path: Path, option: str, undo: ExitStack) -> None:
    try:
        for directory in reversed(path.parents):
            if not directory.exists():
                directory.mkdir()
                undo.callback(directory.rmdir)
        new = not path.exists()
        with path.open("a"):
            pass
        if new:  # or an empty file would outlive a run that breaks off
            path.resolve().unlink()
    except OSError as error:
        raise InputError(option, str(path), f"a file that can be written ({error.strerror})") from error


@app.command()
def simulate(
    scenario: ScenarioFile = None,
    policies: PolicyList = "fair,beamer",
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Run a scenario in the flow-level simulator under each policy."""
    loaded = load(scenario or shipped())
    names = parse_policies(policies)
    check_outputs(json_file, plot)
    runs = [run_simulation(loaded, name) for name in names]
    Console().print(stage_table(f"{loaded.name} on {loaded.fabric.name}, simulated", runs))
    if json_file is not None:
        json_file.write_text(json.dumps({"runs": [run_document(run) for run in runs]}, indent=2))
    if plot is not None:
        plot_timeline(runs, plot)


@app.command(name="version")
def show_version() -> None:
    """Print the version."""
    typer.echo(version("beamer"))


def main() -> None:
    """Run the command line; bad input and missing parts end in one line and exit code 2."""
    for entry in entry_points(group="beamer.commands"):
        app.command(name=entry.name)(entry.load())
    try:
        app(standalone_mode=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except BeamerError as error:
        print(f"beamer: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, EmulationError) else 2)


if __name__ == "__main__":
    main()
