"""Programs that print too much or die oddly, requests that come late, nodes that are named alike or are gone."""

import os
import signal
import sys
from pathlib import Path

import pytest

from beamer.engines.local import LaunchSpec, LocalNode
from beamer.engines.local.record import Record, load
from beamer.engines.local.states import Phase, RanksState
from beamer.engines.local.supervisor import control, store
from beamer.engines.local.supervisor.messages import Accepted, GetStatus, Launch, Refused, Status, Suspend
from beamer.engines.local.supervisor.supervisor import PAGE
from beamer.errors import EngineError
from beamer.gpu.engine import RunState
from tests.processes.site import Cable, Site, of_directory, on, read, until

PATIENCE_S = 60.0
SLEEPER = "import time\ntime.sleep(1000)"
PRINTING = """
import time
for i in range(10**6):
    print('{"iteration": %d, "loss": 1}' % i, flush=True)
    time.sleep(0.02)
"""


@pytest.mark.parametrize("command", [("yes",), ("yes", "\r"), ("cat", "/dev/zero")], ids=["lines", "returns", "one line"])
def test_a_program_that_never_stops_printing_can_be_controlled_all_the_same(site: Site, command: tuple[str, ...]) -> None:
    site.specs["job"] = LaunchSpec(command)
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    engine.suspend("job", PATIENCE_S)
    assert site.see(engine, "job").state is RunState.SUSPENDED
    for output in site.root.glob("jobs/*/*/output"):
        os.truncate(output, 0)
    engine.resume("job", PATIENCE_S)
    engine.stop("job", PATIENCE_S)
    assert site.ranks() == []


def test_progress_that_ends_with_carriage_returns_is_reported(site: Site) -> None:
    site.program("job", PRINTING.replace("flush=True", "end='\\r', flush=True"))
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    assert site.until_step(engine, "job", beyond=3.0)


def test_lines_that_are_nested_too_deeply_are_no_progress(site: Site) -> None:
    site.program("job", "print('{\"a\":' * 200_000, flush=True)" + PRINTING)
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    assert site.until_step(engine, "job")


def test_a_death_by_a_signal_without_a_name_is_a_failure(site: Site) -> None:
    number = signal.SIGRTMIN + 6
    site.program("job", f"import os\nos.kill(os.getpid(), {number})")
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    assert f"rank 0 was killed by signal {number}" in site.until_state(engine, "job", RunState.FAILED).exit


def test_all_reports_are_delivered_however_many_they_are(site: Site) -> None:
    count = 2 * PAGE + 7
    site.program("job", f'for i in range({count}):\n    print(\'{{"iteration": %d, "loss": 1}}\' % i)')
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    seen = site.until_state(engine, "job", RunState.FINISHED)
    assert [report.iteration for report in seen.reports] == list(range(count))


def test_a_launch_that_comes_after_its_job_has_left_starts_nothing(site: Site) -> None:
    site.program("job", SLEEPER)
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    (directory,) = (path.parent for path in site.root.glob("jobs/*/*/lock"))
    engine.stop("job", PATIENCE_S)
    until(lambda: not site.supervisors(), "the supervisor to end")
    start = control.supervisor_command(str(directory), "signals", sys.executable)
    late = Launch(1, site.specs["job"], (0,), ("0",), 1, "127.0.0.1", 4711, 1)
    assert control.ask_or_start(directory, late, PATIENCE_S, start) == Refused("run 1 is over, this is run 1")
    until(lambda: not site.supervisors(), "the supervisor that was started for it to end")
    engine.start("job", on("localhost"), PATIENCE_S)
    assert site.see(engine, "job").state is RunState.RUNNING
    assert len(site.ranks()) == 1
    (record,) = (load(path) for path in site.root.glob("jobs/*/job"))
    assert record is not None
    assert record.run == 2


def test_a_job_that_is_suspended_in_part_continues(site: Site) -> None:
    site.nodes = (LocalNode("one", 1), LocalNode("two", 1))
    site.program("job", PRINTING)
    engine = site.engine()
    engine.start("job", on("one", "two"), PATIENCE_S)
    at = site.until_step(engine, "job")
    for path in site.root.glob("jobs/*/one/lock"):
        assert control.ask(path.parent, Suspend(PATIENCE_S), PATIENCE_S) == Accepted()
    site.until_step(engine, "job", beyond=at + 20.0)
    for path in site.root.glob("jobs/*/*/lock"):
        assert isinstance(status := control.ask(path.parent, GetStatus(), PATIENCE_S), Status)
        assert status.run.state is RanksState.RUNNING


def test_nodes_whose_names_read_alike_have_supervisors_of_their_own(site: Site) -> None:
    site.nodes = (LocalNode("a b", 1), LocalNode("a_b", 1))
    site.program("job", PRINTING)
    engine = site.engine()
    engine.start("job", on("a b", "a_b"), PATIENCE_S)
    site.until_step(engine, "job")
    assert len(site.supervisors()) == len(site.ranks()) == 2


def test_a_job_on_a_node_that_is_gone_holds_up_no_other(site: Site) -> None:
    site.program("lost", SLEEPER)
    site.trainer("job", 20)
    directory = site.root / "jobs" / "lost-00000000"
    directory.mkdir(parents=True)
    record = Record("lost", site.specs["lost"], on("elsewhere"), ("elsewhere",), port=12345)
    record.save(directory / "job")
    engine = site.engine()
    until(lambda: "GPU 0 on elsewhere is no longer declared" in site.see(engine, "lost").exit, "it to be reported")
    engine.start("job", on("localhost"), PATIENCE_S)
    site.until_state(engine, "job", RunState.FINISHED)
    with pytest.raises(EngineError, match="GPU 0 on elsewhere is no longer declared"):
        engine.start("lost", on("localhost"))
    Record("lost", record.spec, record.placement, (), Phase.PARKED).save(directory / "job")


def test_a_job_whose_node_is_gone_before_it_was_launched_can_be_stopped(site: Site) -> None:
    cable = site.root / "cable"
    cable.touch()
    site.nodes = (LocalNode("here", 1), LocalNode("there", 1, launcher=Cable(cable)))
    site.program("job", PRINTING)
    site.program("moved", PRINTING)
    engine = site.engine()
    engine.start("moved", on("here"), PATIENCE_S)
    site.until_step(engine, "moved")
    engine.resize("moved", None, PATIENCE_S)
    site.until_state(engine, "moved", RunState.PARKED)
    assert len(engine.nodes()) == 2
    cable.unlink()  # nobody has noticed yet
    for job in ("job", "moved"):
        with pytest.raises(EngineError):
            engine.start(job, on("there"), PATIENCE_S)
    for job in ("job", "moved"):
        engine.stop(job, PATIENCE_S)
    assert engine.report() == {}
    until(lambda: not of_directory(site.root), "all processes to be gone")


def test_a_supervisor_at_rest_that_is_to_leave_takes_its_group_along(site: Site, group: str) -> None:
    site.program("job", SLEEPER, grace_s=0.1)
    engine = site.engine()
    engine.start("job", on("localhost"), PATIENCE_S)
    engine.resize("job", None, PATIENCE_S)
    site.until_state(engine, "job", RunState.PARKED)
    (supervisor,) = site.supervisors()
    (state,) = (store.read_json(path) or {} for path in site.root.glob("jobs/*/*/state"))
    kind, path = state["group"]
    assert kind == group
    assert not path or Path(path).exists()
    os.kill(supervisor, signal.SIGTERM)
    until(lambda: not read(supervisor, "cmdline"), "the supervisor to leave")
    assert not path or not Path(path).exists()
