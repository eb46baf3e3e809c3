"""What the supervisor of a run and the process inside its namespace exchange."""

from pathlib import Path

from pydantic import TypeAdapter

from topologies.emulation.exchange import RunConfig


def test_a_run_is_configured_as_it_was_asked_for() -> None:
    asked = RunConfig(Path("/s.yaml"), "beamer", 3, mode="rates", queues=4, controllers=2, gpu_policy="fifo", joint="placement")
    adapter = TypeAdapter(RunConfig)
    assert adapter.validate_json(adapter.dump_json(asked)) == asked
