"""`beamer run`, as typer reads its arguments."""

from typing import Annotated

import typer

from beamer.run.execute import execute
from beamer.run.options import RunOptions, hosts


def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.")],
    *,
    study: Annotated[str, typer.Option(help="The study that the trial is of; it is registered if it is new.")],
    trial: Annotated[str, typer.Option(help="The trial's name.  [default: of the program, the host and the process id]")] = "",
    run: Annotated[
        str, typer.Option(help="The run of the study.  [default: BEAMER_RUN, or the present one, or a new one]")
    ] = "",
    workers: Annotated[
        str, typer.Option(help="Hosts with commas, where the command is launched on several.  [default: this machine]")
    ] = "",
    rank: Annotated[int, typer.Option(help="Which of --workers this launch is; the first one registers the trial.")] = 0,
    milestone: Annotated[list[int], typer.Option(help="A step that somebody waits for; repeatable.")] = [],  # noqa: B006
    budget: Annotated[int | None, typer.Option(help="The step at which the trial is complete.")] = None,
    progress: Annotated[str, typer.Option(help="A regular expression that finds progress in the output, or a format.")] = "",
    controller: Annotated[
        str, typer.Option(help="The controller's URL, or several with commas.  [default: BEAMER_URL, or this machine]")
    ] = "",
) -> None:
    """Run any command as a trial of a study.

    It ends as the command does: with its exit code, or by the signal that killed it.
    """
    execute(RunOptions(tuple(command), study, trial, run, hosts(workers), rank, tuple(milestone), budget, progress, controller))
