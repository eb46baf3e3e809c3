"""Unmodified PyTorch: DDP on gloo is suspended, continued and resized as the deterministic trainer does."""

import importlib.util
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from beamer.engines.local import LaunchSpec, LocalEngine, LocalNode
from beamer.gpu.engine import RunState
from tests.processes.site import Site, on, until
from tests.processes.test_local_ports import port_of, taken
from tests.support.checkout import ROOT

ITERATIONS = 400
GLOO_TIMEOUT_S = 5.0
"""Of the collectives of jobs that are suspended for longer."""

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def program(site: Site, job: str, *arguments: str, **options: Any) -> Path:
    """Say that a job is the program; return its trace."""
    trace, gate = site.root / f"{job}.trace", site.root / f"{job}.gate"
    command = (sys.executable, "-m", "eval.gpu.ddp_trainer", "--iterations", str(ITERATIONS))
    files = ("--trace", str(trace), "--gate", str(gate))
    site.specs[job] = LaunchSpec((*command, *files, *arguments), cwd=str(ROOT), batch_size=24, **options)
    return trace


def trace_of(site: Site, job: str, disturb: bool, **options: Any) -> list[dict[str, object]]:
    trace = program(site, job, **options)
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


@pytest.mark.long
def test_every_step_of_a_disturbed_run_is_that_of_an_undisturbed_one(site: Site) -> None:
    disturbed = trace_of(site, "disturbed", True)
    assert [step["iteration"] for step in disturbed] == list(range(1, ITERATIONS + 1))
    assert disturbed == trace_of(site, "undisturbed", False)
    assert disturbed == trace_of(site, "warm", True, preload=("torch",))


@pytest.mark.long
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


def hasty(site: Site, job: str, collective_timeout_s: float) -> Path:
    """Say that a job is the program with collectives that time out soon, held at an iteration; return its trace."""
    trace = program(
        site, job, "--timeout-s", str(GLOO_TIMEOUT_S), collective_timeout_s=collective_timeout_s
    )  # fmt: skip
    site.hold(job, 100)
    return trace


def survives(site: Site, engine: LocalEngine, job: str) -> bool:
    """Say whether a job takes further steps: one whose collective has timed out dies, or waits for ever for a rank that has."""
    before = site.reports[job][-1].iteration
    until_s = time.monotonic() + 4 * GLOO_TIMEOUT_S
    while (seen := site.see(engine, job)).state is not RunState.FAILED and time.monotonic() < until_s:
        if seen.reports[-1].iteration > before + 10:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.long
def test_a_job_that_is_suspended_for_longer_than_its_collectives_wait_dies(site: Site) -> None:
    hasty(site, "job", collective_timeout_s=0.0)
    command = [*site.specs["job"].command, "--iterations", str(10**6)]
    site.specs["job"] = replace(site.specs["job"], command=tuple(command))
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job", beyond=99)
    site.release("job")  # its ranks are in a collective nearly always from now on
    assert survives(site, engine, "job")
    for _ in range(4):
        engine.suspend("job")
        time.sleep(1.5 * GLOO_TIMEOUT_S)
        assert site.see(engine, "job").state is RunState.SUSPENDED, "nobody has said that it must not be"
        engine.resume("job")
        if not survives(site, engine, "job"):
            return
    raise AssertionError("it bears what it is parked for")


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "alone"), [(1, False), (2, True)], ids=["watched", "two nodes, and no engine"])
def test_it_is_parked_before_that_and_continues_from_its_checkpoint(site: Site, nodes: int, alone: bool) -> None:
    names = ["one", "two"][:nodes] * (2 // nodes)
    site.nodes = tuple(LocalNode(name, 2) for name in dict.fromkeys(names))
    trace = hasty(site, "job", GLOO_TIMEOUT_S)
    engine = site.engine()
    for at in (100, 200):
        site.hold("job", at)
        engine.start("job", on(*names))
        site.until_step(engine, "job", beyond=at - 1)
        engine.suspend("job")
        if alone:
            engine.close()
            site.engines.remove(engine)
            until(lambda: not site.ranks(), "its ranks to leave, whoever is there")
            engine = site.engine()
        assert site.until_state(engine, "job", RunState.PARKED).placement is None
        assert site.ranks() == []
    engine.start("job", on(*names))
    site.release("job")
    seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [step["iteration"] for step in steps] == list(range(1, ITERATIONS + 1)), "no step is lost, and none repeated"


@pytest.mark.long
def test_suspensions_without_a_step_between_them_add_up(site: Site) -> None:
    hasty(site, "job", GLOO_TIMEOUT_S)
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job", beyond=99)  # it stands at its gate from now on, in collectives but without a line
    for _ in range(20):
        engine.suspend("job")
        time.sleep(0.2 * GLOO_TIMEOUT_S)
        if site.see(engine, "job").state is not RunState.SUSPENDED:
            break
        engine.resume("job")
    seen = site.until_state(engine, "job", RunState.PARKED, RunState.FAILED)
    assert seen.state is RunState.PARKED, seen.exit


def test_a_job_of_one_rank_waits_for_nobody_and_stays_suspended(site: Site) -> None:
    hasty(site, "job", 0.2)
    engine = site.engine()
    engine.start("job", on("localhost"))
    site.until_step(engine, "job", beyond=99)
    engine.suspend("job")
    time.sleep(1.0)
    assert site.see(engine, "job").state is RunState.SUSPENDED
    engine.resume("job")
    site.release("job")
    assert site.until_state(engine, "job", RunState.FINISHED).exit == ""


@pytest.mark.long
def test_a_port_that_is_taken_while_pytorch_starts_costs_nothing(site: Site) -> None:
    trace = program(site, "job")
    engine = site.engine()
    engine.start("job", on("localhost", "localhost"))
    first = port_of(site)
    with taken(first):  # PyTorch is imported meanwhile, which takes seconds
        seen = site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED)
    assert seen.state is RunState.FINISHED, seen.exit
    assert port_of(site) != first
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [step["iteration"] for step in steps] == list(range(1, ITERATIONS + 1))
