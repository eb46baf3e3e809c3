"""`beamer schedule` with programs that fail, hang and lie: what it retries, what it says, and its exit codes."""

import json
import signal
from typing import Any

import pytest

from eval.engines.experiment import run
from eval.engines.program import FLAWS
from eval.engines.search import SMALL, DisturbedSearch
from tests.processes.site import until
from tests.processes.test_schedule import ScheduleCommand, command
from tests.support.tiers import long

__all__ = ["command"]  # the fixture

PATIENCE_S = 240.0
# The configuration of that name does the following; the others train.
FLAWED = """
import json, os, runpy, sys, time
name = sys.argv.pop(1)
path = os.environ["BEAMER_CHECKPOINT"]

def lines(first, last, loss=1e-6):
    for i in range(first, last + 1):
        print(json.dumps({"iteration": i, "loss": loss}), flush=True)

if name == "short":  # ends well after 10 of its iterations, and goes on from there when it is asked to again
    done = int(open(path).read()) if os.path.exists(path) else 0
    lines(done, done + 10, 0.5)
    open(path, "w").write(str(done + 10))
elif name == "dict":  # prints a dictionary of Python
    for i in range(21):
        print({"iteration": i, "loss": 1.0}, flush=True)
elif name == "other":  # another key
    for i in range(21):
        print(json.dumps({"step": i, "loss": 1.0}), flush=True)
elif name.startswith("text"):  # prints what the search does not read
    for i in range(1, 21):
        print(f"Epoch {i}/20 - loss: {1 / i:.3f}", flush=True)
    open(path, "w").close()
elif name.startswith("last"):  # prints no number at its end
    lines(1, 19)
    print('{"iteration": 20, "loss": n/a}', flush=True)
    open(path, "w").close()
elif name == "spins":  # prints a line that a pattern backtracks on
    print("Epoch 1/20 - loss: 0.5\\n" + "a" * 60 + "!", flush=True)
    time.sleep(10**6)
elif name == "fails":
    print("three lines\\nof what\\nhappened", file=sys.stderr)
    sys.exit(9)
elif name == "hangs":
    time.sleep(10**6)
elif name == "far":
    lines(1000, 1000)
else:
    sys.argv[0] = "trainer"
    runpy.run_module("beamer.testing.trainer", run_name="__main__")
"""


def flawed(command: ScheduleCommand, *names: str, iterations: int = 20, **keys: Any) -> None:
    """Write a search of configurations that do as they are called."""
    program = command.root / "flawed.py"
    program.write_text(FLAWED)
    configurations = [{"name": name, "lr": 0.05} for name in names]
    command.search(iterations, program=(str(program), "{name}"), configurations=configurations, **keys)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["hermes", "convergence"])
def test_sound_configurations_end_as_if_undisturbed(policy: str) -> None:
    outcome = run(policy, DisturbedSearch(SMALL), PATIENCE_S)
    assert outcome.failures == ()
    assert outcome.launches > SMALL.sound + len(FLAWS)
    assert outcome.taken > 0
    assert outcome.killed == SMALL.kills


def test_a_program_that_stops_short_goes_on_from_its_checkpoint(command: ScheduleCommand) -> None:
    flawed(command, "short", "sound")
    done = command.run("fifo")
    assert done.returncode == 0, done.stderr
    rows = command.figures()
    assert (rows["short"]["status"], rows["short"]["iterations"], rows["short"]["failures"]) == ("finished", 20, 1)
    assert rows["short"]["reason"].startswith("it ended with exit code 0 and 10 of its iterations missing")
    assert "short failed once, and was started again: it ended with exit code 0 and 10 of its iterations" in done.stdout
    command.check_steps("sound", 20, rate=0.05)


def test_a_program_that_never_comes_to_its_end_has_failed(command: ScheduleCommand) -> None:
    flawed(command, "short", "sound", iterations=100, retries=1)
    done = command.run("fifo")
    assert done.returncode == 3, done.stderr
    rows = command.figures()
    assert (rows["short"]["status"], rows["short"]["iterations"], rows["short"]["failures"]) == ("failed", 20, 2)
    assert rows["sound"]["status"] == "finished"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("other", 'a line of progress: got \'{"step": 0, "loss": 1.0}\', expected iteration, as in'),
        *long(
            ("dict", "a line of progress: got \"{'iteration': 0, 'loss': 1.0}\", expected JSON such as"),
            ("far", "iteration: got 1000.0, expected 0 to 20, its target, and at most 5 beyond"),
        ),
    ],
)
def test_what_is_printed_in_vain_is_shown_once(command: ScheduleCommand, name: str, hint: str) -> None:
    flawed(command, name, "sound", retries=0)
    done = command.run("fifo")
    rows = command.figures()
    assert hint in rows[name]["refused"]
    assert rows[name]["best_loss"] is None
    assert rows["sound"]["refused"] == ""
    output = done.stdout.replace("\n", " ")
    assert output.count(hint[:30]) == 2, "when it is seen, and below the table"
    assert (done.returncode, rows[name]["status"]) == (3, "failed")
    assert rows[name]["reason"] == "none of its reports could be read"


RUNGS = [{"iterations": 20, "keep": 1}, {"iterations": 40}]


@pytest.mark.parametrize(
    "pattern", [r"Epochs (?P<iteration>\d+)/\d+ - loss: (?P<loss>[\d.]+)", *long("")], ids=["a typo", "none"]
)
def test_a_search_that_reads_nothing_stops_before_it_judges(command: ScheduleCommand, pattern: str) -> None:
    flawed(command, "text1", "text2", "text3", rungs=RUNGS, progress=pattern)
    done = command.run("fifo")
    assert done.returncode == 1, done.stderr
    assert "stopped before a rung is judged on nothing" in done.stderr
    assert (pattern or "none is JSON such as") in done.stderr
    assert "  Epoch 19/20 - loss: 0.053\n  Epoch 20/20 - loss: 0.050\n" in done.stderr
    assert {row["status"] for row in command.figures().values()} == {"waiting"}, "nobody is killed"
    assert command.jobs() == []
    assert command.run("fifo").returncode == 1


@pytest.mark.long
def test_a_rung_at_whose_end_no_loss_was_read_judges_nobody(command: ScheduleCommand) -> None:
    flawed(command, "last1", "last2", "last3", rungs=RUNGS)
    done = command.run("fifo")
    assert done.returncode == 1, done.stderr
    assert "judged on nothing: no configuration came to the end of rung0 with a finite loss" in done.stderr.replace("\n", " ")
    assert {row["status"] for row in command.figures().values()} == {"waiting"}, "nobody is killed"
    assert command.jobs() == []


@pytest.mark.long
def test_a_search_without_rungs_that_reads_nothing_has_no_best(command: ScheduleCommand) -> None:
    flawed(command, "text1", "text2")
    done = command.run("fifo")
    assert done.returncode == 0, done.stderr
    assert "no configuration printed a line that was read as progress: none of them is the best" in done.stderr
    assert json.loads((command.root / "figures.json").read_text())["best"] is None


def test_a_refused_last_report_does_not_win(command: ScheduleCommand) -> None:
    flawed(command, "last", "sound", rungs=RUNGS)
    done = command.run("fifo")
    assert done.returncode == 0, done.stderr
    rows = command.figures()
    assert (rows["last"]["status"], rows["last"]["rung"], rows["last"]["loss"]) == ("killed", "rung0", None)
    assert "n/a" in rows["last"]["refused"]
    assert (rows["sound"]["status"], rows["sound"]["iterations"]) == ("finished", 40)


def test_a_pattern_that_is_too_slow_fails_its_configuration(command: ScheduleCommand) -> None:
    flawed(command, "spins", retries=0, progress=r"((a|aa)+$)|Epoch (?P<iteration>\d+)/\d+ - loss: (?P<loss>[\d.]+)")
    done = command.run("fifo")
    assert done.returncode == 1, done.stderr
    assert "the progress pattern ((a|aa)+$)|Epoch" in command.figures()["spins"]["reason"]
    assert command.jobs() == []


def test_where_every_configuration_has_failed_the_exit_code_is_another(command: ScheduleCommand) -> None:
    flawed(command, "fails", retries=1)
    done = command.run("fifo")
    assert done.returncode == 1
    row = command.figures()["fails"]
    assert row["failures"] == 2
    assert row["reason"] == "here: rank 0 exited with code 9\nthree lines\nof what\nhappened"
    assert "fails failed 2 times, the last time: here: rank 0 exited with code 9 ... happened" in done.stdout


@pytest.mark.parametrize("policy", ["hermes", *long("fifo", "round-robin")])
def test_a_program_that_prints_nothing_does_not_hold_the_only_slot(command: ScheduleCommand, policy: str) -> None:
    flawed(command, "hangs", "sound", nodes=[{"name": "here", "gpus": 1}], silent_s=4, retries=0)
    done = command.run(policy)
    assert done.returncode == 3, done.stderr
    rows = command.figures()
    assert rows["hangs"]["reason"].startswith("it printed nothing for ")
    assert rows["sound"]["status"] == "finished"
    command.check_steps("sound", 20, rate=0.05)


@pytest.mark.long
def test_a_program_that_takes_too_long_is_given_up(command: ScheduleCommand) -> None:
    flawed(command, "hangs", "sound", timeout_s=4, retries=0)
    done = command.run("fifo")
    assert done.returncode == 3, done.stderr
    assert "longer than timeout_s: 4" in command.figures()["hangs"]["reason"]


@pytest.mark.long
def test_limits_may_change_when_a_search_is_continued(command: ScheduleCommand) -> None:
    flawed(command, "hangs", "sound", retries=0)
    process = command.start("fifo")
    until(lambda: command.steps("sound"), "one to train")
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    flawed(command, "hangs", "sound", retries=0, silent_s=3)
    done = command.run("fifo")
    assert done.returncode == 3, done.stderr
    assert command.figures()["sound"]["status"] == "finished"
