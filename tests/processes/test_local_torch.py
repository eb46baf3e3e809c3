"""Unmodified PyTorch: DDP on gloo is suspended, continued and resized as the deterministic trainer does."""

import importlib.util
import json
import sys
import time
from pathlib import Path
from random import Random

import pytest

from beamer.engines.local import LaunchSpec
from beamer.gpu.engine import RunState
from tests.processes.site import Site, on

ITERATIONS = 400
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def program(site: Site, job: str) -> Path:
    """Say that a job is the program; return its trace."""
    trace, gate = site.root / f"{job}.trace", site.root / f"{job}.gate"
    command = (sys.executable, "-m", "eval.gpu.ddp_trainer", "--iterations", str(ITERATIONS))
    files = ("--trace", str(trace), "--gate", str(gate))
    site.specs[job] = LaunchSpec((*command, *files), cwd=str(ROOT), batch_size=24)
    return trace


def trace_of(site: Site, job: str, disturb: bool) -> list[dict[str, object]]:
    trace = program(site, job)
    if disturb:
        site.hold(job, 100)
    engine = site.engine()
    engine.start(job, on("localhost", "localhost"))
    site.until_step(engine, job)
    if disturb:
        rng = Random(1)
        for _ in range(10):
            time.sleep(rng.uniform(0.0, 0.02))
            engine.suspend(job)
            time.sleep(rng.uniform(0.0, 0.02))
            engine.resume(job)
        engine.resize(job, None)
        site.until_state(engine, job, RunState.PARKED)
        engine.start(job, on("localhost", "localhost"))
        site.hold(job, 200)
        site.until_step(engine, job, beyond=100)
        engine.resize(job, None)
        site.until_state(engine, job, RunState.PARKED)
        engine.start(job, on("localhost", "localhost"))
        site.release(job)
    seen = site.until_state(engine, job, RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    engine.stop(job)
    engine.close()
    site.engines.remove(engine)
    return [json.loads(line) for line in trace.read_text().splitlines()]


def test_every_step_of_a_disturbed_run_is_that_of_an_undisturbed_one(site: Site) -> None:
    disturbed = trace_of(site, "disturbed", True)
    assert [step["iteration"] for step in disturbed] == list(range(1, ITERATIONS + 1))
    assert disturbed == trace_of(site, "undisturbed", False)


def test_it_changes_its_size(site: Site) -> None:
    trace = program(site, "job")
    site.hold("job", 100)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job")
    engine.resize("job", on("localhost"))
    site.release("job")
    seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [step["iteration"] for step in steps] == list(range(1, ITERATIONS + 1))
    assert {step["world"] for step in steps} == {1, 2}
    assert seen.reports[-1].loss < seen.reports[0].loss
