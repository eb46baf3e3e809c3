"""`python -m eval recheck`: runs cells of the committed tables again, prints what differs, and lists tables that are older."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from eval.arithmetic import arithmetic
from eval.console import wide_console
from eval.recheck.age import older_tables
from eval.recheck.base import CommittedCell, MissingInput, RecheckInputs
from eval.recheck.coverage import lacking
from eval.recheck.tables import NOT_RUN_AGAIN, RECHECKED


def recheck(
    tables: Annotated[str, typer.Option(help="Only these results files, with commas between.")] = "",
    cells: Annotated[str, typer.Option(help="Only cells whose names contain this.")] = "",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the measured data, for GPU policies.", exists=True, file_okay=False),
    ] = None,
    pollux: Annotated[Path | None, typer.Option(help="Checkout of petuum/adaptdl, as of `eval peers`.", exists=True)] = None,
    gavel: Annotated[Path | None, typer.Option(help="Checkout of stanford-futuredata/gavel.", exists=True)] = None,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter that has the peer's packages.", exists=True, dir_okay=False)
    ] = None,
    older: Annotated[bool, typer.Option("--older", help="List older tables, and what they lack; run nothing.")] = False,
) -> None:
    """Run cells of the committed tables again; ends with 1 if a figure is another one."""
    console = wide_console(markup=False)
    names = _chosen(tables)
    for name, reason in older_tables().items():
        if name in names or not tables:
            console.print(f"{name}: older than what it rests on: {reason}", soft_wrap=True)
    for name, absent in lacking().items():
        if name in names or not tables:
            console.print(f"{name}: no figures of {', '.join(absent)}", soft_wrap=True)
    if older:
        return
    console.print(f"run again with {', '.join(f'{name} {value}' for name, value in arithmetic().items())}", soft_wrap=True)
    folders = {"pollux": pollux, "gavel": gavel}
    inputs = RecheckInputs(data, {name: (folder, python) for name, folder in folders.items() if folder})
    different = compared = 0
    for name in names:
        try:
            several = _cells(name, inputs, cells)
        except MissingInput as missing:
            if tables:
                raise InputError("--tables", name, f"also {missing}") from missing
            console.print(f"{name}: not run again: it needs {missing}", soft_wrap=True)
            continue
        for cell in several:
            found = list(cell.differences())
            different, compared = different + bool(found), compared + 1
            for one in found:
                console.print(f"{name}: {one}", soft_wrap=True)
        console.print(f"{name}: {len(several)} cells run again; not: {RECHECKED[name].left_out}", soft_wrap=True)
    if not compared:
        raise InputError("--cells", cells, "a part of the name of a cell: none was run again")
    console.print(f"{different} of {compared} cells differ")
    if different:
        raise typer.Exit(1)


def _chosen(tables: str) -> Sequence[str]:
    """Return the tables that are meant. Raises `InputError` for one that is not there, or of which nothing is run again."""
    names = [name for name in tables.split(",") if name] or [*RECHECKED]
    for name in names:
        if name in NOT_RUN_AGAIN:
            raise InputError("--tables", name, f"one that is run again; of this one: {NOT_RUN_AGAIN[name]}")
        if name not in RECHECKED:
            raise InputError("--tables", name, nearest(name, RECHECKED))
    return names


def _cells(name: str, inputs: RecheckInputs, part: str) -> list[CommittedCell]:
    return [cell for cell in RECHECKED[name].cells(inputs) if part in cell.name]
