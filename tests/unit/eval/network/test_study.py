"""The study's arithmetic, its config, and one of its cells in small."""

import json
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from beamer.decision.policy import Stateless
from beamer.network.allocation import Classes
from beamer.network.policies import NETWORK_POLICIES, Order
from beamer.network.policies.fair import Fair
from beamer.network.snapshot import Snapshot
from beamer.sim import simulate
from eval import grid
from eval.network.cells import LIVE, Cell, Contender, NetworkConfig, spread_name
from eval.network.command import NETWORK
from eval.network.report import Study
from eval.network.runs import run_bound, run_contender
from eval.network.wrapped import ToldSurvivors
from eval.resume import Task
from eval.statistics import Interval

SMALL = {"studies": 2, "search": {"kind": "successive-halving", "eta": 2, "iterations": 1}, "trials": (2, 4), "workers": (2,)}

POLICIES = ("fair", "sebf", "beamer")  # among whose contenders are some that are live, have ideal rates, know the survivors


@pytest.fixture(scope="module")
def config() -> NetworkConfig:
    return NETWORK.read_config()


@pytest.fixture(scope="module")
def small(config: NetworkConfig) -> Study:
    """Return contenders of every kind on two small cells, two seeds each."""
    cells = {"4 searches": {}, "weighted": {"weights": (1.0, 5.0)}}
    base = config.base.model_copy(update=SMALL)
    group = config.groups["mixed"].model_copy(update={"cells": cells})
    spread = config.spread.model_copy(update={"factors": (1.0, 2.0), "base": {}})
    contenders = tuple(c for c in config.contenders if c.policy in POLICIES)
    changes = {"contenders": contenders, "seeds": 2, "base": base, "groups": {"mixed": group}, "spread": spread}
    reduced = config.model_copy(update=changes)
    runs, bounds = {}, {}
    for name, cell in reduced.cells().items():
        runs[name] = {c.name: [run_contender(cell, c, 8, seed) for seed in (1, 2)] for c in contenders}
        bounds[name] = [run_bound(cell, seed) for seed in (1, 2)]
    return Study(reduced, runs, bounds)


def study(config: NetworkConfig, **figures: list[dict[str, float]]) -> Study:
    return Study(config, {"4 searches": figures}, {})


def tasks(config: NetworkConfig, name: str) -> dict[str, list[Task]]:
    return NETWORK.tasks(config, name, config.cells()[name])


def test_an_interval_is_students() -> None:
    interval = Interval.of([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(4.302653 / 3**0.5)  # t for 2 degrees of freedom at 97.5 %


def test_ratios_are_paired_by_seed(config: NetworkConfig) -> None:
    a, b = ([{"mean_s": mean} for mean in means] for means in ((2.0, 20.0, 200.0), (1.0, 10.0, 100.0)))
    ratio = study(config, a=a, b=b).ratio("4 searches", "a", "b")
    assert (ratio.low, ratio.mean, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert study(config, a=a, b=b).overall(["4 searches"], "b", "a") == pytest.approx(0.5)


@pytest.mark.long
def test_contenders_that_take_long_are_run_less_and_compared_over_the_seeds_that_they_ran(config: NetworkConfig) -> None:
    few, small = Contender(policy="fair", most_seeds=2), Contender(policy="sebf", most_studies=4)
    limited = config.model_copy(update={"contenders": (Contender(policy="beamer"), few, small)})
    four, eight = (tasks(limited, name) for name in ("4 searches", "8 searches"))
    assert {who: len(tasks) for who, tasks in four.items()} == {"beamer": 30, "fair": 2, "sebf": 30, "bound": 30}
    assert {who: len(tasks) for who, tasks in eight.items()} == {"beamer": 30, "fair": 2, "bound": 30}
    whole = limited.model_copy(update={"contenders": (Contender(policy="fair"),)})
    assert [task.key for task in tasks(whole, "4 searches")["fair"]][:2] == [task.key for task in four["fair"]]

    figures = {"beamer": [1.0, 2.0, 3.0], "fair": [2.0, 4.0], "sebf": [1.0, 1.0, 6.0]}
    runs = {
        who: [{"mean_s": mean, "p95_s": mean, "stretch": 1.0, "decide_p99_s": 0.0} for mean in of]
        for who, of in figures.items()
    }
    cells = {"4 searches": runs, "8 searches": {who: of for who, of in runs.items() if who != "sebf"}}
    bounds = {cell: [{"bound": "barrier", "bound_s": 1.0}] * 3 for cell in cells}
    tables = Study(limited, cells, bounds).tables()
    means = [list(column.cells) for column in tables["mixed"][0].columns]
    assert str(tables["mixed"][0].title).endswith("; 2 to 3 seeds, 95% intervals")
    assert means[1][0] == "2.00 [2.00, 2.00]"
    assert means[2][1:] == ["", ""], "no figure where it was not run, and no mean over cells either"
    assert list(tables["mixed bound"][0].columns[3].cells) == ["1.667 ±2.868", "2.000 ±2.484"], "best found: seed by seed"


def test_every_cell_of_the_config_can_be_drawn(config: NetworkConfig) -> None:
    assert config.seeds >= 30
    for name, cell in config.cells().items():
        work = cell.scenario(config.first_seed)
        assert len(work.studies) >= cell.studies, name
        assert any(study.weight != 1 for study in work.studies) == (len(cell.weights) > 1), name


def test_the_spread_contains_a_cell_of_the_mixed_ones(config: NetworkConfig) -> None:
    """So that its runs are made once."""
    assert config.cells()[spread_name(8)] == config.cells()["8 searches"]


def test_the_cells_differ_by_what_their_names_say(config: NetworkConfig) -> None:
    cells = config.cells()
    drawn = [json.dumps(cell.model_dump(), sort_keys=True) for name, cell in cells.items() if name != spread_name(8)]
    assert len(set(drawn)) == len(drawn)
    for name, cell in cells.items():
        if name.endswith("ratio 0"):
            assert cell.compute_ratio == 0, name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reference", "beamr"),
        ("contenders", [{"policy": "fair"}, {"policy": "fair"}, {"policy": "beamer"}]),
        ("contenders", [{"policy": "sebf"}, {"policy": "beamer"}]),
        ("contenders", [{"policy": "fair", "most_seeds": 2}, {"policy": "beamer"}]),
        ("contenders", [{"policy": "fair"}, {"policy": "beamer", "most_studies": 4}]),
    ],
)
def test_a_config_that_cannot_be_reported_is_refused(config: NetworkConfig, field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        NetworkConfig.model_validate(config.model_dump() | {field: value})


def test_an_unknown_field_is_refused(config: NetworkConfig) -> None:
    with pytest.raises(ValidationError, match="host"):
        Cell.model_validate(config.base.model_dump() | {"hosts": 3})


def test_live_contenders_know_what_controllers_do() -> None:
    live, ideal, told = (
        Contender(policy="beamer"),
        Contender(policy="sebf", allocator="madd"),
        Contender(policy="beamer", survivors=True),
    )
    assert [c.name for c in (live, ideal, told)] == ["beamer", "sebf (madd)", "beamer, told the survivors"]
    assert [c.assumptions.coflows_known for c in (live, ideal, told)] == [False, None, False]


@pytest.mark.long
def test_no_schedule_is_below_the_bound_and_no_stage_faster_than_alone(small: Study) -> None:
    for cell, figures in small.runs.items():
        for runs in figures.values():
            assert all(run["stretch"] >= 1 - 1e-9 for run in runs)
            assert all(
                run["mean_s"] >= bound.get("bound_s", 0) * (1 - 1e-9)
                for run, bound in zip(runs, small.bounds[cell], strict=True)
            )
    assert small.bounds["weighted"] == [{}, {}]
    assert all(bound["bound_s"] > 0 for bound in small.bounds["4 searches"])


def test_means_are_weighted_by_study(small: Study) -> None:
    cell = small.config.cells()["weighted"]
    weights = {seed: {study.name: study.weight for study in cell.scenario(seed).studies} for seed in range(10)}
    seed = next(seed for seed, weight in weights.items() if len(set(weight.values())) == 2)
    stages = simulate(cell.scenario(seed), "fair", assumptions=LIVE, allocator=Classes()).stages
    weighted_s = sum(weights[seed][stage.study] * stage.sct_s for stage in stages)
    measured = run_contender(cell, Contender(policy="fair"), 8, seed)
    assert measured["mean_s"] == pytest.approx(weighted_s / sum(weights[seed][stage.study] for stage in stages))


def test_survivors_are_told_to_those_who_know_them_alone() -> None:
    class Spy(Fair):
        seen: ClassVar[list[frozenset[str]]] = []

        def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
            self.seen.extend(frozenset(rung.survivors) for study in snapshot.studies for rung in study.later)
            return super().order(state, snapshot, now, rng)

    work = NETWORK.read_config().base.model_copy(update=SMALL).scenario(1)
    held = {frozenset(job.name for job in stage.jobs) for study in work.studies for stage in study.stages[1:]}
    for policy, expected in ((ToldSurvivors(Spy(), work), held), (Spy(), {frozenset[str]()})):
        Spy.seen.clear()
        simulate(work, policy, assumptions=LIVE)
        assert set(Spy.seen) == expected


def test_runs_are_kept_by_the_sources_that_they_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "source_digest", lambda modules, without: "|".join(sorted(without)))
    left_out = grid.code_digest.__wrapped__("eval.network.runs", NETWORK_POLICIES["beamer-stage"])
    assert "policies.sebf" in left_out
    assert "policies.beamer_stage" not in left_out
    assert "policies.beamer|" not in left_out, "whose subclass it is"


def test_tables_pictures_and_docs_from_end_to_end(small: Study, tmp_path: Path) -> None:
    tables = small.tables()
    assert {"mixed", "mixed ideal", "mixed bound", "spread", "decisions"} == set(tables)
    assert [table.row_count for table in tables["mixed"]] == [3, 3, 3]
    drawn = NETWORK.committed.draw(small, tmp_path)
    assert [path.name for path in drawn] == [
        f"network-{name}.png" for name in ("mixed", "ideal", "bound", "spread", "decisions")
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    for cell, names in (("4 searches", ["mixed", "ideal", "bound", "decisions"]), (spread_name(2), ["spread", "decisions"])):
        part = Study(small.config, {cell: small.runs[cell]}, {cell: small.bounds[cell]})
        assert list(part.plots()) == names, "no cells, no picture"
        assert part.tables()
    NETWORK.committed.write(small, tmp_path / "network.json")
    read = NETWORK.committed.read(tmp_path / "network.json")
    text = "<!-- begin: eval network mixed -->\n<!-- end -->\n"
    assert NETWORK.committed.current(text, read) == NETWORK.committed.current(text, small)
    assert "| 4 searches |" in NETWORK.committed.current(text, read)


def test_the_committed_config_is_read_where_none_is_named() -> None:
    assert NETWORK.read_config() == NETWORK.read_config(NETWORK.config_file)
