"""Where the time from an event to its installed plan goes, and what an event costs the processors."""

from collections.abc import Mapping

from rich.box import SIMPLE
from rich.table import Table

from topologies.emulation.measured import MeasuredRun
from topologies.emulation.run_queue import AGENTS, CONTROLLER, SWITCHES

PARTS = (CONTROLLER, AGENTS, SWITCHES)
"""Trainers are left out: they run for their own sake."""


def cost_table(runs: Mapping[str, MeasuredRun]) -> Table:
    """Return a table with a column per run: milliseconds by phase, and of the processors. runs: by heading."""
    title = "From an event to its installed plan: ms, p50 / p99 by phase; then the processors' ms per event"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("")
    for heading in runs:
        table.add_column(heading, justify="right", no_wrap=True)
    measured = [run.measured for run in runs.values()]
    for phase in dict.fromkeys(phase for one in measured for phase in one.phases_ms):
        label = "of these the controller waiting for a processor" if phase == "processor" else phase
        table.add_row(label, *(_quantiles(one.phases_ms.get(phase, {})) for one in measured))
    for part in PARTS:
        spent = [run.processor_ms.get(part) for run in runs.values()]
        table.add_row(
            f"{part}: running (waiting)",
            *("unknown" if one is None else f"{one['running']:.0f} ({one['waiting']:.0f})" for one in spent),
        )
    return table


def _quantiles(found: Mapping[str, float | None]) -> str:
    values = (found.get("p50"), found.get("p99"))
    return " / ".join("none" if value is None else f"{value:.0f}" for value in values)
