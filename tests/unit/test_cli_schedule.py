"""Searches of real processes: files, directories, parameters, and what survives the death of the command."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from beamer.engines.base import Observed, Placement, RunState
from beamer.engines.local import LaunchSpec, LocalNode, NetworkNamespace, Ssh
from beamer.engines.local.record import Phase, Record
from beamer.engines.local.retire import retire
from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import InputError
from beamer.events import Allocated, Event, JobEnded, JobReported, JobSubmitted, NodesSeen, StageSealed
from beamer.gpu.model import Cluster, Costs, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.gpu.policies.hermes import Hermes
from beamer.gpu.tuners import Halving
from beamer.model import JobStatus, Rung
from beamer.schedule.command import policy_of, schedule
from beamer.schedule.file import Search, load, parse, shipped
from beamer.schedule.place import Place
from beamer.schedule.report import document, rows
from beamer.schedule.session import Session
from beamer.schedule.tally import Counts, Tally
from beamer.schedule.template import filled
from beamer.store import Journal
from beamer.testing.gpu import Exponential

SEARCH: dict[str, Any] = {
    "name": "s",
    "nodes": [{"name": "n", "gpus": 2}],
    "job": {
        "command": ["{python}", "train.py", "--lr", "{lr}", "--until", "{iterations}", 7],
        "cwd": "code",
        "env": {"OUT": "{name}.log", "THREADS": 1},
        "request": {"iterations": 20, "gpus": 1, "epoch": 2, "batch_size": "{batch}"},
    },
    "configurations": [{"lr": 0.1, "batch": 32}, {"name": "slow", "lr": 0.001, "batch": 64}],
}
BASE = Path("/base")


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    data = deepcopy(SEARCH)
    change(data)
    return data


def test_a_template_is_filled_for_every_configuration() -> None:
    search = parse(SEARCH, BASE)
    assert [trial.name for trial in search.trials] == ["lr-0.1_batch-32", "slow"]
    task = search.tasks[0, "slow"]
    assert task.launch.command == (sys.executable, "train.py", "--lr", "0.001", "--until", "20", "7")
    assert task.launch.cwd == "/base/code"
    assert dict(task.launch.env) == {"OUT": "slow.log", "THREADS": "1"}
    assert task.request == Request(iterations=20, epoch=2, batch_size=64)
    assert (task.launch.batch_size, task.launch.iterations, task.launch.every) == (64, 20, 2)


def test_rungs_count_from_the_start_and_share_a_configurations_checkpoint(tmp_path: Path) -> None:
    data = changed(lambda d: d.update(rungs=[{"iterations": 5, "keep": 1}, {"iterations": 15}]))
    del data["job"]["request"]["iterations"]
    search = parse(data, BASE)
    assert search.rungs == (Rung("rung0", 2, 5), Rung("rung1", 1, 15))
    first, second = (search.launch(f"s/rung{i}/slow", tmp_path) for i in range(2))
    assert first.checkpoint == second.checkpoint == str(tmp_path / "checkpoints" / "slow")
    assert first.command[5] == "5"
    assert second.command[5] == "15"
    assert search.launch("s/rung0/lr-0.1_batch-32", tmp_path).checkpoint != first.checkpoint


def test_a_grid_is_all_combinations() -> None:
    data = changed(lambda d: d.update(grid={"lr": [1, 2], "batch": [8, 16, 32]}))
    del data["configurations"]
    search = parse(data, BASE)
    assert len(search.trials) == 6
    assert {(trial.values["lr"], trial.values["batch"]) for trial in search.trials} == {
        (a, b) for a in (1, 2) for b in (8, 16, 32)
    }


def test_nodes_are_reached_as_they_say() -> None:
    nodes = [
        {"name": "a", "gpus": 2, "launcher": {"kind": "ssh", "host": "a.lan", "options": ["-p", "22"]}, "devices": ["3", "5"]},
        {"name": "b", "gpus": 1, "launcher": {"kind": "namespace", "name": "net"}, "cpus": 4},
    ]
    search = parse(changed(lambda d: d.update(nodes=nodes)), BASE)
    assert search.cluster.nodes == (
        LocalNode("a", 2, devices=("3", "5"), launcher=Ssh("a.lan", ("-p", "22"))),
        LocalNode("b", 1, cpus=4.0, launcher=NetworkNamespace("net")),
    )


def set_job(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda d: d["job"].update({key: value})


def set_request(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda d: d["job"]["request"].update({key: value})


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        (lambda d: d.update(ndoes=1), "ndoes", "did you mean 'nodes'"),
        (lambda d: d["nodes"][0].update(gpu=1), r"nodes\[0\]\.gpu", "did you mean 'gpus'"),
        (lambda d: d["nodes"].append({"name": "n", "gpus": 1}), "nodes", "names that differ"),
        (lambda d: d["nodes"][0].update(launcher={"kind": "shs"}), r"nodes\[0\]\.launcher\.kind", "did you mean 'ssh'"),
        (lambda d: d["nodes"][0].update(launcher={"kind": "ssh", "hst": "a"}), r"nodes\[0\]\.launcher\.hst", "'host'"),
        (lambda d: d["nodes"][0].update(launcher={"kind": "ssh"}), r"nodes\[0\]\.launcher\.host", "required"),
        (set_job("comand", []), r"job\.comand", "did you mean 'command'"),
        (set_job("command", ["a", "{lrr}"]), r"job\.command\[1\]", "did you mean 'lr'"),
        (set_job("command", ["{"]), r"job\.command\[0\]", "other braces doubled"),
        (set_job("env", {"A": "{iteration}"}), r"job\.env\.A", "did you mean 'iterations'"),
        (set_job("stop_signal", "SIGTREM"), r"job\.stop_signal", "the name of a signal"),
        (set_job("stop_signal", "SIGKILL"), r"job\.stop_signal", "can handle"),
        (set_job("progress", r"(?P<los>\d+)"), r"job\.progress group 'los'", "did you mean 'loss'"),
        (set_job("checkpoint", "ck"), r"job\.checkpoint", r"\{name\}"),
        (set_request("gpsu", 1), r"job\.request\.gpsu", "did you mean 'gpus'"),
        (set_request("gpus", 0), r"job\.request\.gpus", "at least 1"),
        (set_request("gpus", 3), r"job\.request", "2 GPUs in all"),
        (set_request("batch_size", "{lr}"), r"job\.request\.batch_size", "integer"),
        (set_request("target_loss", 1.0), r"job\.request\.target_loss", "the search's"),
        (set_request("servers", True), r"job\.request\.servers", "not launched"),
        (lambda d: d["job"]["request"].pop("iterations"), r"job\.request\.iterations", "required"),
        (lambda d: d.update(rungs=[{"iterations": 5}]), r"job\.request\.iterations", "that of the rungs"),
        (lambda d: d.update(grid={"lr": [1]}), "configurations", "a grid in its place"),
        (lambda d: d.pop("configurations"), "configurations", "a grid in its place"),
        (lambda d: d["configurations"].append({"name": "slow"}), r"configurations\[2\]", "no other has"),
        (lambda d: d["configurations"][0].update(iterations=3), r"configurations\[0\]", "none of iterations"),
        (lambda d: d["configurations"][0].update(lr=None), r"configurations\[0\]\.lr", "a text, a number"),
        (lambda d: d.update(configurations=None, grid={"lr": [1, [2]]}), r"grid\.lr\[1\]", "a text, a number"),
        (lambda d: d.update(stop_at_target=True), "stop_at_target", "no target_loss"),
        (lambda d: d.update(group="cgroup3"), "group", "cgroup2"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": 3}, {"iterations": 9}]), r"rungs\[0\]\.keep", "1 to 2"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": 1}, {"iterations": 5}]), r"rungs\[1\]\.iterations", "above 5"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": 1}]), r"rungs\[0\]\.keep", "last rung"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named(change: Callable[[dict[str, Any]], Any], field: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: got .*{expected}"):
        parse(changed(change), BASE)


def test_the_shipped_search_is_one() -> None:
    search = load(shipped())
    assert len(search.trials) > search.cluster.nodes[0].gpus
    assert len(search.rungs) > 1


def test_braces_are_doubled() -> None:
    assert filled('{{"a": {lr}}}', {"lr": 3}, "f") == '{"a": 3}'


def test_policy_parameters_are_parsed_as_their_fields_types() -> None:
    assert policy_of("hermes", ["window=3", "norm=largest", "hysteresis=2e-1"]) == Hermes(3, "largest", 0.2)
    assert policy_of("ones", ["learn=false"]).learn is False  # type: ignore[attr-defined]  # a field of that policy


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("hermez", "window=3", "^policy: got 'hermez'.*did you mean 'hermes'"),
        ("hermes", "windw=3", r"^hermes\.windw: got '3'.*did you mean 'window'"),
        ("hermes", "window=x", r"^hermes\.window: got 'x'.*integer"),
        ("hermes", "window=0", r"^hermes\.window: got 0, expected at least 1"),
        ("hermes", "window", "^--set: got 'window', expected NAME=VALUE"),
        ("round-robin", "quantum_s=0", r"^round-robin\.quantum_s: got 0\.0, expected a finite number above 0"),
        ("slaq", "epoch_s=nan", r"^slaq\.epoch_s: got nan, expected a finite number above 0"),
        ("optimus", "servers_per_gpu=inf", r"^optimus\.servers_per_gpu: got inf"),
        ("srtf", "hysteresis=-1", r"^srtf\.hysteresis: got -1\.0, expected at least 0"),
        ("fifo", "window=3", r"^fifo\.window: got '3', expected no parameter"),
        ("hermes", "name=x", r"^hermes\.name: got 'x', expected one of .*window"),
        ("elastic", "resizes=true", r"^elastic\.resizes: got 'true', expected "),
        ("hermes", "State=3", r"^hermes\.State: got '3', expected one of .*window"),
    ],
)
def test_a_wrong_policy_parameter_is_named(name: str, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        policy_of(name, [setting])


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "beamer.cli", "schedule", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_bad_input_ends_in_one_line_with_the_file_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(yaml.safe_dump(changed(set_request("gpus", 9))))
    done = run(str(file), "--dir", str(tmp_path / "dir"))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"beamer: {file}: job.request: got ")
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("[" * 20_000)
    with pytest.raises(InputError, match=f"search: got '{file}', expected YAML that is not nested as deeply"):
        load(file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"json_file": "{}/no/such/f.json"}, "--json: got '{0}/no/such/f.json', expected .*: {0}/no/such does not"),
        ({"journal": "sqlite:///{}/no/x.db"}, "--journal: got 'sqlite:///{0}/no/x.db', expected .*: {0}/no does not"),
        ({"journal": "sqlite:///:memory:"}, "--journal: got 'sqlite:///:memory:', expected a file's path"),
        ({"journal": "sqlite://"}, "--journal: got 'sqlite://', expected a file's path"),
        ({"journal": "sqlite:///file:x?mode=memory&uri=true"}, "--journal: got .*, expected a file's path"),
        ({"journal": "x.db"}, "--journal: got 'x.db', expected a database URL"),
    ],
)
def test_what_cannot_be_written_or_would_not_last_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    types = {"json_file": Path, "journal": str}
    given: dict[str, Any] = {name: types[name](value.format(tmp_path)) for name, value in arguments.items()}
    with pytest.raises(InputError, match=message.format(tmp_path)):
        schedule(directory=tmp_path / "dir", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["f1?x", "a%41#b", "plain"])
def test_all_of_a_search_lies_in_its_directory_whatever_its_name(tmp_path: Path, name: str) -> None:
    with Place(tmp_path / name) as place, closing(Journal(place.journal)) as journal:
        journal.append(NodesSeen(0.0, ()))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {"journal.db", "journal.db.lock", "lock"} <= {path.name for path in (tmp_path / name).iterdir()}
    with Place(tmp_path / name) as place, closing(Journal(place.journal)) as journal:
        assert list(journal.replay()) == [NodesSeen(0.0, ())]


def test_nothing_is_stopped_where_nothing_was_begun(tmp_path: Path) -> None:
    done = run("--dir", str(tmp_path / "dir"), "--stop")
    assert done.returncode == 2
    assert "a directory in which a search was begun" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_place_is_held_by_one_command_at_a_time(tmp_path: Path) -> None:
    journal = f"sqlite:///{tmp_path}/j.db"
    with Place(tmp_path / "a", journal):
        with pytest.raises(InputError, match=r"--dir: got .*no other command uses: process"), Place(tmp_path / "a"):
            pass
        with (
            pytest.raises(InputError, match=r"--journal: got .*no other command uses: process"),
            Place(tmp_path / "b", journal),
        ):
            pass
    with Place(tmp_path / "a", journal):
        pass


def test_a_place_goes_on_with_the_search_that_was_begun_there_alone(tmp_path: Path) -> None:
    search = parse(SEARCH, BASE)
    with Place(tmp_path) as place:
        assert place.begun() is None
        with pytest.raises(InputError, match=r"--dir: got .*the journal holds"):
            place.begin(search, journal_holds=True)
        place.begin(search, journal_holds=False)
        assert place.begun() == search
        moved = parse(changed(lambda d: d["nodes"][0].update(gpus=3)), BASE)
        place.begin(moved, journal_holds=True)
        assert place.begun() == moved
        with pytest.raises(InputError, match=r"^job: got .*was begun"):
            place.begin(parse(changed(set_request("epoch", 5)), BASE), journal_holds=True)
        (tmp_path / "jobs" / "one").mkdir(parents=True)
        with pytest.raises(InputError, match=r"--journal: got .*the journal of the search"):
            place.begin(moved, journal_holds=False)


def recorded(directory: Path, node: str, nodes: tuple[str, ...]) -> Path:
    """Write down a job as the engine does that runs on a node and may have supervisors on others."""
    path = directory / "jobs" / "one" / "job"
    path.parent.mkdir(parents=True)
    Record("s/rung0/slow", LaunchSpec(("true",)), Placement(((node, 0),)), nodes, Phase.PARKED).save(path)
    return path


def test_nodes_with_supervisors_of_a_search_stay_where_they_are(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.begin(parse(SEARCH, BASE), journal_holds=False)
        recorded(tmp_path, "n", ("n",))
        renamed = parse(changed(lambda d: d["nodes"][0].update(name="m")), BASE)
        with pytest.raises(InputError, match=r"^nodes: got \['m'\], expected 'n' among them.*s/rung0/slow.*--stop without"):
            place.begin(renamed, journal_holds=True)
        moved = parse(changed(lambda d: d["nodes"][0].update(root="/elsewhere")), BASE)
        with pytest.raises(InputError, match=r"^nodes\.n\.root: got '/elsewhere', expected ''.*--stop without"):
            place.begin(moved, journal_holds=True)
        assert place.begun() == parse(SEARCH, BASE), "what --stop goes by"
        place.begin(parse(changed(lambda d: d["nodes"].append({"name": "m", "gpus": 1})), BASE), journal_holds=True)


def test_nodes_that_no_supervisor_is_left_on_may_go(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.begin(parse(SEARCH, BASE), journal_holds=False)
        path = recorded(tmp_path, "n", ("n",))
        assert retire(parse(SEARCH, BASE).cluster, tmp_path / "jobs") == [], "none answers: none is there"
        assert path.exists(), "what is known of the job stays"
        place.begin(parse(changed(lambda d: d["nodes"][0].update(name="m")), BASE), journal_holds=True)


@pytest.mark.parametrize("content", ["{}", "[1]", "{", '{"spec": {}}'])
def test_a_job_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    with Place(tmp_path) as place:
        place.begin(parse(SEARCH, BASE), journal_holds=False)
        path = recorded(tmp_path, "n", ())
        path.write_text(content)
        with pytest.raises(InputError, match=f"^--dir: got '{path}', expected what this command has written there of a job"):
            place.begin(parse(SEARCH, BASE), journal_holds=True)


@pytest.mark.parametrize(("name", "expected"), [("jobs", "a directory"), ("checkpoints", "a directory"), ("lock", "a file")])
def test_what_is_in_the_way_in_a_place_is_named(tmp_path: Path, name: str, expected: str) -> None:
    if name == "lock":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with (
        pytest.raises(InputError, match=f"^--dir: got '{tmp_path / name}', expected {expected} that can be written"),
        Place(tmp_path) as place,
    ):
        place.begin(parse(SEARCH, BASE), journal_holds=False)


def test_a_truncated_search_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "search").write_text('{"base": "/base", "cont')
    for stop in (False, True):
        with pytest.raises(InputError, match=f"--dir: got '{tmp_path / 'search'}', expected what this command has written"):
            schedule(directory=tmp_path, stop=stop)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("content", ["[1]", "{}", "{", '{"base": 1, "content": {}}'])
def test_a_place_in_which_others_have_written_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "search").write_text(content)
    with Place(tmp_path) as place, pytest.raises(InputError, match=r"--dir: got .*what this command has written"):
        place.begun()


def test_trials_that_failed_go_no_further() -> None:
    rungs = (Rung("r0", 3, 5), Rung("r1", 2, 10), Rung("r2", 1, 20))
    tuner: Halving[str] = Halving("s", rungs, lambda trial, rung, at_s: f"{rung}/{trial}")
    assert tuner.first(["a", "b", "c"]) == ["0/a", "0/b", "0/c"]
    for trial, loss in (("a", 0.1), ("b", 0.5), ("c", float("nan"))):
        assert not list(tuner.judge(JobReported(0.0, f"s/r0/{trial}", Report(0.0, 5, loss, 1.0))))
    assert not list(tuner.judge(JobEnded(1.0, "s/r0/a", JobStatus.FAILED)))
    assert not list(tuner.judge(JobEnded(2.0, "s/r0/c", JobStatus.FAILED)))
    assert list(tuner.judge(JobEnded(3.0, "s/r0/b", JobStatus.FINISHED))) == [StageSealed(3.0, "s", "r0"), "1/b"]
    assert not tuner.done
    assert list(tuner.judge(JobEnded(4.0, "s/r1/b", JobStatus.FAILED))) == [StageSealed(4.0, "s", "r1")]
    assert tuner.done, "nobody is left for the last rung"


def test_a_tally_counts_what_moves_and_what_was_parked() -> None:
    tally = Tally()

    def allocate(number: int, **grants: str) -> None:
        given = {f"s/r/{job}": Grant.of({node: 1}) for job, node in grants.items()}
        tally.note(Allocated(float(number), "p", number, None, given))

    tally.note(NodesSeen(0.0, (Node("m", 1), Node("n", 1))))
    for job in "ab":
        tally.note(JobSubmitted(0.0, "s", "r", job, Request(iterations=1)))
    allocate(1, a="m", b="n")
    allocate(2, a="m")
    allocate(3, a="m", b="n")
    assert tally.counts == {"s/r/a": Counts(), "s/r/b": Counts(1, 0)}, "b was resumed where it was"
    allocate(4, a="n")
    assert tally.counts == {"s/r/a": Counts(0, 1), "s/r/b": Counts(2, 0)}
    allocate(5)
    allocate(6, a="n", b="m")
    assert tally.counts == {"s/r/a": Counts(1, 2), "s/r/b": Counts(2, 1)}, "what was parked has no memory to go on with"
    assert tally.decisions == 6


FLOORS = {"a": 0.5, "b": 0.1, "c": 0.7, "d": 0.3, "e": 0.9}


def halving(**keys: Any) -> Search:
    data = changed(lambda d: d.update(configurations=[{"name": name} for name in FLOORS], **keys))
    data["job"]["command"] = ["true"]
    data["job"]["request"] = {"epoch": 2}
    data["rungs"] = [{"iterations": 6, "keep": 3}, {"iterations": 12, "keep": 1}, {"iterations": 30}]
    return parse(data, BASE)


def long_runs(**keys: Any) -> Search:
    data = changed(lambda d: d.update(configurations=[{"name": name} for name in FLOORS], **keys))
    data["job"]["command"] = ["true"]
    data["job"]["request"] = {"epoch": 2, "iterations": 1000}
    return parse(data, BASE)


class Killed(Exception):
    pass


class Commands:
    """A command on a simulated cluster that is killed before or after any event, and run again."""

    def __init__(self, search: Search, policy: str, seed: int = 0) -> None:
        self.search, self.policy = search, policy
        work = {
            f"s/{rung.name}/{name}": SimulatedJob(search.tasks[i, name].request, Exponential(floor, 0.3), Costs(0.1, 0.1, 0.5))
            for i, rung in enumerate(search.rungs)
            for name, floor in FLOORS.items()
        }
        self.engine = SimulatedCluster([Node("n", 2)], work)
        self.journal: list[Event] = []
        self.rng = Random(seed)
        self.kill_in = 10**9
        self.kills = 0

    def write(self, event: Event) -> None:
        self.kill_in -= 1
        if self.kill_in or self.rng.random() < 0.5:  # it dies after the event is durable, or before
            self.journal.append(event)
        if not self.kill_in:
            raise Killed

    def run(self, killed: bool) -> Session:
        while True:
            if killed:
                self.kill_in = self.rng.randint(1, 12)
            try:
                session = self.life()
            except Killed:
                self.kills += 1
            else:
                self.kill_in = 10**9
                return session

    def life(self) -> Session:
        policy = policy_of(self.policy, ["quantum_s=3"] if self.policy == "round-robin" else [])
        session = Session(
            self.search, policy, self.engine, tuple(self.journal), self.write, clock=lambda: self.engine.now, patience_s=2.0
        )
        session.begin(self.engine.now)
        while not session.done:
            wake_s = session.step(self.engine.now)
            if wake_s is None or wake_s > self.engine.now:
                self.engine.advance(min(self.engine.next_s(), float("inf") if wake_s is None else wake_s))
        return session


@pytest.mark.parametrize("policy", ["hermes", "round-robin", "convergence"])
def test_a_command_killed_at_any_event_keeps_the_best(policy: str) -> None:
    plain = Commands(halving(), policy)
    expected = plain.run(killed=False)
    for seed in range(3):
        commands = Commands(halving(), policy, seed)
        session = commands.run(killed=True)
        assert commands.kills > 10
        assert session.settle()
        ended = session.tracker.ledger.ended
        assert set(ended) == set(expected.tracker.ledger.ended)
        assert [key for key in ended if "/rung2/" in key] == ["s/rung2/b"]
        assert {key for key in ended if "/rung1/" in key} == {"s/rung1/a", "s/rung1/b", "s/rung1/d"}
        for kind in (JobSubmitted, JobEnded):
            told = [event for event in commands.journal if isinstance(event, kind)]
            assert len(told) == 5 + 3 + 1, "each once"
        found = rows(commands.search, session.tracker.ledger, session.tally, commands.engine.now)
        assert [row.name for row in found] == ["b", "d", "a", "c", "e"]
        assert [row.iterations for row in found] == [30, 12, 12, 6, 6]
        assert all(row.service_s > 0 for row in found)


@pytest.mark.parametrize("killed", [False, True])
def test_a_search_that_is_to_stop_at_its_target_does(killed: bool) -> None:
    commands = Commands(halving(target_loss=0.35, stop_at_target=True), "round-robin")
    session = commands.run(killed)
    assert session.settle()
    reached = {
        key for key, end in session.tally.ends.items() if end.status is JobStatus.FINISHED and key in session.tally.reached
    }
    assert reached
    later = [report for key in reached for report in session.tracker.ledger.ended[key].reports if report.loss <= 0.35]
    assert later
    live = [key for key, seen in commands.engine.report().items() if seen.state is not RunState.FINISHED]
    assert live == []
    assert all(not key.startswith("s/rung2/") for key in session.tally.ends), "nothing was begun after it"
    figures = document(commands.search, "round-robin", [], session.tally, 0.0, commands.engine.now)
    assert 0 < figures["target_reached_s"] <= figures["elapsed_s"]


class SlowToPark(SimulatedCluster):
    """A cluster whose jobs go on for a while when they are to be parked. stopping: since when."""

    PARK_S = 7.0

    def __init__(self, nodes: Sequence[Node], jobs: Mapping[str, SimulatedJob]) -> None:
        super().__init__(nodes, jobs)
        self.stopping: dict[str, float] = {}

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        if placement is None:
            self.stopping.setdefault(job, self.now)
        else:
            super().resize(job, placement, timeout_s)

    def report(self) -> Mapping[str, Observed]:
        for key, since_s in self.stopping.items():
            if self.now >= since_s + self.PARK_S:
                super().resize(key, None)
        found = super().report()
        moving = {key for key in self.stopping if found[key].state is RunState.RUNNING}
        return {key: replace(one, state=RunState.STOPPING) if key in moving else one for key, one in found.items()}


def test_jobs_that_are_saved_at_the_target_are_heard_on_the_way_and_the_others_are_killed_at_once() -> None:
    commands = Commands(long_runs(target_loss=0.35, stop_at_target=True), "fifo")
    slow = commands.engine = SlowToPark([Node("n", 2)], commands.engine.jobs)
    session = commands.run(killed=False)
    (first_s, *_) = (report.at_s for report in session.tally.reached.values())
    assert set(slow.stopping) == set(session.tally.reached), "only what has reached the target is saved"
    ends = session.tally.ends
    killed = [key for key in ends if ends[key].status is JobStatus.KILLED]
    assert killed
    assert {ends[key].at_s for key in killed} == {first_s}
    for key in session.tally.reached:
        assert ends[key].at_s >= first_s + slow.PARK_S
        assert session.tracker.ledger.ended[key].reports[-1].at_s > first_s


class Remarking(SimulatedCluster):
    """A cluster that has something to say about every job."""

    def report(self) -> Mapping[str, Observed]:
        return {key: replace(one, exit="a remark") for key, one in super().report().items()}


def test_what_an_engine_remarks_is_told_once_and_calls_no_finished_job_failed(caplog: pytest.LogCaptureFixture) -> None:
    commands = Commands(halving(), "round-robin")
    commands.engine = Remarking([Node("n", 2)], commands.engine.jobs)
    session = commands.run(killed=False)
    assert sorted(caplog.messages) == sorted(f"{key}: a remark" for key in session.tally.ends)


@pytest.mark.parametrize("target", [None, 0.5])
@pytest.mark.parametrize("name", GPU_POLICIES)
def test_policies_decide_on_jobs_that_have_done_all_and_are_still_there(name: str, target: float | None) -> None:
    cluster = Cluster((Node("n", 1),))
    held = Grant.of({"n": 1})

    def job(number: int, done: float, loss: float) -> Job:
        request = Request(iterations=40, epoch=2, batch_size=64, target_loss=target)
        reports = tuple(Report(i, done * i / 20, 2.0 - (2.0 - loss) * i / 20, i) for i in range(21)) if done else ()
        speeds = (Speed(1, 1, 0, 64, 0.02),) if done else ()
        grant = None if number else held
        return Job(f"s/r/{number}", request, 0.0, Stage("s", "r", 6, 2), reports, speeds, grant, grant)

    facts = [(40, 0.5), (20, 0.8), (0, 0.0), (40, 1.5), (45, 0.1), (10, 0.9), (40, 0.4), (41, 0.3), (40, 0.2)]
    jobs = [job(number, *fact) for number, fact in enumerate(facts)]
    policy = gpu_policy(name)
    _, allocation, _ = policy.allocate(policy.initial(), cluster, jobs, 30.0, Random(1))
    check_allocation(cluster, jobs, allocation)
    assert len(allocation) <= 1
