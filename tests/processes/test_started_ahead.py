"""Jobs that are started ahead of their turn on a GPU: where their ranks are held, and what a search gains."""

import json
import time
from pathlib import Path

import pytest
import yaml

from beamer.cli import main
from beamer.engines.local import LocalNode, spare
from beamer.engines.local.record import load
from beamer.engines.local.supervisor.supervisor import HOLD_S
from beamer.gpu.engine import RunState
from tests.processes.site import Cable, Site, on, until
from tests.support.commands import run_here

AHEAD_S = 1.5
ONE, OTHER = on("localhost"), on("localhost", "localhost")
WARNS_THEN_SPEAKS = """
import pathlib, sys, time
print("a warning", file=sys.stderr, flush=True)
pathlib.Path("{root}/warned").touch()
while not pathlib.Path("{root}/go").exists():
    time.sleep(0.01)
{speaks}
time.sleep(0.3)
pathlib.Path("{root}/computed").touch()
for step in range(1, 10**6):
    print('{{"iteration": %d, "loss": 1}}' % step, flush=True)
    time.sleep(0.02)
"""


class RemoteCable(Cable):
    """Runs commands as on another machine, whose sockets cannot be reached from here."""

    direct = False


def warns_then_speaks(site: Site, speaks: str = "print('ready', flush=True)") -> None:
    site.program("job", WARNS_THEN_SPEAKS.format(root=site.root, speaks=speaks))


@pytest.mark.parametrize(
    "speaks",
    ["print('ready', flush=True)", """print('{"iteration": 1, "loss": 1}', file=sys.stderr, flush=True)"""],
    ids=["a line", "a report"],
)
def test_ranks_are_held_at_their_first_line_and_at_no_warning(site: Site, group: str, speaks: str) -> None:
    warns_then_speaks(site, speaks)
    engine = site.engine(prepares=True)
    engine.prepare("job", ONE)
    until((site.root / "warned").exists)
    assert site.see(engine, "job").state is RunState.PREPARING
    time.sleep(AHEAD_S)
    (site.root / "go").touch()
    site.until_state(engine, "job", RunState.PREPARED)
    assert not (site.root / "computed").exists()
    engine.start("job", ONE)
    site.until_step(engine, "job")
    assert site.reports["job"][0].service_s < AHEAD_S, "what was before it was held counts for nothing"
    assert site.see(engine, "job").launch == 1


def test_one_that_is_started_before_it_is_ready_is_not_held_any_more(site: Site, group: str) -> None:
    warns_then_speaks(site)
    engine = site.engine(prepares=True)
    engine.prepare("job", ONE)
    until((site.root / "warned").exists)
    engine.start("job", ONE)
    assert site.see(engine, "job").state is RunState.RUNNING
    (site.root / "go").touch()
    site.until_step(engine, "job", 3)
    assert site.see(engine, "job").launch == 1


def test_the_next_engine_knows_who_is_held(site: Site) -> None:
    warns_then_speaks(site)
    (site.root / "go").touch()
    engine = site.engine(prepares=True)
    engine.prepare("job", ONE)
    engine.close()
    after = site.engine(prepares=True)
    site.until_state(after, "job", RunState.PREPARED)
    after.start("job", ONE)
    site.until_step(after, "job", 3)
    assert site.see(after, "job").launch == 1


def test_one_that_fails_while_it_starts_says_why(site: Site) -> None:
    site.program("job", "raise SystemExit('no such data')")
    engine = site.engine(prepares=True)
    engine.prepare("job", ONE)
    assert "no such data" in site.until_state(engine, "job", RunState.FAILED).exit


def test_what_a_parked_job_has_cost_is_not_forgotten_with_ranks_that_were_not_used(site: Site) -> None:
    warns_then_speaks(site)
    (site.root / "go").touch()
    engine = site.engine(prepares=True)
    engine.start("job", ONE)
    site.until_step(engine, "job", 3)
    engine.resize("job", None)
    site.until_state(engine, "job", RunState.PARKED)
    [file] = (site.root / "jobs").glob("*/job")
    before = load(file)
    engine.prepare("job", ONE)
    site.until_state(engine, "job", RunState.PREPARED)
    engine.resize("job", None)
    site.until_state(engine, "job", RunState.PARKED)
    after = load(file)
    assert before
    assert after
    assert after.gap_s == before.gap_s > 0
    assert (after.ran_s, after.progress) == (pytest.approx(before.ran_s), before.progress)


def test_ranks_of_several_that_are_held_for_long_are_parked(site: Site) -> None:
    site.trainer("job", 10**6, collective_timeout_s=0.4)
    engine = site.engine(prepares=True)
    engine.prepare("job", OTHER)
    seen = site.until_state(engine, "job", RunState.PARKED)
    assert seen.exit == ""
    engine.start("job", OTHER)
    site.until_step(engine, "job", 3)


def test_one_that_was_started_ahead_on_a_lost_node_runs_elsewhere(site: Site) -> None:
    cable = site.root / "cable"
    cable.touch()
    site.nodes = (LocalNode("here", 1), LocalNode("lost", 1, launcher=RemoteCable(cable)))
    site.trainer("job", 10**6)
    engine = site.engine(prepares=True)
    engine.prepare("job", on("lost"))
    site.until_state(engine, "job", RunState.PREPARED)
    cable.unlink()
    until(lambda: [node.name for node in engine.nodes()] == ["here"])
    engine.prepare("job", on("here"))
    site.until_state(engine, "job", RunState.PREPARED)
    engine.start("job", on("here"))
    site.until_step(engine, "job", 3)
    cable.touch()


def test_ranks_that_print_nothing_are_held_with_the_one_that_does(site: Site) -> None:
    site.nodes = (LocalNode("first", 1), LocalNode("second", 1))
    prints = "import os, time\nprint('ready', flush=True) if os.environ['RANK'] == '0' else None\ntime.sleep(1000)"
    site.program("job", prints)
    engine = site.engine(prepares=True)
    engine.prepare("job", on("first", "second"))
    begun_s = time.monotonic()
    site.until_state(engine, "job", RunState.PREPARED)
    assert time.monotonic() - begun_s < HOLD_S, "the silent one was not waited for"
    engine.start("job", on("first", "second"))
    site.until_state(engine, "job", RunState.RUNNING)


def test_memory_is_given_back_where_it_is_short(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.trainer("job", 10**6)
    engine = site.engine(prepares=True)
    engine.prepare("job", ONE)
    site.until_state(engine, "job", RunState.PREPARED)
    monkeypatch.setattr(spare, "SHORT_OF_MEMORY", 1.1)
    site.until_state(engine, "job", RunState.PARKED)


def test_where_nothing_is_started_ahead_nothing_is_known_of_it(site: Site) -> None:
    warns_then_speaks(site)
    engine = site.engine()
    engine.prepare("job", ONE)
    assert engine.report() == {}


STARTS = """
import pathlib, sys, time
name, number, prepare = sys.argv[1], int(sys.argv[2]), sys.argv[3]
pathlib.Path(f"{root}/{{number}}.started").touch()
print("ready", flush=True)
begun, later = time.monotonic(), pathlib.Path(f"{root}/{{number + 1}}.started")
while number < 3 and not later.exists() and time.monotonic() - begun < {patience}:
    time.sleep(0.01)
print('{{"iteration": 1, "loss": %g}}' % (1.0 if number == 3 or later.exists() else 0.0), flush=True)
"""


@pytest.mark.parametrize("prepare", [True, False], ids=["ahead", "in turn"])
def test_the_next_configuration_starts_while_one_computes(
    prepare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program waits until the one of the next configuration has started, and reports whether it has."""
    monkeypatch.setattr(spare, "IDLE_PROCESSORS", 0.0)  # Other tests take them.
    program = tmp_path / "program.py"
    program.write_text(STARTS.format(root=tmp_path, patience=60 if prepare else 1))
    search = {
        "name": "s",
        "nodes": [{"name": "here", "gpus": 1}],
        "job": {
            "command": ["{python}", str(program), "{name}", "{number}", str(prepare)],
            "request": {"iterations": 1},
        },
        "configurations": [{"name": f"c{number}", "number": number} for number in range(4)],
        "prepare": prepare,
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(search))
    places = ("--dir", str(tmp_path / "dir"), "--json", str(tmp_path / "out.json"))
    done = run_here(main, "schedule", str(tmp_path / "search.yaml"), "--policy", "fifo", *places)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())["configurations"]
    assert [one["loss"] for one in found] == [1.0 if prepare else 0.0] * 3 + [1.0]
    assert [one["status"] for one in found] == ["finished"] * 4
