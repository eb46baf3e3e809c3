"""What a run's table says of phases and of the processors."""

from io import StringIO

from rich.console import Console

from topologies import single
from topologies.emulation.cost_tables import cost_table
from topologies.emulation.exchange import RunMeasurements
from topologies.emulation.measured import MeasuredRun
from topologies.emulation.run_queue import AGENTS, CONTROLLER, TRAINERS, ProcessorTime
from topologies.emulation.sampling import Health

PHASES = {"event": {"p50": 2.0, "p99": 30.0}, "processor": {"p50": None, "p99": None}}
TIMES = {CONTROLLER: ProcessorTime(80_000_000, 20_000_000), AGENTS: ProcessorTime(4_000_000), TRAINERS: ProcessorTime(5)}


def run(events: int, phases: dict[str, dict[str, float | None]], health: Health) -> MeasuredRun:
    return MeasuredRun(single.build(2), RunMeasurements(0.0, [], [], [], {}, [], [], health, 1.0, None, events, phases))


def test_a_table_shows_quantiles_of_phases_and_milliseconds_per_event() -> None:
    measured = run(4, PHASES, Health(0.5, None, {}, TIMES))
    assert measured.processor_ms[CONTROLLER] == {"running": 20.0, "waiting": 5.0}
    unknown = run(0, {}, Health(0.5, None, None))
    assert unknown.processor_ms == {}
    console = Console(file=StringIO(), width=200)
    console.print(cost_table({"beamer": measured, "fair": unknown}))
    assert isinstance(console.file, StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["event", "2", "/", "30", "none", "/", "none"] in rows
    assert ["the", "controller:", "running", "(waiting)", "20", "(5)", "unknown"] in rows
    assert ["the", "host", "agents:", "running", "(waiting)", "1", "(0)", "unknown"] in rows
    assert not any("trainers" in row for row in rows)
