"""The benches of GPU policies in small: what they measure is what they say, and figures have a meaning."""

import json
from io import StringIO
from itertools import pairwise
from random import Random

import pytest
from rich.console import Console

from beamer.gpu.model import check_allocation
from beamer.gpu.policies import GPU_POLICIES
from eval.bench import gpu
from eval.bench.gpu import JOBS_PER_GPU, GpuLoad, anchor, decisions, exponent, generations, growth, mixed


@pytest.fixture(scope="module")
def load() -> GpuLoad:
    return mixed(64, Random(0))


def test_the_cluster_is_full_and_the_others_wait(load: GpuLoad) -> None:
    running = {job.key: job.grant for job in load.jobs if job.grant}
    check_allocation(load.cluster, load.jobs, running)
    assert load.cluster.gpus == 64
    assert load.cluster.gpus - sum(grant.size for grant in running.values()) < max(gpu.ASKED)
    assert len(load.jobs) == int(64 * JOBS_PER_GPU)
    suspended = [job for job in load.jobs if job.last and not job.grant]
    assert len(suspended) == int(len(load.jobs) * gpu.SUSPENDED)
    assert all(job.reports and job.speeds for job in load.jobs if job.grant or job.last)
    assert all(not job.reports for job in load.jobs if not job.last)
    assert all(one.submitted_s <= other.submitted_s for one, other in pairwise(load.jobs))
    assert mixed(64, Random(0)) == load != mixed(64, Random(1))


def test_an_interval_later_what_runs_has_reported(load: GpuLoad) -> None:
    running = [job for job in load.jobs if job.grant]
    allocation = {running[0].key: running[0].grant, load.jobs[-1].key: running[1].grant}
    later = load.after(allocation, Random(0))  # type: ignore[arg-type]
    before, after = ({job.key: job for job in one.jobs} for one in (load, later))
    for key, job in after.items():
        assert job.grant == allocation.get(key)
        assert len(job.reports) == len(before[key].reports) + (key in allocation)
    stopped = after[running[1].key]
    assert stopped.last == running[1].grant
    assert stopped.service_s == running[1].service_at(load.now)
    assert later.now == load.now + gpu.INTERVAL_S


def test_nobody_is_silent_who_has_just_reported(load: GpuLoad) -> None:
    granted = {job.key: job.grant for job in load.jobs if job.grant}
    for one in (load, load.after(granted, Random(0))):
        assert not [job.key for job in one.jobs if job.unheard_at(one.now) > 0.0]


def test_every_policy_has_a_row_and_the_first_is_the_baseline() -> None:
    rows = list(growth([8, 16], repeats=1))
    assert [row["policy"] for row in rows] == list(GPU_POLICIES)
    assert set(rows[0]["ratio"].values()) == {1.0}
    assert json.loads(json.dumps(rows))


def test_decisions_are_checked(load: GpuLoad, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("over capacity")

    monkeypatch.setattr(gpu, "check_allocation", refuse)
    with pytest.raises(ValueError, match="over capacity"):
        decisions("fifo", [load])


def test_an_exponent_is_that_of_the_last_step() -> None:
    assert exponent({1: 9.0, 10: 1.0, 100: 100.0}) == pytest.approx(2.0)
    assert exponent({10: 1.0}) is None


def test_the_anchor_counts_its_tasks_and_stands_beside_what_is_published(load: GpuLoad) -> None:
    figures = anchor(load, repeats=1)
    assert figures["nodes"] == len(load.cluster.nodes)
    assert load.cluster.gpus <= figures["tasks"] <= load.cluster.gpus + sum(node.cpus for node in load.cluster.nodes)
    assert "published" in figures["published"]


def test_tables_show_what_was_measured(monkeypatch: pytest.MonkeyPatch, load: GpuLoad) -> None:
    monkeypatch.setattr(gpu, "_anchor_load", lambda: load)
    monkeypatch.setattr(gpu, "GPU_POLICIES", ("fifo", "ones"))
    console = Console(record=True, width=200, file=StringIO())
    figures = gpu.measure([8, 16], console)
    text = console.export_text()
    assert json.loads(json.dumps(figures))
    for word in ("fifo", "ones", "8 GPUs", "16 GPUs", figures["anchor"]["published"]):
        assert word in text
    assert generations([8], repeats=1)["exponent"] is None
