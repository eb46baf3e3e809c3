"""The bench of both levels in small: what is timed happens, and figures survive their file. No time is judged."""

import json
from random import Random

import pytest

from beamer.gpu.policies import GPU_POLICIES as KNOWN
from beamer.network.fabric import Fabric
from eval.bench import levels
from eval.bench.levels import GPU_POLICIES, KINDS, DecisionParts, LevelsStudy, LiveSearches, decisions_of_both
from eval.documents import markdown
from eval.machine import Machine
from topologies.leaf_spine import build

TRIALS = 8  # ask for 36 GPUs; 32 are there


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build(leaves=2, spines=1, hosts_per_leaf=2, rate="10gbit")


@pytest.mark.parametrize("policy", GPU_POLICIES)
def test_both_levels_decide_on_what_runs(policy: str, fabric: Fabric) -> None:
    live = LiveSearches(policy, TRIALS, fabric, Random(0))
    assert policy in KNOWN
    for reports in (True, False):
        before, done = live.network.decision, {key: job.done for key in live.running if (job := live.gpus.job(key))}
        live.pass_interval(reports)
        key = live.running[0]
        live.now += 1.0
        parts = live.decide(key)
        job = live.gpus.job(key)
        assert job
        assert job.done == done[key] + (2 if reports else 1) * levels.EPOCH
        assert job.speeds
        assert live.network.decision
        assert before
        assert live.network.decision.generation == before.generation + 1
        assert live.network.decision.at_s == live.now
        assert set(live.network.decision.jobs) <= set(live.running)
        assert (parts.running, parts.loading) == (len(live.running), len(live.network.decision.jobs))
        assert parts.total_s == pytest.approx(parts.report_s + parts.gpu_s + parts.taken_in_s + parts.network_s)


def test_jobs_that_need_two_hosts_are_planned(fabric: Fabric) -> None:
    live = LiveSearches("tiresias", 4, fabric, Random(0))
    assert live.network.decision
    assert list(live.network.decision.jobs) == ["s0/t3"]


def test_a_policy_that_fails_ends_the_bench(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveSearches("tiresias", 4, fabric, Random(0))
    monkeypatch.setattr(live.network, "snapshot", lambda tracker: 1 / 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        live.decide(live.running[0])


def test_a_tiny_bench_has_all_figures_and_survives_its_file(fabric: Fabric) -> None:
    study = LevelsStudy.measure((4, TRIALS), ("tiresias", "convergence"), 2, fabric)
    assert {policy: {trials: list(kinds) for trials, kinds in sizes.items()} for policy, sizes in study.taken.items()} == {
        policy: {4: list(KINDS), TRIALS: list(KINDS)} for policy in ("tiresias", "convergence")
    }
    assert LevelsStudy.from_json(json.loads(json.dumps(study.as_json()))) == study
    text = "\n".join(map(markdown, study.tables()["levels"]))
    for shown in ("4 trials", "8 trials", "8 / 4", "4 hosts", "median of 2", str(study.machine), "tiresias", "convergence"):
        assert shown in text


def test_ratios_and_exponents_are_from_the_least_to_the_most_trials() -> None:
    def taken(seconds: float) -> dict[str, DecisionParts]:
        return dict.fromkeys(KINDS, DecisionParts(0.0, seconds, 0.0, 0.0, seconds, 0.0, 1.0, 1.0))

    machine = Machine("processor", 2, 4.0, "system", "3.11", {}, 0.5)
    study = LevelsStudy(machine, 4, 5, {"fifo": {10: taken(0.001), 20: taken(0.5), 40: taken(0.016)}})
    row = [next(iter(column.cells)) for column in study.tables()["levels"][0].columns]
    assert row == ["fifo", "1.0", "500.0", "16.0", "16.0", "2.0"]


def test_medians_are_of_each_figure() -> None:
    several = [DecisionParts(*[float(value)] * 8) for value in (1, 5, 3)]
    assert DecisionParts.of(several) == DecisionParts(*[3.0] * 8)
    assert levels.REPEATS >= 5


def test_decisions_are_those_of_a_policy(fabric: Fabric) -> None:
    found = decisions_of_both("hermes", 4, fabric, 1)
    assert list(found) == list(KINDS)
    assert all(parts.total_s > 0 for parts in found.values())
