"""Our policies inside a peer's simulator: a made-up miniature of its interface, runs that are kept, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from beamer.errors import EngineError, InputError, PlatformError
from eval.peers.base import ROOT, Peer
from eval.peers.command import PeerConfig, peers, read
from eval.peers.contender import PeerContender, PeerRun
from eval.peers.environment import interpreter
from eval.peers.gavel.peer import GavelPeer
from eval.peers.pollux.peer import NEEDED, PolluxPeer
from eval.peers.report import PeerFigures, mean, ratio
from eval.peers.results_file import PeerResults
from eval.peers.runs import FinishedRun, PeerRuns, RunningProcesses

HERE = Path(sys.executable)

SIMULATOR = '''
"""Jobs of ten epochs of 60 iterations, one iteration per GPU and second; GPUs that change cost 30 s."""
import random

class Application:
    name, init_batch_size, max_batch_size, min_local_bsz, max_local_bsz, max_epochs = "toy", 8, 64, 4, 16, 10
    class Table:
        class metric:
            values = [0.1, 0.9]
    validation = {8: Table}
    def get_progress(self, epoch): return 60.0 * epoch
    def get_iteration(self, batch_size, epoch): return 60.0 * (epoch + 1) * 8 / batch_size
    def get_completion_epoch(self, batch_size): return 9
    def get_best_metric(self, batch_size, epoch): return 0.1 + 0.08 * epoch if epoch else None

APPLICATIONS = {"toy": Application()}

def fit_perf_params(*arrays):
    return None

class Job:
    def __init__(self, name, application, submission_time, target_num_replicas=None, target_batch_size=None):
        self.name, self.application, self.submission_time = name, application, submission_time
        self.target_num_replicas, self.target_batch_size = target_num_replicas, target_batch_size
        self.completion_time = self.grad_params = self.num_restarts = None
        self.current_time = self.progress = self.delay = 0.0
        self.placement, self.profile, self.epoch, self.atomic_bsz, self.accum_steps = (), {}, 0, 0, 0

    @property
    def max_profiled_replicas(self):
        return max((gpus for _, gpus, _ in self.profile), default=0)

    def update_local_bsz(self, placement):
        self.atomic_bsz = max((self.target_batch_size or 8) // sum(placement), 4)

    def move(self, placement):
        self.placement, self.delay = placement, 30.0
        if placement:
            self.num_restarts = 0 if self.num_restarts is None else self.num_restarts + 1
            self.update_local_bsz(placement)

    def step(self, seconds):
        gpus = sum(self.placement)
        if gpus and self.completion_time is None:
            self.profile[len(self.placement), gpus, self.atomic_bsz] = 1.0 / gpus, 0.0
            self.grad_params = 1.0, 2.0
            before, late = self.progress, min(self.delay, seconds)
            self.delay -= late
            self.progress += gpus * (seconds - late)
            self.epoch = int(self.progress // 60)
            if self.progress >= 600:
                self.completion_time = self.current_time + late + (600 - before) / gpus
        self.current_time += seconds

class Node:
    def __init__(self, gpus):
        self.resources = {"nvidia.com/gpu": gpus}

class Cluster:
    def __init__(self, workload, policy, min_nodes, num_gpus=4):
        self.policy, self.current_time, self.allocations = policy, 0.0, {}
        self.nodes = {number: Node(num_gpus) for number in range(min_nodes)}
        self.jobs = [Job(row.name, APPLICATIONS[row.application], row.time, 1, 8) for row in workload.itertuples()]

    def get_job_infos(self):
        return {job.name: job for job in self.jobs if self.current_time >= job.submission_time and job.completion_time is None}

    def all_complete(self):
        return all(job.completion_time is not None for job in self.jobs)

    def step(self, seconds):
        print("a line that is nobody's")
        for job in self.jobs:
            job.step(seconds)
        self.current_time += seconds
        given, _ = self.policy.optimize(self.get_job_infos(), self.nodes, self.allocations, self.nodes[0])
        for job in self.jobs:
            if given.get(job.name) != self.allocations.get(job.name):
                places = given.get(job.name, [])
                job.move(tuple(places.count(node) for node in sorted(set(places))))
        self.allocations = given

class PolluxPolicy:
    def optimize(self, jobs, nodes, allocations, template):
        random.random()
        return {name: [0] for name in list(jobs)[:2]}, 1

class TiresiasPolicy(PolluxPolicy):
    def __init__(self, clock):
        self.clock = clock
    def optimize(self, jobs, nodes, allocations, template):
        assert self.clock() > 0
        return {name: [0] for name in list(jobs)[:1]}, 1

class OptimusPolicy:
    def optimize(self, jobs, nodes, allocations, template):
        raise RuntimeError("no such luck")
'''
PANDAS = """
import csv
from types import SimpleNamespace
__version__ = "0"
def row(r):
    return SimpleNamespace(name=r["name"], time=float(r["time"]), application=r["application"],
                           num_replicas=int(r["num_replicas"]), batch_size=int(r["batch_size"]))
def read_csv(path):
    rows = [row(r) for r in csv.DictReader(open(path))]
    return SimpleNamespace(itertuples=lambda: rows)
"""
CONFIG = """
pollux:
  workloads: ["1"]
  seeds: 2
  first_seed: 1
  nodes: 1
  gpus: 2
  interval_s: 60
  base: pollux (theirs; knows nothing; free sizes)
  policies:
    - {policy: pollux, own: true}
    - {policy: tiresias, own: true, sizes: users'}
    - {policy: fifo, sizes: users'}
    - {policy: convergence}
    - {policy: convergence, knows: true end, batches: policy}
"""
TIRESIAS_AS_BASE = "base: tiresias (theirs; knows nothing; users'"  # for the beginning of the line


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of a miniature of Pollux' simulator."""
    folder = tmp_path / "checkout" / "simulator"
    for name in NEEDED:
        if name.endswith(".py"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(SIMULATOR if name == "simulator.py" else "")
        else:
            (folder / name).mkdir(parents=True)
    (folder / "pandas.py").write_text(PANDAS)
    (folder / "pymoo").mkdir()
    (folder / "pymoo" / "__init__.py").write_text("__version__ = '0'\n")
    (folder / "workloads" / "workload-1.csv").write_text(
        "name,time,application,num_replicas,batch_size\na,0,toy,1,8\nb,30,toy,1,8\nc,90,toy,2,16\n"
    )
    return folder.parent


def start(checkout: Path, tmp_path: Path, python: Path = HERE, config: str = CONFIG, policies: str = "") -> dict[str, Any]:
    (tmp_path / "peers.yaml").write_text(config)
    peers(
        pollux=checkout,
        config_file=tmp_path / "peers.yaml",
        policies=policies,
        python=python,
        processes=2,
        cache=tmp_path / "cache",
        json_file=tmp_path / "peers.json",
        workloads="",
        seeds=None,
        original=True,  # there is nothing of its libraries to replace here
    )
    return json.loads((tmp_path / "peers.json").read_text())["pollux"]  # type: ignore[no-any-return]


@pytest.mark.long
def test_the_policies_of_both_run_and_a_second_start_reuses_them(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = start(checkout, tmp_path)
    outcome = PeerResults.from_json(found)
    rows = {(who.policy, who.own, who.knows): who for who in outcome.figures}
    assert len(rows) == 5
    # two jobs of 600 s at a time, from the first decision on, and the third after the first
    base = rows["pollux", True, "nothing"]
    assert mean(outcome.figures[base], "mean_s") == pytest.approx((660 + 30 + 660 + 1200) / 3, abs=60)
    # one at a time
    one_by_one = ratio(outcome.figures, rows["tiresias", True, "nothing"], base, "mean_s").mean
    assert one_by_one > 1
    assert ratio(outcome.figures, rows["fifo", False, "nothing"], base, "mean_s").mean < one_by_one
    shown = capsys.readouterr().out
    assert "true end, batch size by the policy" not in shown  # These two have columns of their own.
    for word in ("theirs", "ours", "true end", "nothing", "restarts per job"):
        assert word in shown
    # random numbers are drawn by the peer's Pollux alone, so that its second seed alone is another run
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "runs").iterdir()}
    assert len(kept) == 6
    assert start(checkout, tmp_path, python=Path("/nowhere")) == found
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "runs").iterdir()} == kept
    # nor does one that finds them in the file of figures alone, as in another clone
    rmtree(tmp_path / "cache")
    assert start(checkout, tmp_path, python=Path("/nowhere")) == found
    assert not list((tmp_path / "cache" / "runs").iterdir())


@pytest.mark.long
def test_a_start_with_fewer_policies_loses_no_run_that_still_holds(checkout: Path, tmp_path: Path) -> None:
    found = start(checkout, tmp_path)
    assert start(checkout, tmp_path, policies="fifo") == found
    # another version of the simulator: what was not run again does not hold
    (checkout / "simulator" / "optimus.py").write_text("class OptimusPolicy: pass")
    fewer = start(checkout, tmp_path, policies="fifo")
    assert fewer["content"] != found["content"]
    assert {row["policy"] for row in fewer["policies"].values()} == {"fifo"}, "the base may be left out"
    assert fewer["base"] == "fifo (ours; knows nothing; users' sizes)", "ratios are to what was run"
    assert len(PeerResults.from_json(fewer).tables()) == 2


def test_ratios_are_to_the_base_where_its_runs_are_known(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(checkout, tmp_path, policies="fifo")
    alone = capsys.readouterr().out
    assert "theirs" not in alone
    start(checkout, tmp_path, policies="pollux (theirs")
    capsys.readouterr()
    found = start(checkout, tmp_path, policies="fifo")
    assert "theirs" in capsys.readouterr().out
    assert found["base"] == "pollux (theirs; knows nothing; free sizes)"


def test_runs_are_shown_as_they_go_on_where_there_is_no_terminal(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(checkout, tmp_path, policies="fifo")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith(": 1 runs, 0 of them known") for line in lines)
    assert any(": 1 of 1 runs" in line and "ended: workload 1, seed 1: fifo" in line for line in lines)
    assert not any("0/0" in line for line in lines)


def test_policies_without_all_runs_are_in_no_table() -> None:
    base, other = PeerContender(policy="a", own=True), PeerContender(policy="other")
    one = FinishedRun("key", PeerFigures(1.0, 1.0, 1.0, 0.0), False, 1.0, {"numpy": "1"})
    outcome = PeerResults("t", "c", {}, base, {base: {("1", 1): one, ("2", 1): one}, other: {("1", 1): one}})
    assert [str(next(iter(table.columns[0].cells)))[:1] for table in outcome.tables()] == ["a", "a"]
    assert {table.row_count for table in outcome.tables()} == {1}


@pytest.mark.parametrize("text", ["{", "[]", '{"pollux": {}}', '{"pollux": {"policies": {"a": {"runs": [1]}}}}'])
def test_a_file_of_something_else_is_refused(checkout: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "peers.json").write_text(text)
    with pytest.raises(InputError, match="--json: got"):
        start(checkout, tmp_path)
    assert (tmp_path / "peers.json").read_text() == text


def test_another_simulator_is_another_run(checkout: Path, tmp_path: Path) -> None:
    def file(own: bool) -> Path:
        contender = PeerContender(policy="fifo", own=own, sizes="users'")
        run = PeerRun(peer="pollux", workload="1", contender=contender, seed=1, nodes=1, gpus=2, interval_s=60)
        return PeerRuns(PolluxPeer(), checkout / "simulator", HERE, tmp_path).file_of(run)

    before = file(True), file(False)
    assert before[0] != before[1]
    (checkout / "simulator" / "workloads" / "workload-1.csv").write_text("name,time,application,num_replicas,batch_size\n")
    assert not set(before) & {file(True), file(False)}


def test_a_run_that_fails_is_named_with_what_it_said(checkout: Path, tmp_path: Path) -> None:
    config = CONFIG.replace("{policy: tiresias, own", "{policy: optimus, own")
    with pytest.raises(EngineError, match=r"workload 1, seed 1: optimus \(theirs.*failed(?s:.*)no such luck"):
        start(checkout, tmp_path, config=config, policies="optimus")


def children(pid: int) -> list[int]:
    """Return the processes that any thread of one has started."""
    return [int(one) for file in Path(f"/proc/{pid}/task").glob("*/children") for one in file.read_text().split()]


def test_no_run_goes_on_when_the_command_is_ended(checkout: Path, tmp_path: Path) -> None:
    slow = SIMULATOR.replace("self.clock = clock", "self.clock = clock\n        __import__('time').sleep(300)")
    (checkout / "simulator" / "simulator.py").write_text(slow)
    (tmp_path / "peers.yaml").write_text(CONFIG.replace("base: pollux (theirs; knows nothing; free", TIRESIAS_AS_BASE))
    options = ["--pollux", checkout, "--config", tmp_path / "peers.yaml", "--cache", tmp_path / "cache"]
    options += ["--json", tmp_path / "peers.json", "--python", HERE, "--policies", "tiresias", "--original"]
    command = [sys.executable, "-m", "eval", "peers", *map(str, options)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not (started := children(process.pid)):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()
        process.wait()


def test_a_process_that_was_starting_when_all_were_ended_is_ended() -> None:
    running = RunningProcesses()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], text=True) as process:
        try:
            running.end()
            running.add(process)
            assert process.wait(60) == -signal.SIGTERM
        finally:
            process.kill()


def test_a_result_whose_sources_changed_meanwhile_is_not_kept(checkout: Path, tmp_path: Path) -> None:
    changing = "self.clock = clock\n        open(__file__.replace('simulator.py', 'optimus.py'), 'w').write('#')"
    (checkout / "simulator" / "simulator.py").write_text(SIMULATOR.replace("self.clock = clock", changing))
    config = CONFIG.replace("base: pollux (theirs; knows nothing; free", TIRESIAS_AS_BASE)
    with pytest.raises(EngineError, match="the sources changed while it ran"):
        start(checkout, tmp_path, config=config, policies="tiresias")
    assert not list((tmp_path / "cache" / "runs").iterdir())


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match="branch osdi21-artifact"):
            PolluxPeer().find(folder)
        with pytest.raises(InputError, match="stanford-futuredata/gavel"):
            GavelPeer().find(folder)


def test_either_folder_of_a_checkout_is_found(checkout: Path) -> None:
    assert PolluxPeer().find(checkout) == PolluxPeer().find(checkout / "simulator") == checkout / "simulator"


def test_what_cannot_be_run_is_refused(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of 1"):
        start(checkout, tmp_path, config=CONFIG.replace('workloads: ["1"]', 'workloads: ["9"]'))
    with pytest.raises(InputError, match="base: got"):
        start(checkout, tmp_path, config=CONFIG.replace("base: pollux", "base: polux"))
    with pytest.raises(InputError, match="--policies"):
        start(checkout, tmp_path, policies="absent")
    with pytest.raises(InputError, match="each once"):
        start(checkout, tmp_path, config=CONFIG + "    - {policy: convergence}\n")
    with pytest.raises(InputError, match="policy: got 'absent'"):
        start(checkout, tmp_path, config=CONFIG + "    - {policy: absent}\n")
    with pytest.raises(InputError, match="a part for each of"):
        start(checkout, tmp_path, config="")
    with pytest.raises(InputError, match=r"polux: got .*did you mean 'pollux'"):
        start(checkout, tmp_path, config=CONFIG.replace("pollux:", "polux:", 1))
    with pytest.raises(InputError, match=r"pollux\.work: got .*expected nothing"):
        start(checkout, tmp_path, config=CONFIG + "  work: {jobs: 1}\n")
    with pytest.raises(ValidationError, match="nodes"):
        start(checkout, tmp_path, config=CONFIG.replace("nodes: 1", "nodes: 0"))
    with pytest.raises(InputError, match="one of them at least"):
        peers()
    with pytest.raises(InputError, match="seeds of the workload"):
        GavelPeer().check_workload(tmp_path, "philly")


def test_an_interpreter_that_cannot_have_the_packages_is_refused(tmp_path: Path) -> None:
    class OfOldPython(PolluxPeer):
        python = ((3, 6),)

    with pytest.raises(PlatformError, match=r"Python 3\.6; name an interpreter .* with --python"):
        interpreter(OfOldPython(), tmp_path, None)


@pytest.mark.parametrize("peer", [PolluxPeer(), GavelPeer()], ids=lambda peer: peer.name)
def test_the_committed_study_is_complete(peer: Peer) -> None:
    config: PeerConfig = read()[peer.name]
    contenders = config.contenders("")
    assert contenders[0].own
    assert len({one.title for one in contenders}) == len(contenders)
    assert len(config.workloads) * config.seeds >= 3
    assert {"nothing", "true end"} <= {one.knows for one in contenders if one.policy == "convergence"}


def test_ratios_are_over_workloads_whose_seeds_are_averaged() -> None:
    ours, base = PeerContender(policy="a"), PeerContender(policy="b")

    def runs(**mean_s: list[float]) -> dict[tuple[str, int], PeerFigures]:
        return {
            (name, seed): PeerFigures(one, 1.0, 1.0, 0.0) for name, values in mean_s.items() for seed, one in enumerate(values)
        }

    figures = {ours: runs(w1=[1.0, 4.0], w2=[2.0, 2.0]), base: runs(w1=[1.0, 1.0], w2=[1.0, 1.0])}
    # seeds that differ leave no doubt about workloads that agree
    assert ratio(figures, ours, base, "mean_s").low == pytest.approx(2.0)
    assert ratio(figures, ours, base, "mean_s").high == pytest.approx(2.0)
    one = {who: {pair: value for pair, value in some.items() if pair[0] == "w1"} for who, some in figures.items()}
    assert ratio(one, ours, base, "mean_s").low < 1 < ratio(one, ours, base, "mean_s").high


POLLUX, PYTHON = os.environ.get("POLLUX_CHECKOUT", ""), os.environ.get("POLLUX_PYTHON", "")


@pytest.mark.skipif(not (POLLUX and PYTHON), reason="POLLUX_CHECKOUT and POLLUX_PYTHON name no checkout and its interpreter")
def test_its_own_tiresias_runs_in_its_checkout_as_without_us(tmp_path: Path) -> None:
    contender = PeerContender(policy="tiresias", own=True, sizes="users'")
    run = PeerRun(peer="pollux", workload="1", contender=contender, seed=1, nodes=16, gpus=4, interval_s=60)

    runs = PeerRuns(PolluxPeer(), PolluxPeer().find(Path(POLLUX)), Path(PYTHON), tmp_path)
    # `simulator.py workloads/workload-1.csv --policy tiresias` prints this mean.
    assert runs.all([run], 1, Console(quiet=True))[run].figures.mean_s == 2473.65
