"""The local engine on real processes: what calls do, and that no step is lost, repeated or changed by them."""

import json
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from beamer.engines.local import LaunchSpec
from beamer.engines.local.memory_mode import MemoryMode
from beamer.errors import EngineError, InputError
from beamer.gpu.engine import Placement, RunState
from beamer.testing.trainer import Options, State
from eval.engines.undisturbed import undisturbed_digests
from tests.processes.site import Site, on, read, until
from tests.support.tiers import long

# Keeps a processor busy, in itself, in a child, and in a child that has left its session and its parents.
BUSY = """
import os
if os.fork() == 0:
    pass
elif os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
while True:
    pass
"""

# The trainer; what a restart takes has a part before its first line and one after its last, neither of them short.
ASLEEP_S = 0.5
SLOW_TO_START_AND_END = f"""
import atexit, runpy, time
time.sleep({ASLEEP_S})
atexit.register(time.sleep, {ASLEEP_S})
runpy.run_module("beamer.testing.trainer", run_name="__main__")
"""


def steps(trace: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []


def check_steps(trace: Path, options: Options) -> list[int]:
    """Check that a trace is that of an undisturbed run with the same sequence of world sizes, and return the sequence."""
    taken = steps(trace)
    assert [step["iteration"] for step in taken] == list(range(1, options.iterations + 1)), "no step left out, none repeated"
    worlds = [int(str(step["world"])) for step in taken]
    assert [step["digest"] for step in taken] == undisturbed_digests(options, worlds)
    return worlds


def ticks(pids: list[int]) -> list[int]:
    """Return user and system time of processes, clock ticks; 0 of those that have ended."""
    fields = [read(pid, "stat").rpartition(b")")[2].split() for pid in pids]
    return [int(one[11]) + int(one[12]) if one else 0 for one in fields]


def test_an_undisturbed_run_is_the_one_that_disturbed_ones_are_held_against(site: Site) -> None:
    trace = site.trainer("job", 120)
    engine = site.engine()
    engine.start("job", on(*["localhost"] * 3))
    seen = site.until_state(engine, "job", RunState.FINISHED)
    assert check_steps(trace, Options(iterations=120)) == [3] * 120
    assert (seen.placement, seen.exit) == (None, "")
    assert [report.iteration for report in seen.reports] == list(range(121))
    assert seen.reports[-1].loss < seen.reports[0].loss
    assert seen.reports[-1].accuracy is not None


@pytest.mark.parametrize(("suspensions", "resizes"), [(12, 3), *long((50, 10))])
def test_suspensions_and_resizes_change_no_step(site: Site, group: str, suspensions: int, resizes: int) -> None:
    rng = Random(7)
    options = Options(iterations=25 * (suspensions + resizes), pause_s=0.002)
    trace = site.trainer("job", options.iterations, "--pause-s", str(options.pause_s))
    engine = site.engine()
    events = ["suspend"] * suspensions + ["resize"] * resizes
    rng.shuffle(events)
    sizes = [2]
    site.hold("job", 0)
    engine.start("job", on("localhost", "localhost"))
    for number, event in enumerate(events, 1):
        site.hold("job", 24 * number)  # it outlasts all of them, and takes steps between them
        if event == "suspend":
            time.sleep(rng.uniform(0.0, 0.04))
            engine.suspend("job")
            time.sleep(rng.uniform(0.0, 0.01))
            engine.resume("job")
        else:
            until(lambda: [step["world"] for step in steps(trace)[-1:]] == sizes[-1:], "a step of this size", 0.005)
            sizes.append(rng.choice([size for size in (1, 2, 3, 4) if size != sizes[-1]]))
            engine.resize("job", on(*["localhost"] * sizes[-1]))
    site.release("job")
    seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    worlds = check_steps(trace, options)
    assert [worlds[0], *(after for before, after in pairwise(worlds) if before != after)] == sizes
    final = State.load(next(site.root.glob("jobs/*/checkpoint")))
    assert final.digest() == steps(trace)[-1]["digest"]
    iterations = [report.iteration for report in seen.reports]
    assert iterations == sorted(set(iterations))
    services = [report.service_s for report in seen.reports]
    assert services == sorted(services)
    assert seen.costs is not None
    assert min(seen.costs.suspend_s, seen.costs.resume_s, seen.costs.restart_s) > 0


def test_a_suspended_job_takes_no_processor_time(site: Site, group: str) -> None:
    site.program("job", BUSY)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    until(lambda: len(pids := site.ranks()) == 6 and min(ticks(pids)) > 2, "all of them to compute, none to have left")
    engine.suspend("job")
    pids = site.ranks()
    before = ticks(pids)
    time.sleep(0.5)
    assert ticks(pids) == before, "from the moment on at which the call returned"
    seen = site.see(engine, "job")
    assert seen.state is RunState.SUSPENDED
    assert seen.placement == on("localhost", "localhost"), "its memory is there"
    engine.resume("job")
    until(lambda: all(now > then for now, then in zip(ticks(pids), before, strict=True)), "all of them to go on")
    engine.stop("job")
    assert site.ranks() == []


def test_a_job_that_is_just_starting_a_program_is_suspended(site: Site, group: str) -> None:
    # The child tries one directory after the other; until it executes the program its parent waits in vfork(2).
    site.program(
        "job",
        "import os, subprocess, time\n"
        'os.get_exec_path = lambda env=None: ["/nowhere"] * 300_000 + ["/bin"]\n'
        'subprocess.Popen(["sleep", "999"])\n'
        "time.sleep(1000)",
    )
    engine = site.engine()
    engine.start("job", on("localhost"))
    until(lambda: len(site.ranks()) == 2, "a child")
    assert not any(b"sleep\0" in read(pid, "cmdline") for pid in site.ranks()), (
        "the program is executed only after its path is found"
    )
    engine.suspend("job")
    before = ticks(site.ranks())
    time.sleep(0.1)
    assert ticks(site.ranks()) == before
    engine.resume("job")
    until(lambda: any(b"sleep\0" in read(pid, "cmdline") for pid in site.ranks()), "the program to be executed")


def test_calls_may_be_repeated(site: Site) -> None:
    site.trainer("job", 100_000, "--pause-s", "0.005")
    engine = site.engine()
    place = on("localhost", "localhost")
    for _ in range(2):
        engine.start("job", place)
    site.until_step(engine, "job")
    ranks = site.ranks()
    assert len(ranks) == 2
    for _ in range(2):
        engine.suspend("job")
    assert site.see(engine, "job").state is RunState.SUSPENDED
    for _ in range(2):
        engine.resume("job")
    for _ in range(2):
        engine.resize("job", place)
        engine.start("job", on("localhost"))
    assert site.ranks() == ranks, "what holds already is left as it is"
    for _ in range(2):
        engine.resize("job", None)
    site.until_state(engine, "job", RunState.PARKED)
    engine.suspend("job")
    engine.resize("job", None)
    assert site.ranks() == []
    for _ in range(2):
        engine.stop("job")
    assert engine.report() == {}


def test_a_parked_job_holds_nothing_and_goes_on_elsewhere(site: Site) -> None:
    trace = site.trainer("job", 300, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job")
    engine.resize("job", None)
    parked = site.until_state(engine, "job", RunState.PARKED)
    assert parked.placement is None
    assert site.ranks() == []
    with pytest.raises(EngineError, match="job: resume: it is parked"):
        engine.resume("job")
    engine.start("job", Placement((("localhost", 6),)))
    assert site.see(engine, "job").placement == Placement((("localhost", 6),))
    site.release("job")
    site.until_state(engine, "job", RunState.FINISHED)
    assert set(check_steps(trace, Options(iterations=300, pause_s=0.002))) == {1, 2}


def test_without_memory_a_suspended_job_is_parked(site: Site) -> None:
    trace = site.trainer("job", 300, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine(memory=MemoryMode.NONE)
    assert not engine.keeps_memory
    engine.start("job", on("localhost"))
    site.until_step(engine, "job")
    engine.suspend("job")
    site.until_state(engine, "job", RunState.PARKED)
    engine.resume("job")
    site.release("job")
    site.until_state(engine, "job", RunState.FINISHED)
    check_steps(trace, Options(iterations=300, pause_s=0.002))


def test_a_suspended_job_is_resumed_to_be_resized(site: Site, group: str) -> None:
    trace = site.trainer("job", 200, "--pause-s", "0.002")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    at = site.until_step(engine, "job")
    engine.suspend("job")
    engine.resize("job", on("localhost"))
    site.release("job")
    site.until_step(engine, "job", beyond=at + 3)
    site.until_state(engine, "job", RunState.FINISHED)
    assert sorted(set(check_steps(trace, Options(iterations=200, pause_s=0.002)))) == [1, 2]


def test_a_checkpoint_on_demand_does_not_stop_the_job(site: Site) -> None:
    site.trainer("job", 100_000, "--pause-s", "0.002")
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job")
    ranks = site.ranks()
    engine.checkpoint("job")
    path = until(lambda: next(site.root.glob("jobs/*/checkpoint"), None), "a checkpoint")
    saved = State.load(path).iteration
    site.until_step(engine, "job", beyond=saved + 2)
    assert site.ranks() == ranks


def test_another_batch_size_counts_in_requested_iterations(site: Site) -> None:
    site.trainer("job", 40)
    engine = site.engine()
    engine.start("job", Placement((("localhost", 0), ("localhost", 1)), batch_size=128))
    seen = site.until_state(engine, "job", RunState.FINISHED)
    assert seen.reports[-1].iteration == 80, "40 steps of 128 samples are 80 of 64"


def test_a_job_that_fails_reports_its_last_lines(site: Site) -> None:
    site.program("job", "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('no such data: x.npz')\ntime.sleep(1000)")
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    seen = site.until_state(engine, "job", RunState.FAILED)
    assert seen.placement is None
    assert "rank 1 exited with code 1" in seen.exit
    assert "no such data: x.npz" in seen.exit
    assert site.ranks() == [], "nor does rank 0 go on without it"
    engine.start("job", on("localhost"))
    assert site.see(engine, "job").state is RunState.FAILED, "a job that has ended is left as it is"


def test_a_rank_that_is_killed_is_a_failure(site: Site) -> None:
    site.program("job", "import time\ntime.sleep(1000)")
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    os.kill(site.ranks()[0], signal.SIGKILL)
    assert "was killed by SIGKILL" in site.until_state(engine, "job", RunState.FAILED).exit
    assert site.ranks() == []


@pytest.mark.parametrize(
    ("command", "env", "seen"),
    [
        (("/no/such/program",), (), "/no/such/program"),
        (("true",), (("A=B", "1"),), "illegal environment variable name"),
        (("true", "\0"), (), "embedded null byte"),
    ],
)
def test_a_command_that_cannot_be_run_is_a_failure(
    site: Site, command: tuple[str, ...], env: tuple[tuple[str, str], ...], seen: str
) -> None:
    site.specs["job"] = LaunchSpec(command, env=env)
    engine = site.engine()
    engine.start("job", on("localhost"))
    assert seen in site.until_state(engine, "job", RunState.FAILED).exit


def test_a_job_that_does_not_stop_is_killed_and_restarted_from_its_checkpoint(site: Site) -> None:
    site.program(
        "job",
        "import json, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor i in range(10**6):\n"
        " print(json.dumps({'iteration': i, 'loss': 1.0}))\n time.sleep(0.01)",
        grace_s=0.2,
    )
    engine = site.engine()
    engine.start("job", on("localhost"))
    at = site.until_step(engine, "job")
    ranks = set(site.ranks())
    engine.resize("job", on("localhost", "localhost"))
    until(lambda: len(set(site.ranks()) - ranks) == 2, "two new ranks")
    assert not ranks & set(site.ranks())
    seen = site.until_state(engine, "job", RunState.RUNNING)
    assert "no iteration boundary within 0.2 s" in seen.exit
    assert float(seen.exit.split("had done ")[1].split()[0]) >= at


def test_other_signals_and_codes(site: Site) -> None:
    site.program(
        "job",
        'import os, sys, time\ntry:\n print(\'{"iteration": 1, "loss": 1}\')\n time.sleep(1000)\n'
        "except KeyboardInterrupt:\n open(os.environ['BEAMER_CHECKPOINT'], 'w').close()\n sys.exit(75)",
        stop_signal=signal.SIGINT,
        stopped_code=75,
    )
    engine = site.engine()
    engine.start("job", on("localhost"))
    site.until_step(engine, "job")
    engine.resize("job", None)
    assert site.until_state(engine, "job", RunState.PARKED).exit == "", "as it should be"


def test_progress_of_a_program_that_knows_nothing(site: Site) -> None:
    site.program(
        "job", "import time\nfor i in range(5):\n print(f'Epoch {i + 1}: train loss={1 / (i + 1):.3f}')\n time.sleep(0.01)",
        progress=r"Epoch (?P<iteration>\d+): train loss=(?P<loss>\S+)",
    )  # fmt: skip
    engine = site.engine()
    engine.start("job", on("localhost"))
    seen = site.until_state(engine, "job", RunState.FINISHED)
    assert [report.iteration for report in seen.reports] == [1, 2, 3, 4, 5]
    assert [report.loss for report in seen.reports] == [1.0, 0.5, 0.333, 0.25, 0.2]


def test_the_environment_of_ranks(site: Site) -> None:
    names = (
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "BEAMER_CHECKPOINT",
        "BEAMER_BATCH_SIZE",
    )  # fmt: skip
    site.program(
        "job",
        f"import json, os\njson.dump({{n: os.environ[n] for n in {names}}}, open(os.environ['RANK'], 'w'))",
        cwd=str(site.root),
    )
    engine = site.engine()
    engine.start("job", Placement((("localhost", 5), ("localhost", 2)), batch_size=96))
    seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    given = [json.loads((site.root / rank).read_text()) for rank in ("0", "1")]
    assert [one["RANK"] for one in given] == [one["LOCAL_RANK"] for one in given] == ["0", "1"]
    assert {one["WORLD_SIZE"] for one in given} == {"2"}
    assert {one["CUDA_VISIBLE_DEVICES"] for one in given} == {"5,2"}
    assert {one["BEAMER_BATCH_SIZE"] for one in given} == {"96"}
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"], one["BEAMER_CHECKPOINT"]) for one in given}) == 1


def test_service_time_leaves_out_where_nothing_was_computed(site: Site) -> None:
    trace = site.trainer("job", 100_000, "--pause-s", "0.002")
    command = site.specs["job"].command
    site.specs["job"] = replace(site.specs["job"], command=(command[0], "-c", SLOW_TO_START_AND_END, *command[3:]))
    engine = site.engine()
    engine.start("job", on("localhost"))
    site.until_step(engine, "job", beyond=40)
    engine.suspend("job")
    time.sleep(0.5)
    engine.resume("job")
    at = site.until_step(engine, "job", beyond=site.until_step(engine, "job") + 40)
    engine.resize("job", on("localhost", "localhost"))
    site.until_step(engine, "job", beyond=site.until_step(engine, "job", beyond=at) + 200)
    costs = until(lambda: (seen := site.see(engine, "job").costs) and seen.restart_s and seen, "the restart to be known")
    engine.close()
    reports = site.engine().report()["job"].reports  # all of them at once: their times are of one answer
    restart = next(int(str(step["iteration"])) for step in steps(trace) if step["world"] == 2)
    gaps = {b.iteration: (b.at_s - a.at_s, b.service_s - a.service_s) for a, b in pairwise(reports)}
    assert max(pause - computed for step, (pause, computed) in gaps.items() if step < restart) >= 0.45, "it was suspended"
    pause, computed = gaps[restart]
    assert computed < pause / 2, "hardly any of a restart is computing"
    assert 2 * ASLEEP_S <= costs.restart_s <= pause - computed + 1e-6


def test_what_cannot_be_asked_for(site: Site) -> None:
    site.trainer("job", 10)
    engine = site.engine()
    with pytest.raises(EngineError, match=r"job: start: there is no GPU 8 on localhost, expected 0 to 7"):
        engine.start("job", Placement((("localhost", 8),)))
    with pytest.raises(EngineError, match="job: start: there is no node 'elsewhere', expected one of localhost"):
        engine.start("job", on("elsewhere"))
    with pytest.raises(InputError, match="none twice"):
        engine.start("job", Placement((("localhost", 1), ("localhost", 1))))
    with pytest.raises(EngineError, match="no parameter servers"):
        engine.start("job", Placement((("localhost", 1),), servers=("localhost",)))
    for call in (engine.suspend, engine.resume, lambda job: engine.resize(job, None)):
        with pytest.raises(EngineError, match=r"job: .*: no such job"):
            call("job")
    engine.stop("job")
    assert engine.report() == {}
    assert [node.gpus for node in engine.nodes()] == [8]
