"""The phases of a simulation, and how its time grows."""

from random import Random

from rich.console import Console

from beamer.network.allocation import Classes
from beamer.sim import simulate
from beamer.workloads.scenario import load, shipped
from eval.bench.phases import PHASES, measured_phases
from eval.bench.scale import growth_table


def test_phases_take_the_whole_time_and_leave_no_trace() -> None:
    scenario = load(shipped())
    plain = simulate(scenario, "beamer", Random(0))
    with measured_phases() as seconds:
        measured = simulate(scenario, "beamer", Random(0))
    assert tuple(seconds) == PHASES
    assert all(phase_s > 0 for phase_s in seconds.values())
    assert measured.stages == plain.stages
    before = dict(seconds)
    simulate(scenario, "beamer", Random(0))
    assert seconds == before, "nothing is measured afterwards"


def test_growth_has_a_row_per_size_and_a_power_for_all_but_the_first() -> None:
    table = growth_table("beamer", Classes(queues=8), (8, 16))
    assert table.row_count == 2
    console = Console(width=200, record=True)
    console.print(table)
    rows = [line for line in console.export_text().splitlines() if line.startswith("│")]
    assert [row.count("(n^") for row in rows] == [0, len(PHASES) + 1]
