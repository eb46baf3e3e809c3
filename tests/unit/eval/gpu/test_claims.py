"""The study of GPU policies: its arithmetic, its workloads, and one small cell per claim."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from matplotlib.figure import Figure
from pydantic import ValidationError

from beamer.decision.policy import Stateless
from beamer.engines.profiles import HyperbolicLoss
from beamer.gpu.model import Costs, Grant
from beamer.gpu.policies import GPU_POLICIES, GpuPolicy
from beamer.gpu.policies.fifo import Fifo
from eval.gpu.claim import CostsConfig, Metric
from eval.gpu.claims import CLAIMS, Claim, GpuContender, Inputs
from eval.gpu.claims.hermes import CLOSED_FORM, HermesClaim
from eval.gpu.claims.optimus import CONVERGED, ParameterServerProfile, SpeedTable, _half
from eval.gpu.loss_noise import recorded_noise
from eval.gpu.profiles import ExchangingProfile
from eval.gpu.report import by_metric, ratio, tally, verdicts, verdicts_of
from eval.gpu.searches import KINDS, SYNTHETIC, BatchReports, SearchSpace, draw
from eval.gpu.study import GpuStudyConfig, read, run_one
from eval.statistics import Interval, Ratio
from tests.support.tiers import few, long

HERE = Inputs()


@pytest.fixture(scope="module")
def config() -> GpuStudyConfig:
    return read()


def small(config: GpuStudyConfig, name: str, changes: Mapping[str, Any]) -> Claim:
    return CLAIMS[name].model_validate({**config.claims[name], **changes})


def test_a_ratio_is_geometric_and_paired() -> None:
    one = Ratio.of([2.0, 8.0], [1.0, 1.0])
    assert one.mean == pytest.approx(4.0)
    assert Ratio.of([1.0, 1.0], [2.0, 8.0]).mean == pytest.approx(0.25)
    same = Ratio.of([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (same.low, same.high) == pytest.approx((2.0, 2.0))
    assert same.above


def test_a_run_that_does_not_end_is_shown_as_such() -> None:
    assert str(Ratio.of([math.inf, 1.0], [1.0, 1.0])) == "never ends"
    assert Ratio.of([math.inf, 1.0], [1.0, 1.0]).above
    assert str(Ratio.of([0.0, 1.0], [1.0, 0.0])) == ""
    assert math.isinf(Interval.of([math.inf, 1.0]).mean)
    assert math.isnan(Interval.of([math.nan, math.inf]).mean), "what is not defined is not infinite"


def test_the_config_names_every_claim_and_policies_that_exist(config: GpuStudyConfig) -> None:
    assert set(config.claims) == set(CLAIMS)
    assert config.seeds >= 10
    used = set()
    for name in config.claims:
        claim = config.claim(name)
        assert set(claim.judged()) <= set(claim.cells())
        for cell in claim.cells():
            names = [one.name for one in claim.contenders(cell)]
            assert len(names) == len(set(names))
            for one in claim.contenders(cell):
                assert one.build().name == one.policy
                used.add(one.policy)
    assert used <= set(GPU_POLICIES)


def test_unknown_keys_of_a_claim_are_errors(config: GpuStudyConfig) -> None:
    with pytest.raises(ValidationError, match="nods"):
        small(config, "pollux", {"nods": 3})


def space(config: GpuStudyConfig) -> SearchSpace:
    claim = config.claim("hermes")
    assert isinstance(claim, HermesClaim)
    return claim.space


@pytest.mark.parametrize("measured", ["", "perceptron, finite data"])
def test_good_configurations_reach_the_target_and_no_others(config: GpuStudyConfig, measured: str) -> None:
    one = space(config)
    reports = BatchReports(recorded_noise(measured), 4) if measured else None
    assert set(one.bad) == set(KINDS) - {"good"}
    for seed in range(5):
        search = draw(one, 64, 8, SYNTHETIC, seed, reports=reports)
        assert sum(configuration.good for configuration in search) == 8
        for configuration in search:
            assert len(configuration.losses) == one.epochs + 1
            reached = any(loss <= one.target_loss for loss in configuration.losses)
            assert reached == configuration.good
            assert any(math.isnan(loss) for loss in configuration.losses) == (configuration.kind == "diverging")


def test_a_search_is_drawn_from_its_seed(config: GpuStudyConfig) -> None:
    assert repr(draw(space(config), 16, 2, SYNTHETIC, 1)) == repr(draw(space(config), 16, 2, SYNTHETIC, 1))
    assert repr(draw(space(config), 16, 2, SYNTHETIC, 1)) != repr(draw(space(config), 16, 2, SYNTHETIC, 2))
    flat = draw(space(config), 16, 2, SYNTHETIC, 1, "flat")
    assert {configuration.kind for configuration in flat} == {"good", "flat"}


def test_reports_of_a_search_deviate_as_was_measured(config: GpuStudyConfig) -> None:
    claim = config.claim("hermes")
    assert isinstance(claim, HermesClaim)
    assert len(claim.measured) == 6
    plain = claim.search("4 of 64", 1, Inputs())
    for name in claim.measured:
        (cell,) = (cell for cell in claim.judged() if cell.endswith(name))
        search = claim.search(cell, 1, Inputs())
        deviation = recorded_noise(name).deviations[-1]
        flat = [one.losses for one in search if one.kind == "flat"]
        assert np.mean([np.std(np.diff(one)) / np.mean(one) for one in flat]) == pytest.approx(2**0.5 * deviation, rel=0.3)
        assert {one.kind for one in search} == {one.kind for one in plain}
        calm = claim.model_copy(update={"space": claim.space.model_copy(update={"unstable_noise": 0.0})})
        other = calm.search(cell, 1, Inputs())
        assert {one.kind for one, calm in zip(search, other, strict=True) if one.losses != calm.losses} >= {"unstable"}
        again = claim.model_copy(update={"report_batches": 1}).search(cell, 1, Inputs())
        assert [one.losses for one in again] != [one.losses for one in search]


@pytest.mark.parametrize("policy", [{"policy": "hermes", "parameters": {"hysteresis": 0.0}}, *long({"policy": "round-robin"})])
def test_the_closed_form_is_met(config: GpuStudyConfig, policy: dict[str, Any]) -> None:
    form = config.claims["hermes"]["closed_form"]
    claim = small(config, "hermes", {"closed_form": {**form, "jobs": 20, "gpus": 2, "iterations": 60}})
    contender = GpuContender.model_validate(
        policy | ({"parameters": {"quantum_s": 1.0}} if policy["policy"] == "round-robin" else {})
    )
    assert claim.run(CLOSED_FORM, contender, 1, HERE)["ratio"] == pytest.approx(1.0, abs=0.05)


def test_synchronisation_takes_longer_over_more_nodes() -> None:
    job = ExchangingProfile(HyperbolicLoss(1.0, 0.1, 10.0), 64, 1.0, 0.1, 0.05, 0.4)
    alone, near, far = (job.step_s(Grant.of(gpus), 64) for gpus in ({"a": 1}, {"a": 4}, {"a": 2, "b": 2}))
    assert alone == (pytest.approx(1.1), 0.0)
    assert near[0] < far[0]
    assert far[1] / near[1] == pytest.approx(8.0)


def test_measured_speeds_are_kept_and_others_lie_between_them() -> None:
    speeds = SpeedTable("m", 32, {(1, 1): 1.0, (2, 2): 3.0, (4, 4): 4.0})
    assert speeds.at(2, 2) == 3.0
    assert 1.0 < speeds.at(3, 3) < 4.0
    job = ParameterServerProfile(speeds, HyperbolicLoss(1.0, 0.1, 10.0))
    assert job.step_s(Grant.of({"a": 2}), 32) == job.step_s(Grant.of({"a": 2}, {"b": 2}), 32)


def test_jobs_end_when_an_epoch_brings_little() -> None:
    for epochs in (20, 60):
        loss = HyperbolicLoss(1.0, 0.2, _half(0.8, epochs))
        drops = -np.diff([loss.at(epoch) for epoch in range(epochs + 2)])
        assert drops[-2] > CONVERGED >= drops[-1] * (1 - 1e-9)


def test_costs_are_the_contenders_then_measured_then_stated() -> None:
    stated, measured = CostsConfig(restart_s=3.0), Costs(0.1, 0.1, 2.0)
    plain, own = GpuContender(policy="fifo"), GpuContender(policy="fifo", costs=CostsConfig(restart_s=9.0))
    assert Inputs().costs_of(plain, stated).restart_s == 3.0
    assert Inputs(costs=measured).costs_of(plain, stated) == measured
    assert Inputs(costs=measured).costs_of(own, stated).restart_s == 9.0


SMALL: Mapping[str, Mapping[str, Any]] = {
    "hermes": {"configurations": 8, "good": [1, 2], "kinds_good": 1, "nodes": 1},
    "optimus": {"jobs": 3, "span_s": 1000.0, "hours": [0.2, 0.4]},
    "ones": {"jobs": 6},
    "elastic": {"mixes": {"few": {"jobs": 6, "burst": 2, "bursts": 1, "gap_s": 60.0, "hours": 0.1, "spread": 0.5,
                                  "sizes": [1, 2, 8], "least": 1, "most": 16}}},
    "pollux": {"jobs": 6, "span_s": 600.0},
}  # fmt: skip


@pytest.mark.parametrize("name", few(CLAIMS, {"hermes", "elastic"}))
def test_a_small_cell_of_every_claim_from_end_to_end(config: GpuStudyConfig, name: str, tmp_path: Path) -> None:
    policies = [
        one for one in config.claims[name]["policies"] if one in ("fifo", "hermes", "elastic", "optimus", "k8s-default")
    ]
    if name in ("ones", "pollux"):
        policies = [name, *policies]
    claim = small(config, name, {**SMALL[name], "policies": policies})
    cell = claim.judged()[0]
    runs = {one.name: [run_one(claim, cell, one, seed, HERE) for seed in (1, 2)] for one in claim.contenders(cell)}
    for figures in (figures for done in runs.values() for figures in done):
        assert all(math.isfinite(value) for value in figures.values())
        assert all(figures[metric.key] > 0 for metric in claim.metrics)
    again = run_one(claim, cell, claim.contenders(cell)[0], 1, HERE)
    first = runs[claim.contenders(cell)[0].name][0]
    assert {key: again[key] for key in again if key not in ("cpu_s", "decision_ms")} == {
        key: first[key] for key in first if key not in ("cpu_s", "decision_ms")
    }
    assert all(table.row_count for table in claim.tables({cell: runs}) if cell in str(table.title) or len(table.columns) > 2)
    figure = Figure()
    claim.draw({cell: runs}, figure)
    figure.savefig(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "synthetic" in claim.describe(HERE)


def test_the_verdict_names_who_is_better_than_ours(config: GpuStudyConfig) -> None:
    claim = small(config, "optimus", {"policies": ["optimus", "drf", "convergence"]})
    times = {"optimus": (1.0, 2.0, 4.0), "drf": (3.0, 6.0, 12.0), "convergence": (2.0, 4.0, 8.0)}
    runs = {name: [{"jct_s": value, "p99_s": value, "makespan_s": 1.0} for value in values] for name, values in times.items()}
    assert ratio(runs, claim.metrics[0], "drf", "convergence").mean == pytest.approx(1.5)
    table = verdicts([(claim, {claim.judged()[0]: runs})])
    assert table.row_count == 3
    assert list(table.columns[-1].cells) == ["optimus", "optimus", "none"]
    worse = verdicts([(claim, {claim.judged()[0]: runs})], only_worse=True)
    assert list(worse.columns[-1].cells) == ["optimus", "optimus"]
    counts = tally([(claim, {claim.judged()[0]: runs})])
    assert [list(column.cells) for column in counts.columns][3:] == [["3"], ["2"], ["1.00"], ["2.00"], ["2.00"]]


def test_a_verdict_leaves_out_who_knows_more(config: GpuStudyConfig) -> None:
    blind = {"policy": "convergence", "blind": True, "label": "convergence"}
    claim = small(config, "optimus", {"policies": ["srtf", "drf", blind, {"policy": "convergence", "label": "told"}]})
    times = {"srtf": (1.0, 2.0), "drf": (3.0, 6.0), "convergence": (2.0, 4.0), "told": (2.0, 4.0)}
    runs = {name: [{"jct_s": value, "p99_s": value, "makespan_s": value} for value in values] for name, values in times.items()}
    found = {(one.ours, one.best, one.worse_than) for one in verdicts_of(claim, {claim.judged()[0]: runs})}
    assert found == {("convergence", "drf", ()), ("told", "srtf", ("srtf",))}


def test_a_verdict_on_users_batch_sizes_leaves_out_who_chooses_others(config: GpuStudyConfig) -> None:
    def ours(tuned: bool, label: str) -> dict[str, object]:
        return {"policy": "convergence", "blind": True, "tuned": tuned, "label": label}

    free = {"policy": "pollux", "tuned": False, "label": "pollux"}
    claim = small(
        config, "pollux", {"policies": [free, "drf", ours(True, "convergence"), ours(False, "convergence, free jobs")]}
    )
    times = {"pollux": (1.0, 2.0), "drf": (3.0, 6.0), "convergence": (2.0, 4.0), "convergence, free jobs": (2.0, 4.0)}
    runs = {name: [{"jct_s": value, "p99_s": value, "makespan_s": value} for value in values] for name, values in times.items()}
    found = {(one.ours, one.best, one.worse_than) for one in verdicts_of(claim, {claim.judged()[0]: runs})}
    assert found == {("convergence", "drf", ()), ("convergence, free jobs", "pollux", ("pollux",))}


def test_who_is_better_than_ours_comes_first_with_what_it_knows() -> None:
    times = {"drf": (3.0, 6.0, 12.0), "convergence": (2.0, 4.0, 8.0), "optimus": (1.0, 2.0, 4.0)}
    runs = {name: [{"jct_s": value, "m": value} for value in values] for name, values in times.items()}
    knows = {"drf": frozenset[str](), "convergence": frozenset({"the target"}), "optimus": frozenset({"the true end"})}
    shown = by_metric("t", runs, (Metric("jct_s", "JCT"), Metric("m", "m", compared=False)), "optimus", knows=knows)
    assert [column.header for column in shown.columns] == ["policy", "knows", "JCT", "ratio", "m"]
    assert list(shown.columns[0].cells) == ["optimus", "drf", "convergence"]
    assert list(shown.columns[1].cells) == ["the true end", "nothing", "the target"]


class _Watched(GpuPolicy[Stateless]):
    """First come, first served, noting whether it was told ends and targets."""

    name = "watched"
    State = Stateless

    def __init__(self) -> None:
        self.seen: set[tuple[bool, bool]] = set()

    def allocate(self, state: Stateless, cluster: Any, jobs: Any, now: float, rng: Any) -> Any:
        self.seen |= {(job.request.known_end, job.request.target_loss is not None) for job in jobs}
        return Fifo().allocate(state, cluster, jobs, now, rng)


class _WatchedContender(GpuContender):
    watched: ClassVar[_Watched]

    def build(self) -> GpuPolicy[Any]:
        return self.watched


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_keeps_from_a_policy_what_it_is_not_told(config: GpuStudyConfig, name: str) -> None:
    claim = small(config, name, SMALL[name])
    for blind, target in ((True, False), (False, True)):
        _WatchedContender.watched = _Watched()
        claim.run(claim.judged()[0], _WatchedContender(policy="fifo", blind=blind, target=target), 1, HERE)
        assert _WatchedContender.watched.seen == {(not blind, target and claim.target)}
