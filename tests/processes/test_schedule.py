"""`beamer schedule` with real processes: killed, interrupted, refused; no step is taken twice and none left out."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.engines.local.supervisor.files import load_state
from beamer.engines.local.supervisor.groups import candidates
from beamer.gpu.events import Allocated
from beamer.studies.journal.store import Journal
from beamer.testing.trainer import Options
from eval.engines.undisturbed import undisturbed_digests
from tests.processes.site import of_directory, read, until, works
from tests.support.checkout import ROOT
from tests.support.documented import install, register
from tests.support.tiers import long

RATES = {"a": 0.0001, "b": 0.002, "c": 0.01, "d": 0.05, "e": 0.1, "f": 0.2}
TIMEOUT_S = 240
FAILING = """
import runpy, sys
name = sys.argv.pop(1)
sys.argv[0] = "trainer"
if name == "c":
    print('{"iteration": 1, "loss": 0.001}', flush=True)
    sys.exit(3)
runpy.run_module("beamer.testing.trainer", run_name="__main__")
"""

STUBBORN = """
import itertools, signal, time
signal.signal(signal.SIGTERM, {handler})
for i in itertools.count(1):
    print('{{"iteration": %d, "loss": 0.5}}' % i, flush=True)
    time.sleep(0.02)
"""

FLAWED = """
from beamer.gpu.policies.fifo import Fifo

class Flawed(Fifo):
    name = "flawed"

    def allocate(self, state, cluster, jobs, now, rng):
        if any(job.reports for job in jobs):
            raise ValueError("[reports] are too hard")
        return super().allocate(state, cluster, jobs, now, rng)
"""


class ScheduleCommand:
    """A search in a directory of its own, and the command lines that run it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "dir"
        self.running: list[subprocess.Popen[str]] = []

    def search(
        self,
        iterations: int,
        pause_s: float = 0.01,
        program: tuple[str, ...] = (),
        grace_s: float = 30.0,
        progress: str = "",
        **keys: Any,
    ) -> None:
        program = program or ("-m", "beamer.testing.trainer")
        command: list[Any] = ["{python}", *program, "--learning-rate", "{lr}", "--trace", f"{self.root}/{{name}}.trace"]
        command += ["--iterations", "{iterations}", "--pause-s", pause_s, "--gate", f"{self.root}/{{name}}.gate"]
        request = {"batch_size": 64, "epoch": 5, **({} if "rungs" in keys else {"iterations": iterations})}
        job = {"command": command, "env": {"OPENBLAS_NUM_THREADS": 1}, "grace_s": grace_s, "request": request}
        data = {
            "name": "s",
            "nodes": [{"name": "here", "gpus": 2}],
            "job": {**job, "progress": progress},
            "configurations": [{"name": name, "lr": rate} for name, rate in RATES.items()],
            **keys,
        }
        (self.root / "search.yaml").write_text(yaml.safe_dump(data))

    def hold(self, at: int) -> None:
        """Let no configuration go beyond an iteration, so that all run however long the test takes."""
        for name in RATES:
            new = self.root / f"{name}.gate.new"
            new.write_text(str(at))
            new.replace(self.root / f"{name}.gate")

    def release(self) -> None:
        """Let all run to their ends."""
        for name in RATES:
            (self.root / f"{name}.gate").unlink()

    def started(self) -> bool:
        """Say whether all configurations have taken a step."""
        return all(self.steps(name) for name in RATES)

    def stubborn(self, handler: str) -> tuple[str, ...]:
        """Return a program that runs for ever and writes no checkpoint. handler: of SIGTERM, Python."""
        (self.root / "stubborn.py").write_text(STUBBORN.format(handler=handler))
        return (str(self.root / "stubborn.py"),)

    def arguments(self, policy: str, *more: str) -> list[str]:
        quantum = ["--set", "quantum_s=0.5"] if policy == "round-robin" else []
        figures = ["--json", str(self.root / "figures.json")]
        command = [sys.executable, "-m", "beamer.cli", "schedule", str(self.root / "search.yaml")]
        return [*command, "--dir", str(self.directory), "--policy", policy, *quantum, *figures, *more]

    def start(self, policy: str, *more: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            self.arguments(policy, *more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.running.append(process)
        return process

    def run(self, policy: str, *more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.arguments(policy, *more), capture_output=True, text=True, timeout=TIMEOUT_S)

    def figures(self) -> dict[str, dict[str, Any]]:
        found = json.loads((self.root / "figures.json").read_text())
        return {row["name"]: row for row in found["configurations"]}

    def steps(self, name: str) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in (self.root / f"{name}.trace").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def check_steps(self, name: str, iterations: int, rate: float = 0.0) -> None:
        """Check that every step was taken once, as without a scheduler. rate: 0: that of `RATES`."""
        steps = self.steps(name)
        assert [step["iteration"] for step in steps] == list(range(1, iterations + 1))
        options = Options(iterations=iterations, learning_rate=rate or RATES[name])
        assert [step["digest"] for step in steps] == undisturbed_digests(options, [1] * iterations)

    def jobs(self) -> list[int]:
        """Return the processes of jobs: ranks and supervisors, not the command."""
        ours = {process.pid for process in self.running}
        return [pid for pid in of_directory(self.root) if pid not in ours and b"schedule" not in read(pid, "cmdline")]

    def leader(self) -> bool:
        """Say whether the last command that was started holds the directory."""
        try:
            return (self.directory / "lock").read_text() == str(self.running[-1].pid)
        except FileNotFoundError:
            return False

    def states(self) -> list[str]:
        """Return what supervisors have written down of their ranks."""
        return [str(load_state(path.parent).run.state) for path in self.directory.glob("jobs/*/*/state")]

    def groups(self) -> list[str]:
        """Return the control groups that supervisors may have made."""
        directories = [path for path in self.directory.glob("jobs/*/*/") if path.is_dir()]
        names = ["beamer-" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12] for path in directories]
        return [path for name in names for _, path in candidates(name) if path]

    def allocations(self) -> list[Allocated]:
        with closing(Journal(f"sqlite:///{self.directory}/journal.db", writes=False)) as journal:
            return [event for event in journal.replay() if isinstance(event, Allocated)]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[ScheduleCommand]:
    made = ScheduleCommand(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()
    if made.jobs():
        made.run("fifo", "--stop")
    until(lambda: not of_directory(tmp_path), "all processes to be gone")
    assert not [group for group in made.groups() if Path(group).exists()], "control groups are left"


@pytest.mark.parametrize("policy", long("hermes", "round-robin"))
def test_a_search_of_more_configurations_than_gpus_trains_them_all(command: ScheduleCommand, policy: str) -> None:
    command.search(60)
    done = command.run(policy)
    assert done.returncode == 0, done.stderr
    until(lambda: not command.jobs(), "supervisors to leave")
    rows = command.figures()
    assert set(rows) == set(RATES)
    for name in RATES:
        command.check_steps(name, 60)
        assert rows[name]["status"] == "finished"
        assert rows[name]["iterations"] == 60
        assert rows[name]["service_s"] > 0
    assert min(rows, key=lambda name: rows[name]["loss"]) in "def", "those that learn have the least loss"
    assert max(rows, key=lambda name: rows[name]["loss"]) in "ab"
    assert f"s under {policy}" in done.stdout
    again = command.run(policy)
    assert again.returncode == 0
    assert len(again.stdout.splitlines()) < len(done.stdout.splitlines()), "nothing is left to do"
    command.check_steps("a", 60)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory whose packages the commands find."""
    directory = tmp_path / "packages"
    directory.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{directory}:{ROOT}")
    return directory


def test_the_documented_policy_schedules_by_its_name(command: ScheduleCommand, packages: Path) -> None:
    (name,) = install("Your own GPU policy", packages)
    command.search(5)
    done = command.run(name)
    assert done.returncode == 0, done.stderr
    until(lambda: not command.jobs(), "supervisors to leave")
    assert {row["status"] for row in command.figures().values()} == {"finished"}
    assert {allocated.policy for allocated in command.allocations()} == {name}


@pytest.mark.long
def test_a_policy_that_fails_is_printed_once_and_its_last_decision_stays(command: ScheduleCommand, packages: Path) -> None:
    (packages / "flawed.py").write_text(FLAWED)
    register("flawed", "beamer.gpu_policies", {"flawed": "flawed:Flawed"}, packages)
    command.search(10)
    done = command.run("flawed")
    assert done.returncode == 0, done.stderr
    until(lambda: not command.jobs(), "supervisors to leave")
    line = "policy flawed failed, the old decision stays in force: ValueError: [reports] are too hard\n"
    assert done.stderr.startswith(line)
    assert done.stderr.count(line) == done.stderr.count("Traceback") == 1
    for name in RATES:
        command.check_steps(name, 10)


def test_a_command_killed_in_the_middle_goes_on(command: ScheduleCommand) -> None:
    command.search(80)
    for enough in (10, 50):
        command.hold(enough)
        process = command.start("round-robin")
        until(command.leader, "the command to hold the directory")  # jobs that one before it left run on without it
        until(lambda enough=enough: len(command.steps("a")) >= enough, f"{enough} steps")  # type: ignore[misc]
        refused = command.run("round-robin")
        assert refused.returncode == 2
        assert f"no other command uses: process {process.pid}" in refused.stderr
        process.kill()
        process.wait()
        assert command.jobs(), "supervisors go on"
    command.release()
    done = command.run("round-robin")
    assert done.returncode == 0, done.stderr
    for name in RATES:
        command.check_steps(name, 80)
        assert command.figures()[name]["status"] == "finished"
    until(lambda: not command.jobs(), "supervisors to leave")
    generations = [allocated.generation for allocated in command.allocations()]
    assert generations == list(range(1, len(generations) + 1))


@pytest.mark.parametrize("sign", long(signal.SIGTERM, signal.SIGINT))
def test_an_interrupted_command_saves_its_jobs_and_goes_on_later(command: ScheduleCommand, sign: signal.Signals) -> None:
    command.search(80)
    command.hold(40)
    process = command.start("round-robin")
    until(command.started, "all to have started")
    os.kill(process.pid, sign)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + sign
    assert "run the same command again" in output
    assert command.jobs() == [], "neither ranks nor supervisors are left"
    rows = command.figures().values()
    assert {row["status"] for row in rows} == {"waiting"}
    assert sum(row["suspensions"] > 0 for row in rows) >= len(RATES) - 2, "all but two have left their GPUs to others"
    assert command.allocations()[-1].grants == {}
    command.release()
    assert command.run("hermes").returncode == 0, "another policy may go on"
    for name in RATES:
        command.check_steps(name, 80)


@pytest.mark.long
def test_a_command_whose_output_nobody_reads_saves_its_jobs(command: ScheduleCommand) -> None:
    command.search(80)
    command.hold(40)
    process = command.start("round-robin")
    assert process.stdout is not None
    until(command.started, "all to have started")
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGPIPE
    assert command.jobs() == []
    assert {row["status"] for row in command.figures().values()} == {"waiting"}
    process.stdout = None
    command.release()
    assert command.run("round-robin").returncode == 0
    for name in RATES:
        command.check_steps(name, 80)


def test_what_a_killed_command_left_is_saved_and_ended_on_request(command: ScheduleCommand) -> None:
    command.search(80, prepare=False)  # One that was started ahead has nothing to save.
    command.hold(40)
    process = command.start("round-robin")
    until(command.started, "all to have started")
    process.kill()
    process.wait()
    left = command.jobs()
    assert not works("cgroup2") or any(Path(group).exists() for group in command.groups())
    assert len(left) >= len(RATES), "a supervisor each"
    done = command.run("round-robin", "--stop")
    assert done.returncode == 0, done.stderr
    assert command.jobs() == []
    assert len(list((command.directory / "checkpoints").iterdir())) == len(RATES)


@pytest.mark.long
def test_nodes_may_go_when_nothing_is_left_on_them(command: ScheduleCommand) -> None:
    command.search(60)
    command.hold(20)
    process = command.start("fifo")
    until(lambda: command.steps("a") and command.steps("b"), "two to have started")
    process.kill()
    process.wait()
    there = [{"name": "there", "gpus": 2}]
    command.search(60, nodes=there)
    refused = command.run("fifo")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "nodes: got ['there'], expected 'here' among them, as a supervisor of s/a may be there" in line
    stop = [sys.executable, "-m", "beamer.cli", "schedule", "--dir", str(command.directory), "--stop"]
    assert subprocess.run(stop, capture_output=True, timeout=TIMEOUT_S).returncode == 0
    assert command.jobs() == []
    command.release()
    done = command.run("fifo")
    assert done.returncode == 0
    until(lambda: not command.jobs(), "supervisors to leave")
    for name in RATES:
        command.check_steps(name, 60)
        assert command.figures()[name]["status"] == "finished"


def test_a_configuration_that_fails_is_reported_and_the_rest_finishes(command: ScheduleCommand) -> None:
    wrapper = command.root / "wrapper.py"
    wrapper.write_text(FAILING)
    rungs = [{"iterations": 20, "keep": 2}, {"iterations": 40}]
    command.search(0, program=(str(wrapper), "{name}"), rungs=rungs)
    done = command.run("hermes")
    assert done.returncode == 3, done.stderr
    assert "s/c failed: here: rank 0 exited with code 3" in done.stderr.replace("\n", " ")
    rows = command.figures()
    assert rows["c"]["status"] == "failed"
    assert rows["c"]["failures"] == 1 + 2, "it was started again as often as searches are by default"
    assert rows["c"]["reason"] == "here: rank 0 exited with code 3"
    assert "c failed 3 times, the last time: here: rank 0 exited with code 3" in done.stdout
    assert rows["c"]["rung"] == "rung0", "it goes no further, however small its loss was"
    kept = {name for name, row in rows.items() if row["rung"] == "rung1"}
    assert len(kept) == 2
    assert {name for name, row in rows.items() if row["status"] == "finished"} == kept
    assert {name for name, row in rows.items() if row["status"] == "killed"} == set(RATES) - kept - {"c"}
    for name in set(RATES) - {"c"}:
        command.check_steps(name, 40 if name in kept else 20)


def test_a_rung_keeps_the_best_which_go_on_from_their_checkpoints(command: ScheduleCommand) -> None:
    command.search(0, rungs=[{"iterations": 30, "keep": 2}, {"iterations": 60, "keep": 1}, {"iterations": 90}])
    done = command.run("hermes")
    assert done.returncode == 0, done.stderr
    rows = command.figures()
    by_rung = {f"rung{i}": [name for name in rows if rows[name]["rung"] == f"rung{i}"] for i in range(3)}
    assert [len(by_rung[rung]) for rung in ("rung0", "rung1", "rung2")] == [4, 1, 1]
    worst_kept = max(_loss(command, name, 30) for name in (*by_rung["rung1"], *by_rung["rung2"]))
    assert all(_loss(command, name, 30) >= worst_kept for name in by_rung["rung0"])
    for rung, iterations in (("rung0", 30), ("rung1", 60), ("rung2", 90)):
        for name in by_rung[rung]:
            command.check_steps(name, iterations)


@pytest.mark.long
def test_a_program_is_told_whose_it_is_in_every_rung(command: ScheduleCommand) -> None:
    program = command.root / "named.py"
    program.write_text(
        "import os, runpy\n"
        'given = [os.environ[f"BEAMER_{what}"] for what in ("STUDY", "TRIAL", "STAGE")]\n'
        f'print(*given, file=open({str(command.root / "given")!r}, "a"))\n'
        'runpy.run_module("beamer.testing.trainer", run_name="__main__", alter_sys=True)\n'
    )
    command.search(0, program=(str(program),), rungs=[{"iterations": 10, "keep": 1}, {"iterations": 20}])
    done = command.run("fifo")
    assert done.returncode == 0, done.stderr
    given = [tuple(line.split()) for line in (command.root / "given").read_text().splitlines()]
    (kept,) = (name for name, row in command.figures().items() if row["rung"] == "rung1")
    assert set(given) == {("s", name, "rung0") for name in command.figures()} | {("s", kept, "rung1")}


def _loss(command: ScheduleCommand, name: str, iteration: int) -> float:
    """Return what a configuration printed at an iteration, whichever rung that was in."""
    for path in (command.directory / "jobs").glob(f"s_{name}-*/*/output"):
        for line in path.read_text().splitlines():
            report = json.loads(line)
            if report["iteration"] == iteration:
                return float(report["loss"])
    raise AssertionError(f"{name} reported nothing at {iteration}")


def test_a_search_ends_when_its_target_is_reached(command: ScheduleCommand) -> None:
    command.search(100_000, pause_s=0.005, target_loss=0.6, stop_at_target=True)
    done = command.run("hermes")
    assert done.returncode == 0, done.stderr
    until(lambda: not command.jobs(), "supervisors to leave")
    rows = command.figures()
    reached = [name for name, row in rows.items() if row["status"] == "reached"]
    assert reached
    assert {row["status"] for row in rows.values()} == {"reached", "killed"}
    for name in reached:
        assert (command.directory / "checkpoints" / name).exists(), "what was looked for is kept"
        assert rows[name]["best_loss"] <= 0.6


def test_what_is_not_saved_upon_an_interruption_is_named(command: ScheduleCommand) -> None:
    command.search(100_000, program=command.stubborn("signal.SIG_DFL"))
    process = command.start("fifo")
    until(lambda: command.states() == ["running"] * 2, "two to have started")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGINT
    for name in "ab":
        assert output.replace("\n", " ").count(f"s/{name}: here: its ranks exited with [-15]") == 1


@pytest.mark.long
def test_signals_hurry_a_command_that_saves_what_has_reached_its_target(command: ScheduleCommand) -> None:
    command.search(100_000, program=command.stubborn("signal.SIG_IGN"), grace_s=3600, target_loss=0.5, stop_at_target=True)
    process = command.start("fifo")
    until(lambda: "stopping" in command.states(), "one to be saved")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGINT
    assert "has reached the target" in output
    assert "not every job is saved" in output
    for pid in command.jobs():
        if b"stubborn.py" in read(pid, "cmdline"):
            os.kill(pid, signal.SIGKILL)
