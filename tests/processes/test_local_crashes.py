"""Whatever is killed: no job runs twice, and none is forgotten."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from random import Random

import pytest

from beamer.engines.local import LocalNode
from beamer.engines.local.states import ORPHANED_S, RanksState
from beamer.engines.local.supervisor import control, store
from beamer.engines.local.supervisor.messages import Accepted, Launch, Refused, Status, read_answer
from beamer.errors import EngineError
from beamer.gpu.engine import Placement, RunState
from beamer.testing.trainer import Options
from eval.engines.undisturbed import undisturbed_digests
from tests.processes.site import Site, of_directory, on, read, until
from tests.processes.test_local_engine import check_steps

# An engine in a process of its own: starts two jobs, suspends a third, resizes a fourth, and waits to be killed.
SCHEDULER = """
import sys, time
from pathlib import Path
from beamer.gpu.engine import Placement
from beamer.engines.local import LaunchSpec, LocalCluster, LocalEngine

root, program = Path(sys.argv[1]), tuple(sys.argv[2:])
spec = LaunchSpec(program, env=(("OPENBLAS_NUM_THREADS", "1"),), batch_size=64)
engine = LocalEngine(LocalCluster.here(8), root, lambda job: spec)
two = Placement((("localhost", 0), ("localhost", 1)))
for job in ("a", "b", "c"):
    engine.start(job, two, 60.0)
while not all(seen.speeds for seen in engine.report().values()):
    time.sleep(0.05)
engine.suspend("b", 60.0)
engine.resize("c", Placement((("localhost", 2),)), 60.0)
print("ready", flush=True)
time.sleep(1000)
"""
# An engine that never rests: changes a job again and again until it is killed.
RESTLESS = """
import sys
from pathlib import Path
from random import Random
from beamer.gpu.engine import Placement
from beamer.engines.local import LaunchSpec, LocalCluster, LocalEngine
from beamer.errors import EngineError

root, rng, program = Path(sys.argv[1]), Random(int(sys.argv[2])), tuple(sys.argv[3:])
spec = LaunchSpec(program, env=(("OPENBLAS_NUM_THREADS", "1"),), batch_size=64)
engine = LocalEngine(LocalCluster.here(8), root, lambda job: spec)
print("ready", flush=True)
while True:
    place = Placement(tuple(("localhost", i) for i in range(rng.randint(1, 3))))
    call = rng.choice(["start", "start", "suspend", "resume", "resize", "resize", "park"])
    try:
        if call == "start":
            engine.start("job", place)
        elif call in ("resize", "park"):
            engine.resize("job", None if call == "park" else place)
        else:
            getattr(engine, call)("job")
    except EngineError as error:
        print(error, flush=True)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"iteration": 1, "loss": 1}')
time.sleep(1000)
"""
TRAINER = (sys.executable, "-m", "beamer.testing.trainer", "--iterations", "100000", "--pause-s", "0.002")


def test_a_killed_scheduler_finds_its_jobs_again(site: Site) -> None:
    root = site.root / "jobs"
    with subprocess.Popen([sys.executable, "-c", SCHEDULER, root, *TRAINER], stdout=subprocess.PIPE, text=True) as scheduler:
        assert scheduler.stdout
        assert scheduler.stdout.readline() == "ready\n"
        with pytest.raises(EngineError, match="another engine uses"):
            site.engine()
        scheduler.kill()
    before = set(site.ranks())
    engine = site.engine()
    site.until_state(engine, "a", RunState.RUNNING)
    site.until_state(engine, "b", RunState.SUSPENDED)
    until(lambda: site.see(engine, "c").placement == Placement((("localhost", 2),)), "the old ranks to be gone")
    until(lambda: len(site.ranks()) == 2 + 2 + 1, "each of the jobs to run once")
    after = set(site.ranks())
    assert len(after & before) >= 4, "those that were not to change have not"
    for job in ("a", "b"):
        engine.start(job, on("localhost", "localhost"))
    assert set(site.ranks()) == after
    assert site.see(engine, "b").state is RunState.RUNNING
    assert site.see(engine, "c").state is RunState.RUNNING
    assert min(len(site.see(engine, job).reports) for job in "abc") > 1, "all reports are delivered again"


def test_schedulers_killed_at_any_moment_run_no_step_twice_and_leave_none_out(site: Site) -> None:
    rng = Random(11)
    trace = site.trainer("job", 250, "--pause-s", "0.001")
    for life in range(8):
        site.hold("job", 30 * (life + 1))  # every one of them finds it under way
        command = [sys.executable, "-c", RESTLESS, site.root / "jobs", str(life), *site.specs["job"].command]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scheduler:
            assert scheduler.stdout
            assert scheduler.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.1, 1.0))
            scheduler.kill()
    site.release("job")
    engine = site.engine()
    assert set(engine.report()) == {"job"}
    for state in iter(lambda: site.see(engine, "job").state, RunState.FINISHED):
        assert state is not RunState.FAILED, site.see(engine, "job").exit
        if state in (RunState.PARKED, RunState.SUSPENDED):
            engine.start("job", on("localhost", "localhost"))
        time.sleep(0.01)
    check_steps(trace, Options(iterations=250))


def test_a_killed_supervisor_takes_its_ranks_along(site: Site, group: str) -> None:
    trace = site.trainer("job", 400, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job")
    engine.checkpoint("job")
    until(lambda: any(site.root.glob("jobs/*/checkpoint")), "a checkpoint")
    os.kill(site.supervisors()[0], signal.SIGKILL)
    until(lambda: not site.ranks(), "its ranks to die before anybody asks")
    lost = site.until_state(engine, "job", RunState.PARKED)
    assert "its supervisor died while it was running" in lost.exit
    assert lost.placement is None
    assert site.ranks() == []
    engine.start("job", on("localhost", "localhost"))
    site.release("job")
    site.until_state(engine, "job", RunState.FINISHED)
    taken = [json.loads(line) for line in trace.read_text().splitlines()]
    kept = {step["iteration"]: step["digest"] for step in taken}  # A step that was lost is taken again.
    assert [kept[i] for i in range(1, 401)] == undisturbed_digests(Options(iterations=400), [2] * 400)


def test_ranks_that_outlive_a_frozen_supervisors_death_die_before_anything_runs(site: Site, group: str) -> None:
    site.program(
        "job",
        'import subprocess, time\nsubprocess.Popen(["sleep", "999"])\nprint(\'{"iteration": 0, "loss": 1}\')\ntime.sleep(1000)',
    )
    engine = site.engine()
    engine.start("job", on("localhost"))
    until(lambda: len(site.ranks()) == 2, "a child")
    first = set(site.ranks())
    engine.suspend("job")
    os.kill(site.supervisors()[0], signal.SIGKILL)
    engine.start("job", on("localhost"))  # the call finds it out by itself
    until(lambda: len(site.ranks()) == 2, "a child")
    assert not first & set(site.ranks())
    assert site.see(engine, "job").state is RunState.RUNNING


def test_a_supervisor_that_is_to_leave_saves_its_job_first(site: Site) -> None:
    trace = site.trainer("job", 400, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job")
    (supervisor,) = site.supervisors()
    os.kill(supervisor, signal.SIGTERM)
    until(lambda: not read(supervisor, "cmdline"), "the supervisor to leave")
    site.until_state(engine, "job", RunState.PARKED)
    assert site.ranks() == []
    engine.start("job", on("localhost"))
    site.release("job")
    site.until_state(engine, "job", RunState.FINISHED)
    worlds = check_steps(trace, Options(iterations=400))
    assert set(worlds) == {1, 2}


def test_one_supervisor_at_a_time(site: Site) -> None:
    site.trainer("job", 100_000, "--pause-s", "0.01")
    engine = site.engine()
    engine.start("job", on("localhost"))
    (supervisor,) = site.supervisors()
    (directory,) = (path.parent for path in site.root.glob("jobs/*/*/lock"))
    assert store.take(directory / "lock") is None
    assert store.take(directory / "ranks") is None
    subprocess.run([sys.executable, "-m", "beamer.engines.local.supervisor", directory], check=True)
    until(lambda: site.supervisors() == [supervisor], "the second one to leave")
    assert read(supervisor, "cmdline")


@pytest.mark.parametrize("again", [False, True], ids=["removed", "made anew"])
def test_a_supervisor_whose_directory_is_removed_ends_with_its_ranks(site: Site, group: str, again: bool) -> None:
    site.trainer("job", 10**6, "--pause-s", "0.01")
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    before = of_directory(site.root)
    assert len(before) == 3
    engine.suspend("job")
    engine.close()
    jobs = site.root / "jobs"
    until(lambda: shutil.rmtree(jobs, ignore_errors=True) or not jobs.exists(), "nobody to write there meanwhile")
    if again:
        engine = site.engine()
        engine.start("job", on("localhost"))
        site.until_step(engine, "job")
    until(lambda: not set(before) & set(of_directory(site.root)), "the old processes to be gone")
    assert len(of_directory(site.root)) == (2 if again else 0)
    if again:
        site.until_step(engine, "job", beyond=site.reports["job"][-1].iteration)


def test_a_run_is_launched_once_whoever_asks(site: Site) -> None:
    site.program("job", "import time\ntime.sleep(1000)")
    engine = site.engine()
    engine.start("job", on("localhost"))
    ranks = site.ranks()
    (directory,) = (path.parent for path in site.root.glob("jobs/*/*/lock"))
    launch = Launch(1, site.specs["job"], (0,), ("0",), 1, "127.0.0.1", 4711, 1)
    assert control.ask(directory, launch, 10.0) == Accepted(), "it has been"
    assert control.ask(directory, replace(launch, run=0), 10.0) == Refused("run 0 is over, this is run 1")
    assert control.ask(directory, replace(launch, run=2), 10.0) == Refused("run 1 is still running")
    assert site.ranks() == ranks


def test_what_is_no_request_is_refused_by_name(site: Site) -> None:
    site.program("job", "import time\ntime.sleep(1000)")
    engine = site.engine()
    engine.start("job", on("localhost"))
    (directory,) = (path.parent for path in site.root.glob("jobs/*/*/lock"))
    command = [sys.executable, "-m", "beamer.engines.local.supervisor.control", str(directory)]
    asked = subprocess.run([*command, '{"kind": "status"}'], capture_output=True, text=True, check=True)
    assert isinstance(status := read_answer(asked.stdout).message, Status)
    assert status.run.state is RanksState.RUNNING
    refused = subprocess.run([*command, '{"kind": "dance"}'], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "request.kind: got 'dance', expected one of checkpoint, end" in refused.stderr
    for line in ('{"kind": "dance"}', '{"kind": "suspend", "timeout": 5}', "dance", '{"kind": "status", "after": "x"}'):
        with store.connect(directory, 10.0) as client, client.makefile("rwb") as stream:
            stream.write(line.encode() + b"\n")
            stream.flush()
            answer = read_answer(stream.readline()).message
        assert isinstance(answer, Refused)
        assert "expected" in answer.reason
    assert site.see(engine, "job").state is RunState.RUNNING


def test_a_supervisor_that_dies_while_its_job_stops_does_not_keep_it_from_going_on(site: Site) -> None:
    site.program("job", STUBBORN)
    engine = site.engine()
    engine.start("job", on("localhost"))
    site.until_step(engine, "job")
    first = site.ranks()
    engine.resize("job", on("localhost", "localhost"))
    assert site.see(engine, "job").state is RunState.STOPPING
    os.kill(site.supervisors()[0], signal.SIGKILL)
    seen = site.until_state(engine, "job", RunState.RUNNING)
    assert "its supervisor died while it was stopping" in seen.exit
    until(lambda: len(site.ranks()) == 2, "both ranks")
    assert not set(first) & set(site.ranks())


def test_a_job_on_two_nodes_is_suspended_resumed_and_resized_as_one(site: Site) -> None:
    site.nodes = (LocalNode("one", 2), LocalNode("two", 2))
    trace = site.trainer("job", 500, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("one", "two", "two"))
    at = site.until_step(engine, "job")
    assert len(site.supervisors()) == 2
    engine.suspend("job")
    assert len(site.ranks()) == 3
    assert site.see(engine, "job").state is RunState.SUSPENDED
    engine.resume("job")
    site.hold("job", 200)
    site.until_step(engine, "job", beyond=at + 5)
    engine.resize("job", on("two", "two"))
    site.hold("job", 300)
    site.until_step(engine, "job", beyond=220)  # of the second run: the first was stopped before it could pass 200
    until(lambda: site.see(engine, "job") and len(site.supervisors()) == 1, "none to be left on the node that was left")
    engine.resize("job", on("one", "two"))
    site.release("job")
    seen = site.until_state(engine, "job", RunState.FINISHED)
    worlds = [json.loads(line)["world"] for line in trace.read_text().splitlines()]
    digests = [json.loads(line)["digest"] for line in trace.read_text().splitlines()]
    assert sorted(set(worlds)) == [2, 3]
    assert digests == undisturbed_digests(Options(iterations=500), worlds)
    iterations = [report.iteration for report in seen.reports]
    assert iterations == sorted(iterations)
    assert iterations[-1] == 500


def test_ranks_do_not_wait_for_one_on_another_node_that_has_died_of_the_stop_signal(site: Site) -> None:
    site.nodes = (LocalNode("one", 1), LocalNode("two", 1))
    handler = 'if os.environ["RANK"] == "0":\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
    line = 'print(\'{"iteration": 1, "loss": 1}\')\ntime.sleep(1000)'
    site.program("job", f"import os, signal, time\n{handler}{line}", grace_s=1000.0)
    engine = site.engine()
    engine.start("job", on("one", "two"))
    site.until_step(engine, "job")
    engine.resize("job", None)
    seen = site.until_state(engine, "job", RunState.PARKED, RunState.FAILED)
    assert seen.state is RunState.PARKED
    assert "one: killed" in seen.exit
    assert "two: its ranks exited with [-15] when asked to stop: it continues from its last checkpoint" in seen.exit
    assert site.ranks() == []


def test_a_rank_beside_one_that_has_died_of_the_stop_signal_may_still_write_its_checkpoint(site: Site) -> None:
    saved = site.root / "saved"
    save = f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.8), open({str(saved)!r}, 'w').close(), os._exit(0)))"
    line = 'print(\'{"iteration": 1, "loss": 1}\')\nwhile True:\n    time.sleep(1)'
    site.program("job", f'import os, signal, time\nif os.environ["RANK"] == "0":\n    {save}\n{line}', grace_s=1000.0)
    engine, began_s = site.engine(), time.monotonic()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job")
    until(lambda: time.monotonic() - began_s > 1.5 * ORPHANED_S, "a run that was longer than what ranks are given")
    engine.resize("job", None)
    site.until_state(engine, "job", RunState.PARKED)
    assert saved.exists()


def test_a_node_that_loses_its_supervisor_parks_the_whole_job(site: Site) -> None:
    site.nodes = (LocalNode("one", 2), LocalNode("two", 2))
    site.program("job", 'import time\nprint(\'{"iteration": 1, "loss": 1}\')\ntime.sleep(1000)')
    engine = site.engine()
    engine.start("job", on("one", "two"))
    site.until_step(engine, "job")
    (victim,) = [pid for pid in site.supervisors() if read(pid, "cmdline").count(b"/two\0")]
    os.kill(victim, signal.SIGKILL)
    seen = site.until_state(engine, "job", RunState.PARKED, RunState.FAILED)
    assert seen.state is RunState.PARKED, "a failure of the node, not of the job"
    assert "two: its supervisor died" in seen.exit
    assert site.ranks() == []
