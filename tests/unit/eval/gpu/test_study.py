"""The study of GPU policies as a whole: keys of runs, chosen parameters, conditions, results files and the docs' tables."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from beamer.errors import InputError
from beamer.gpu.model import Costs
from eval.documents import markdown, rewritten
from eval.gpu import documents, regions, tuning
from eval.gpu.claim import SENSITIVITY, contenders
from eval.gpu.claims import CLAIMS, Claim, GpuContender, Inputs
from eval.gpu.command import gpu
from eval.gpu.dl2 import read_speeds
from eval.gpu.results_file import ClaimResults, StudyResults, read_results
from eval.gpu.study import GpuStudyConfig, Run, Runner, grouped, read, runs_of
from eval.json_lines import json_lines
from eval.resume import ResultCache

HERE = Inputs()
SMALL = {"jobs": 3, "span_s": 1000.0, "hours": [0.2, 0.4], "sensitivity": ["optimus"]}


@pytest.fixture(scope="module")
def config() -> GpuStudyConfig:
    return read()


def optimus(config: GpuStudyConfig, **changes: Any) -> Claim:
    return config.claim("optimus", {**SMALL, "policies": ["optimus", "drf", "tetris"], **changes})


def runner(folder: Path) -> Runner:
    return Runner(ResultCache(folder), 1, Console(file=io.StringIO()))


def test_a_key_follows_all_that_determines_a_run_and_nothing_else(config: GpuStudyConfig) -> None:
    claim = optimus(config)
    drf = GpuContender(policy="drf")
    key = Run(claim, "9 jobs", drf, 1).key(HERE)
    assert Run(optimus(config, policies=["drf"]), "9 jobs", drf, 1).key(HERE) == key, "who else runs"
    assert Run(claim, "9 jobs", GpuContender(policy="drf", label="d"), 1).key(HERE) == key, "what tables call it"
    others = [
        Run(optimus(config, jobs=4), "9 jobs", drf, 1).key(HERE),
        Run(claim, SENSITIVITY, drf, 1).key(HERE),
        Run(claim, "9 jobs", GpuContender(policy="drf", parameters={"interval_s": 5.0}), 1).key(HERE),
        Run(claim, "9 jobs", GpuContender(policy="tetris"), 1).key(HERE),
        Run(claim, "9 jobs", GpuContender(policy="drf", blind=True), 1).key(HERE),
        Run(claim, "9 jobs", drf, 2).key(HERE),
        Run(claim, "9 jobs", drf, 1).key(Inputs(costs=Costs(0.0, 0.0, 1.0))),
    ]
    assert len({key, *others}) == len(others) + 1


def test_a_key_follows_the_committed_results_that_a_run_reads(
    config: GpuStudyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, fifo, keys = optimus(config), GpuContender(policy="fifo"), set()
    for name, deviation, by in (("a", 0.1, "one"), ("b", 0.2, "one"), ("c", 0.2, "another")):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"config": {}, "runs": {"cell": deviation}, "made_with": by}))
        monkeypatch.setattr(type(claim), "recorded", (path,))
        keys.add(Run(claim, "9 jobs", fifo, 1).key(HERE))
    assert len(keys) == 2


def test_cells_that_compare_parameters_have_fewer_seeds(config: GpuStudyConfig) -> None:
    claim = optimus(config)
    seeds = [(run.cell, run.contender.name) for run in runs_of(claim, config)]
    assert seeds.count(("9 jobs", "drf")) == config.seeds
    assert seeds.count((SENSITIVITY, "optimus")) == config.parameter_seeds
    assert {run.cell for run in runs_of(claim, config, "9")} == {"9 jobs"}
    few = runs_of(optimus(config, seeds=3), config)
    assert {run.seed for run in few} == set(config.drawn[:3])
    assert few[0].key(HERE) == runs_of(claim, config)[0].key(HERE), "how many there are is not part of a run"


def test_the_budget_is_that_of_every_policy_on_seeds_of_its_own(config: GpuStudyConfig) -> None:
    budget = tuning.read()
    tuning.check_budget(budget, config.drawn)
    for name, one in budget.claims.items():
        claim = config.claim(name)
        ours = len(one.policies["convergence"])
        for policy, several in one.policies.items():
            assert len(several) >= ours, f"{policy} has less than ours"
            assert len(tuning.settings(claim, one, policy)) == len(several) + 1
        fixed = {"fifo", "k8s-default"}
        assert {each.policy for each in contenders(claim.policies)} == {*one.policies, *fixed & {
            each.policy for each in contenders(claim.policies)
        }}  # fmt: skip
    with pytest.raises(InputError, match="first_seed"):
        tuning.check_budget(budget, range(budget.first_seed, budget.first_seed + 1))
    with pytest.raises(InputError, match="at most"):
        tuning.check_budget(budget.model_copy(update={"most_settings": 1}), config.drawn)


def test_the_best_setting_is_chosen_and_used(config: GpuStudyConfig, tmp_path: Path) -> None:
    claim = optimus(config)
    budget = tuning.TuningConfig.model_validate(
        {"seeds": 2, "first_seed": 101, "most_settings": 3,
         "claims": {"optimus": {"cell": "9 jobs", "policies": {"optimus": [{"interval_s": 60.0}, {"interval_s": 1e6}]}}}}
    )  # fmt: skip
    found = tuning.tune(claim, budget, runner(tmp_path / "cache"), HERE)
    means = [one.mean for one in found["optimus"].tried]
    assert len(means) == 3
    assert means.index(min(means)) != 2, "a round in twelve days"
    assert found["optimus"].runs == 6
    assert found["optimus"].chosen == found["optimus"].tried[means.index(min(means))].parameters
    tuning.write(budget, {"optimus": found}, tmp_path / "chosen.json")
    tuned = tuning.read_chosen(tmp_path / "chosen.json")
    kept = tuned.claims["optimus"]["optimus"]
    assert kept.chosen == found["optimus"].chosen
    assert [one.mean for one in kept.tried] == pytest.approx(means)
    assert tuned.table(claim).row_count == 1
    other = tuned.model_copy(
        update={"claims": {"optimus": {"optimus": found["optimus"].model_copy(update={"chosen": {"interval_s": 7.0}})}}}
    )
    chosen = {one.name: one.parameters for one in other.applied(claim).contenders("9 jobs")}
    assert chosen == {"optimus": {"interval_s": 7.0}, "drf": {}, "tetris": {}}
    assert tuning.read_chosen(tmp_path / "none.json").applied(claim).contenders("9 jobs") == claim.contenders("9 jobs")


def test_conditions_are_parts_of_the_claims_sections(config: GpuStudyConfig) -> None:
    grids = regions.read()
    for name, one in grids.claims.items():
        for point in (regions.points(one)[0], regions.points(one)[-1]):
            changes = {path: value for path, value in point.items() if path != regions.CELL}
            claim = config.claim(name, regions.changed(config.claims[name], changes))
            assert {each.metric for each in one.published} <= {metric.key for metric in claim.metrics}
            assert {one.policy, *(each.baseline for each in one.published)} <= {
                each.name for each in contenders(claim.policies)
            }
        assert all(not each.names or len(each.names) == len(each.values) for each in one.conditions.values())
    with pytest.raises(InputError, match="nodse"):
        regions.changed(config.claims["ones"], {"nodse": 1})
    with pytest.raises(InputError, match="tiresia'"):
        regions.changed(config.claims["ones"], {"policies.tiresia.tuned": False})
    before = json.dumps(config.claims["ones"])
    regions.changed(config.claims["ones"], {"policies.tiresias.tuned": False, "nodes": 1})
    assert json.dumps(config.claims["ones"]) == before


def test_a_grid_is_searched_summarised_and_drawn(config: GpuStudyConfig, tmp_path: Path) -> None:
    study = config.model_copy(update={"claims": {**config.claims, "optimus": {**config.claims["optimus"], **SMALL}}})
    grids = regions.RegionsConfig.model_validate(
        {"seeds": 2, "first_seed": 1, "claims": {"optimus": {
            "policy": "optimus", "cell": "9 jobs",
            "published": [{"baseline": "tetris", "metric": "jct_s", "factor": 1e-3},
                          {"baseline": "drf", "metric": "jct_s", "factor": 1e3, "up_to": True}],
            "conditions": {"gpu_nodes": {"label": "nodes", "values": [2, 3]},
                           "span_s": {"label": "span (s)", "values": [10.0, 5000.0]},
                           "costs.restart_s": {"label": "restart", "values": [1.0, 60.0], "names": ["short", "long"]}}}}}
    )  # fmt: skip
    found = regions.search(study, "optimus", grids, runner(tmp_path / "cache"), HERE)
    regions.write({"optimus": found}, tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["optimus"]["policy"] == "optimus"
    table = regions.summary("optimus", found)
    assert list(table.columns[2].cells) == ["8 of 8", "none of 8"]
    assert list(table.columns[1].cells) == ["0.00", "up to 1000.00"]
    best = max(found["factors"][1]["values"])[0]
    assert str(list(table.columns[4].cells)[1]).startswith(f"{best:.2f} [")
    figure = Figure()
    regions.draw(found, figure)
    figure.savefig(tmp_path / "p.png")
    texts = [text.get_text() for text in figure.axes[1].texts]
    assert len(texts) == 4
    assert f"{best:.2f}" in texts
    # where jobs never end under a baseline nothing is compared
    found["factors"][0]["values"][:2] = [[math.nan] * 3] * 2
    assert list(regions.summary("optimus", found).columns[2].cells) == ["6 of 6", "none of 8"]
    figure = Figure()
    regions.draw(found, figure)
    assert [len(axes.texts) for axes in figure.axes[:2]] == [3, 4]
    assert [figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()] == ["nodes", "span (s)"]


def study_results(config: GpuStudyConfig, folder: Path) -> StudyResults:
    changed = config.model_copy(
        update={"seeds": 2, "claims": {"optimus": {**config.claims["optimus"], **SMALL, "policies": ["optimus", "drf"]}}}
    )
    claim = changed.claim("optimus")
    runs = runs_of(claim, changed)
    cells = grouped(runs, runner(folder).run(runs, HERE, "t"))
    return StudyResults(changed, tuning.Tuned(seeds=(), claims={}), [ClaimResults.of(claim, changed.drawn, HERE, cells)])


def test_the_tables_follow_from_the_results_file(config: GpuStudyConfig, tmp_path: Path) -> None:
    results = study_results(config, tmp_path / "cache")
    results.write(tmp_path / "gpu.json")
    again = read_results(tmp_path / "gpu.json")
    text = "before\n<!-- begin: eval gpu optimus -->\n<!-- end -->\nafter\n"
    written = rewritten(text, documents.sections(results, {}, {}))
    files = tmp_path / "gpu.json", tmp_path / "none.json", tmp_path / "none.json"
    assert documents.current(text, *files) == written
    assert documents.current(written, *files) == written, "it replaces what is there"
    assert "| policy | knows |" in written
    assert "| drf | nothing |" in written
    assert "parameters of optimus" not in written, "docs show what is compared"
    assert written.endswith("<!-- end -->\nafter\n")
    assert list(again.times().columns[1].cells) == ["6"]
    with pytest.raises(InputError, match="optimum"):
        rewritten(text.replace("optimus", "optimum"), documents.sections(again, {}, {}))


def test_a_results_file_keeps_the_claims_that_are_not_run(config: GpuStudyConfig, tmp_path: Path) -> None:
    results, file = study_results(config, tmp_path / "cache"), tmp_path / "gpu.json"
    both = replace(results, config=config.model_copy(update={"seeds": 2, "claims": {**results.config.claims, "ones": {}}}))
    both.write(file)
    held = json.loads(file.read_text())
    file.write_text(json.dumps({**held, "claims": {"ones": held["claims"]["optimus"]}}))
    both.write(file)
    assert json.loads(file.read_text())["claims"].keys() == {"ones", "optimus"}

    def tuned(chosen: dict[str, Any], mean: float) -> tuning.Tuned:
        tried = tuning.TriedSetting(parameters={}, mean=mean)
        policies = {"convergence": tuning.TunedPolicy(chosen=chosen, runs=1, tried=(tried,))}
        return tuning.Tuned(seeds=(101,), claims={"ones": policies})

    before = {**held, "tuned": tuned({}, 1.0).model_dump(mode="json"), "claims": {"ones": held["claims"]["optimus"]}}
    for later, kept in ((tuned({}, 2.0), {"ones", "optimus"}), (tuned({"horizon_s": 1200.0}, 1.0), {"optimus"})):
        file.write_text(json.dumps(before))
        replace(both, tuned=later).write(file)
        assert json.loads(file.read_text())["claims"].keys() == kept, "those of the same parameters, whatever they measured"
    for changes, kept in (({"seeds": 3}, {"optimus"}), ({"claims": {**both.config.claims, "pollux": {}}}, {"ones", "optimus"})):
        file.write_text(json.dumps(held | {"claims": {"ones": held["claims"]["optimus"]}}))
        replace(both, config=both.config.model_copy(update=changes)).write(file)
        assert json.loads(file.read_text())["claims"].keys() == kept, "those of the same seeds, whatever other claims have"
    results.write(file)
    assert json.loads(file.read_text())["claims"].keys() == {"optimus"}, "another config's are not kept"


def test_measured_data_that_lack_a_folder_are_refused(tmp_path: Path) -> None:
    assert Inputs().folder("dl2") is None
    with pytest.raises(InputError, match="a folder that holds dl2/"):
        Inputs(tmp_path).folder("dl2")
    (tmp_path / "dl2").mkdir()
    with pytest.raises(InputError, match=r"config_speed\.txt"):
        read_speeds(tmp_path / "dl2" / "config_speed.txt")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--tune"], "--data"),
        (["--regions"], "--data"),
        (["--tune", "--docs"], "one of them"),
        (["--claim", "optimus", "--cells", "nosuch"], "cells"),
        (["--claim", "optimus", "--data", "."], "dl2/"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    arguments: list[str], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(gpu)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert field in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_table_in_markdown() -> None:
    table = Table(title="a title")
    table.add_column("x")
    table.add_column("y|z")
    table.add_row("1", "2")
    assert markdown(table) == "A title:\n\n| x | y\\|z |\n|---|---|\n| 1 | 2 |\n"


def test_json_has_a_line_per_entry_down_to_a_depth() -> None:
    value = {"a": {"b": [1.0, 1 / 3], "c": {"d": math.inf}}, "e": {}}
    text = json_lines(value, 2)
    assert text == '{\n "a": {\n  "b": [1.0, 0.3333333],\n  "c": {"d": Infinity}\n },\n "e": {}\n}\n'
    assert json.loads(text)["a"]["c"] == {"d": math.inf}


def test_every_claim_that_states_a_target_says_so(config: GpuStudyConfig) -> None:
    told = {name: config.claim(name).target for name in CLAIMS}
    assert told == {name: name == "hermes" for name in CLAIMS}
