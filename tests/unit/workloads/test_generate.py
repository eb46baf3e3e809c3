"""Generated workloads: published rung sizes, placements, seeds, and scenario files that everything else accepts."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from beamer.errors import InputError
from beamer.network.collectives import COLLECTIVES
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.sim import Assumptions, simulate
from beamer.workloads.command import workload as command
from beamer.workloads.generate import Workload, generate, write
from beamer.workloads.models import MODELS
from beamer.workloads.placement import PLACEMENTS
from beamer.workloads.scenario import Scenario, load, parse
from beamer.workloads.searches import (
    SEARCHES,
    Hyperband,
    PopulationBased,
    RandomSearch,
    SearchAlgorithm,
    SuccessiveHalving,
    search,
)
from tests.support.tiers import few
from topologies import leaf_spine

LEAF_SPINE = {"shape": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4, "rate": "10gbit"}
SMALL: dict[str, SearchAlgorithm] = {
    "successive-halving": SuccessiveHalving(4, 2, 2),
    "hyperband": Hyperband(4, 2, 1),
    "random": RandomSearch(5, 2, 3),
    "population-based": PopulationBased(3, 2, 3),
}


def sizes(found: SearchAlgorithm) -> list[list[tuple[int, int]]]:
    return [[(rung.jobs, rung.iterations) for rung in bracket] for bracket in found.brackets()]


def test_hyperband_has_the_brackets_of_its_algorithm() -> None:
    assert sizes(Hyperband(resource=81, eta=3, iterations=1)) == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]


def test_a_resource_that_is_no_power_of_eta_is_rounded_down_in_every_rung() -> None:
    assert sizes(Hyperband(resource=10, eta=3, iterations=1)) == [[(9, 1), (3, 3), (1, 10)], [(5, 3), (1, 10)], [(3, 10)]]
    assert sizes(Hyperband(resource=10, eta=3, iterations=9))[0] == [(9, 10), (3, 30), (1, 90)]


@pytest.mark.parametrize("exponent", range(1, 9))
def test_a_power_of_eta_gives_one_bracket_more_than_its_exponent(exponent: int) -> None:
    brackets = Hyperband(resource=10**exponent, eta=10).brackets()  # by floats, log(10^3) / log(10) is below 3
    assert [len(bracket) for bracket in brackets] == list(range(exponent + 1, 0, -1))


def test_successive_halving_goes_on_until_one_is_left() -> None:
    assert sizes(SuccessiveHalving(trials=81, eta=3, iterations=1)) == [[(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)]]
    assert sizes(SuccessiveHalving(trials=10, eta=2, iterations=3)) == [[(10, 3), (5, 6), (2, 12), (1, 24)]]
    assert sizes(SuccessiveHalving(trials=1)) == [[(1, 4)]]


def test_a_survivor_that_resumes_runs_only_what_is_new() -> None:
    assert sizes(SuccessiveHalving(9, 3, 4, resume=True)) == [[(9, 4), (3, 8), (1, 24)]]
    for anew, resumed in zip(Hyperband(81).brackets(), Hyperband(81, resume=True).brackets(), strict=True):
        assert sum(rung.iterations for rung in resumed) == anew[-1].iterations


def test_a_random_search_runs_all_its_trials_in_equal_stages() -> None:
    assert sizes(RandomSearch(trials=10, batch=4, iterations=6)) == [[(4, 6), (4, 6), (2, 6)]]
    assert sizes(RandomSearch(trials=3, batch=4, iterations=6)) == [[(3, 6)]]


def test_generations_of_a_population_are_equal() -> None:
    assert sizes(PopulationBased(trials=5, generations=3, iterations=7)) == [[(5, 7)] * 3]


@pytest.mark.parametrize("found", [*SMALL.values(), Hyperband(81), RandomSearch(10, 4)])
def test_as_many_are_kept_as_the_next_rung_runs(found: SearchAlgorithm) -> None:
    for bracket in found.brackets():
        assert [rung.keep for rung in bracket[:-1]] == [rung.jobs for rung in bracket[1:]]
        assert bracket[-1].keep is None
        assert all(a.jobs >= b.jobs for a, b in pairwise(bracket))


def test_every_kind_of_search_is_found_by_name_with_its_own_settings() -> None:
    assert set(SMALL) == set(SEARCHES)
    assert search("random", trials=5, batch=2, iterations=3) == RandomSearch(5, 2, 3)


@pytest.mark.parametrize(
    ("build", "field", "expected"),
    [
        (lambda: search("randm"), "search", "did you mean 'random'"),
        (lambda: search("hyperband", generations=3), "search.generations", "eta, iterations, resource, resume"),
        (lambda: SuccessiveHalving(trials=0), "search.trials", "at least 1"),
        (lambda: SuccessiveHalving(eta=1), "search.eta", "at least 2"),
        (lambda: SuccessiveHalving(iterations=0), "search.iterations", "at least 1"),
        (lambda: SuccessiveHalving(trials=True), "search.trials", "whole number"),
        (lambda: Hyperband(resource=0), "search.resource", "at least 1"),
        (lambda: Hyperband(eta=1), "search.eta", "at least 2"),
        (lambda: RandomSearch(batch=0), "search.batch", "at least 1"),
        (lambda: RandomSearch(trials=0), "search.trials", "at least 1"),
        (lambda: PopulationBased(generations=0), "search.generations", "at least 1"),
        (lambda: PopulationBased(iterations=1.5), "search.iterations", "whole number"),  # type: ignore[arg-type]
    ],
)
def test_a_search_that_cannot_be_is_refused(build: Any, field: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert caught.value.field == field
    assert expected in caught.value.expected


def leaves(fabric: Fabric, hosts: tuple[str, ...]) -> int:
    return len({fabric.edge_of[host] for host in hosts})


@pytest.mark.parametrize(("processes", "fewest"), [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 4)])
def test_packed_takes_the_fewest_leaves(processes: int, fewest: int) -> None:
    fabric = leaf_spine.build(4, 2, 4)
    for seed in range(20):
        rng = Random(seed)
        load = {host: rng.randrange(5) for host in fabric.host}
        hosts = PLACEMENTS["packed"](fabric, processes, load, rng)
        assert len(set(hosts)) == processes
        assert leaves(fabric, hosts) == fewest
        assert sum(fabric.edge_of[a] != fabric.edge_of[b] for a, b in pairwise(hosts)) == fewest - 1


def test_packed_takes_the_fewest_of_unequal_leaves_and_the_idlest_among_those() -> None:
    fabric = uneven()
    assert leaves(fabric, PLACEMENTS["packed"](fabric, 5, {}, Random(0))) == 2
    busy = dict.fromkeys(("h1", "h2", "h3", "h4"), 9)
    for seed in range(20):
        assert set(PLACEMENTS["packed"](fabric, 3, busy, Random(seed))) == {"h5", "h6", "h7"}
        assert {"h1", "h2", "h3", "h4"} <= set(PLACEMENTS["packed"](fabric, 7, busy, Random(seed)))


def uneven() -> Fabric:
    """Return leaves of four, three and one hosts."""
    data = leaf_spine.build(3, 1, 4).to_dict()
    gone = {"h8", "h10", "h11", "h12"}
    data["hosts"] = [host for host in data["hosts"] if host["name"] not in gone]
    data["links"] = [link for link in data["links"] if not {link["src"], link["dst"]} & gone]
    return Fabric.from_dict(data)


def test_packed_jobs_share_the_hosts_evenly() -> None:
    data = generate(Workload(0, LEAF_SPINE, studies=4, search=RandomSearch(4, 4), workers=(4,)))
    used = Counter(host for study in data["studies"] for trial in study["trials"] for host in trial["workers"])
    assert len(used) == 16
    assert set(used.values()) == {4}


def test_random_placement_is_spread() -> None:
    fabric = leaf_spine.build(4, 2, 4)
    drawn = [PLACEMENTS["random"](fabric, 4, {}, Random(seed)) for seed in range(200)]
    assert all(len(set(hosts)) == 4 for hosts in drawn)
    assert {host for hosts in drawn for host in hosts} == set(fabric.host)
    assert sum(leaves(fabric, hosts) > 1 for hosts in drawn) > 180  # on one leaf: 4 of 1820 sets


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("processes", [0, 17])
def test_no_host_has_two_processes_of_a_job(placement: str, processes: int) -> None:
    with pytest.raises(InputError, match=rf"workers: got {processes}, expected 1 to 16 processes"):
        PLACEMENTS[placement](leaf_spine.build(4, 2, 4), processes, {}, Random(0))


def test_gradients_are_four_bytes_a_parameter_and_sources_are_named() -> None:
    millions = {"resnet50": 25.6, "vgg16": 138.4, "alexnet": 61.1, "mobilenet-v2": 3.5, "inception-v3": 23.9, "vit-b16": 86.6}
    millions |= {"bert-base": 110, "bert-large": 340, "gpt2": 124.4, "gpt2-xl": 1557.6, "dlrm": 2.4}
    for name, count in millions.items():
        assert MODELS[name].gradient_bytes == pytest.approx(4e6 * count, rel=0.02)
    for name, model in MODELS.items():
        assert model.name == name
        assert model.compute_s > 0
        assert model.parameters_source
        assert model.compute_source


def test_the_layers_of_dlrm_add_up() -> None:
    stacks = ([13, 512, 256, 128], [479, 1024, 1024, 512, 256, 1])
    assert MODELS["dlrm"].parameters == sum((a + 1) * b for stack in stacks for a, b in pairwise(stack))


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("collective", few(COLLECTIVES, {"ring"}))
def test_every_combination_is_a_scenario(kind: str, placement: str, collective: str) -> None:
    topologies: list[dict[str, Any]] = [LEAF_SPINE, {"shape": "single", "hosts": 6}, {"shape": "dumbbell", "hosts_per_side": 4}]
    for topology, (arrivals, ratio) in product(topologies, ((None, None), (60.0, 0.5))):
        drawn = Workload(
            seed=5,
            topology=topology,
            studies=2,
            search=SMALL[kind],
            models=("resnet50", "dlrm"),
            collectives={collective: 1, "ring": 1},
            workers=(2, 4),
            servers=2,
            placement=placement,
            arrivals_per_hour=arrivals,
            compute_ratio=ratio,
            bytes_scale=1e-3,
            overlap=0.25,
        )
        scenario = parse(generate(drawn))
        brackets = SMALL[kind].brackets()
        assert len(scenario.studies) == 2 * len(brackets)
        for study, bracket in zip(scenario.studies, brackets * 2, strict=True):
            assert [len(stage.jobs) for stage in study.stages] == [rung.jobs for rung in bracket]
            assert [{job.iterations for job in stage.jobs} for stage in study.stages] == [{r.iterations} for r in bracket]


def test_a_fat_tree_is_a_topology_too() -> None:
    assert len(parse(generate(Workload(0, {"shape": "fat-tree", "k": 4, "rate": "10gbit"}))).fabric.hosts) == 16


def jobs(scenario: Scenario) -> list[Any]:
    return [job for study in scenario.studies for stage in study.stages for job in stage.jobs]


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0, 4.0])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_compute_ratio_holds(ratio: float, collective: str, tmp_path: Path) -> None:
    drawn = Workload(3, LEAF_SPINE, collectives={collective: 1}, workers=(4, 8), placement="random", compute_ratio=ratio)
    write(drawn, tmp_path / "w.yaml")
    scenario = load(tmp_path / "w.yaml")
    for job in jobs(scenario):
        alone = Footprints(scenario.fabric).of(job, 0).gamma_s
        assert alone > 0
        assert job.compute_s == pytest.approx(ratio * alone, rel=1e-9)


def test_without_a_ratio_jobs_compute_as_the_table_says_and_bytes_scale() -> None:
    for job in jobs(parse(generate(Workload(0, LEAF_SPINE, models=("bert-large",), bytes_scale=1e-3)))):
        assert job.compute_s == MODELS["bert-large"].compute_s
        assert job.sync_bytes == 1_360_000
    assert generate(Workload(0, LEAF_SPINE, bytes_scale=1e-12))["studies"][0]["trials"][0]["bytes"] == 1


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_job_alone_takes_what_its_ratio_says(collective: str) -> None:
    drawn = Workload(
        0,
        {"shape": "single", "hosts": 8, "rate": "1gbit"},
        studies=1,
        search=RandomSearch(1, 1, iterations=3),
        collectives={collective: 1},
        compute_ratio=0.5,
    )
    scenario = parse(generate(drawn))
    ((job,),) = [stage.jobs for stage in scenario.studies[0].stages]
    result = simulate(scenario, "fair", assumptions=Assumptions(acknowledgements=False))
    assert result.mean_sct_s == pytest.approx(3 * 1.5 * Footprints(scenario.fabric).of(job, 0).gamma_s, rel=1e-6)


def test_searches_arrive_together_or_as_a_poisson_process() -> None:
    def arrivals(rate: float | None, seed: int = 0) -> list[float]:
        drawn = Workload(seed, LEAF_SPINE, studies=400, search=RandomSearch(1, 1), arrivals_per_hour=rate)
        return [study["arrival_s"] for study in generate(drawn)["studies"]]

    assert set(arrivals(None)) == {0.0}
    times = arrivals(30.0)
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0
    assert sum(gaps) / len(gaps) == pytest.approx(120, rel=0.15)  # three standard errors of 399 gaps
    assert sum(gap < 120 for gap in gaps) / len(gaps) == pytest.approx(0.632, abs=0.08)  # 1 - 1/e
    assert arrivals(30.0, seed=1) != times


def test_brackets_of_a_search_arrive_together_and_tune_one_model() -> None:
    drawn = Workload(0, LEAF_SPINE, studies=5, search=Hyperband(9), models=tuple(MODELS), arrivals_per_hour=10)
    studies = generate(drawn)["studies"]
    for i in range(5):
        of_search = [study for study in studies if study["study"].startswith(f"search{i}-")]
        assert [study["study"][-8:] for study in of_search] == ["bracket2", "bracket1", "bracket0"]
        assert len({study["arrival_s"] for study in of_search}) == 1
        assert len({(t["bytes"], t["collective"], len(t["workers"])) for study in of_search for t in study["trials"]}) == 1


def test_models_collectives_and_sizes_are_drawn_as_often_as_asked() -> None:
    drawn = Workload(
        0,
        LEAF_SPINE,
        studies=600,
        search=RandomSearch(1, 1),
        models=("resnet50", "vgg16"),
        collectives={"ring": 3, "parameter-server": 1},
        workers=(2, 4),
        servers=2,
    )
    trials = [study["trials"][0] for study in generate(drawn)["studies"]]
    assert Counter(t["collective"] for t in trials)["ring"] / 600 == pytest.approx(0.75, abs=0.06)
    assert Counter(len(t["workers"]) for t in trials)[2] / 600 == pytest.approx(0.5, abs=0.07)
    assert Counter(t["bytes"] for t in trials)[MODELS["vgg16"].gradient_bytes] / 600 == pytest.approx(0.5, abs=0.07)
    assert {len(t.get("servers", [])) for t in trials if t["collective"] == "parameter-server"} == {2}
    assert not any("servers" in t for t in trials if t["collective"] == "ring")


@pytest.mark.parametrize("kind", SMALL)
def test_the_seed_decides_the_file(kind: str, tmp_path: Path) -> None:
    def content(seed: int, topology: dict[str, Any]) -> bytes:
        drawn = Workload(seed, topology, search=SMALL[kind], placement="random", arrivals_per_hour=5, compute_ratio=1)
        write(drawn, tmp_path / "w.yaml")
        return (tmp_path / "w.yaml").read_bytes()

    first = content(1, LEAF_SPINE)
    assert content(1, dict(reversed(LEAF_SPINE.items()))) == first
    assert content(2, LEAF_SPINE) != first
    assert b"&id" not in first


def test_a_written_file_is_what_was_generated(tmp_path: Path) -> None:
    drawn = Workload(1, LEAF_SPINE, arrivals_per_hour=5, compute_ratio=1 / 3, overlap=0.1)
    write(drawn, tmp_path / "w.yaml")
    assert load(tmp_path / "w.yaml") == parse(generate(drawn))


def test_more_searches_leave_the_first_ones_as_they_were() -> None:
    few, many = (generate(Workload(1, LEAF_SPINE, studies=n, placement="random"))["studies"] for n in (2, 4))
    assert many[:2] == few


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--out: got '.*', expected a file that can be written"):
        write(Workload(0, LEAF_SPINE), tmp_path)


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"seed": 1.5}, "seed", "whole number"),
        ({"studies": 0}, "studies", "at least 1"),
        ({"servers": 0}, "servers", "at least 1"),
        ({"name": "a/b"}, "name", "letters"),
        ({"models": ()}, "models", "at least one of alexnet"),
        ({"models": ("resnet5",)}, "models", "did you mean 'resnet50'"),
        ({"collectives": {}}, "collectives", "at least one of all-to-all"),
        ({"collectives": {"rings": 1}}, "collectives", "did you mean 'ring'"),
        ({"collectives": {"ring": 0}}, "collectives.ring", "above 0"),
        ({"collectives": {"ring": float("nan")}}, "collectives.ring", "finite"),
        ({"collectives": {"halving-doubling": 1}, "workers": (4, 6)}, "workers", "a power of two"),
        ({"workers": ()}, "workers", "at least one number"),
        ({"workers": (0,)}, "workers", "at least 1"),
        ({"workers": (17,)}, "workers", "at most 16 processes"),
        ({"workers": (16,), "collectives": {"parameter-server": 1}}, "workers", "at most 16 processes"),
        ({"workers": (1, 4), "compute_ratio": 1.0}, "compute_ratio", "two workers or more"),
        ({"placement": "pack"}, "placement", "did you mean 'packed'"),
        ({"arrivals_per_hour": 0}, "arrivals_per_hour", "above 0"),
        ({"arrivals_per_hour": float("inf")}, "arrivals_per_hour", "finite"),
        ({"compute_ratio": -1}, "compute_ratio", "from 0 to"),
        ({"compute_ratio": float("nan")}, "compute_ratio", "from 0 to"),
        ({"bytes_scale": 0}, "bytes_scale", "above 0"),
        ({"bytes_scale": True}, "bytes_scale", "above 0"),
        ({"overlap": 1.1}, "overlap", "from 0 to 1"),
        ({"compute_ratio": 1e18}, "compute_ratio", "from 0 to 31622400"),
        ({"start_up_s": 1e18}, "start_up_s", "from 0 to 31622400"),
        ({"weights": (1e9,)}, "weights", "from 1e-06 to 1000000"),
        ({"compute_jitter": 1e3}, "compute_jitter", "from 0 to 3"),
        ({"studies": 10**9}, "studies", "to 1048576"),
        ({"start_up_s": -0.5}, "start_up_s", "from 0 to"),
        ({"start_up_s": float("nan")}, "start_up_s", "from 0 to"),
        ({"topology": {"shape": "leafspine"}}, "topology.shape", "did you mean 'leaf-spine'"),
        ({"topology": {"leaves": 2}}, "topology.shape", "one of"),
        ({"topology": {**LEAF_SPINE, "leafs": 2}}, "topology.leafs", "did you mean 'leaves'"),
    ],
)
def test_a_workload_that_cannot_be_drawn_is_refused_whatever_the_seed(change: Any, field: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        Workload(**{"seed": 0, "topology": LEAF_SPINE, **change})
    assert caught.value.field == field
    assert expected in caught.value.expected


def run(path: Path, *options: str) -> tuple[str, BaseException | None]:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["--out", str(path), *options])
    return result.output, result.exception


def test_the_command_writes_a_scenario_and_says_what_is_in_it(tmp_path: Path) -> None:
    options = "--search random --trials 6 --set batch=3 --studies 2 --hosts 8 --hosts-per-leaf 2 --spines 3 --rate 40mbit"
    options += " --seed 9 --models dlrm --collectives ring=2,fsdp --workers 2,4 --compute-ratio 0.5 --placement random"
    options += " --start-up 0.5 --name nine"
    output, error = run(tmp_path / "w.yaml", *options.split())
    assert error is None
    assert "2 studies, 4 stages, 12 jobs on 8 hosts" in " ".join(output.split())
    expected = Workload(
        9,
        {"shape": "leaf-spine", "leaves": 4, "hosts_per_leaf": 2, "spines": 3, "rate": "40mbit"},
        studies=2,
        search=RandomSearch(6, 3),
        models=("dlrm",),
        collectives={"ring": 2, "fsdp": 1},
        workers=(2, 4),
        compute_ratio=0.5,
        placement="random",
        start_up_s=0.5,
        name="nine",
    )
    assert load(tmp_path / "w.yaml") == parse(generate(expected))


def test_the_command_takes_any_topology(tmp_path: Path) -> None:
    _, error = run(tmp_path / "w.yaml", "--topology", "{shape: single, hosts: 5, rate: 1gbit}", "--set", "resume=true")
    assert error is None
    assert load(tmp_path / "w.yaml").fabric.name == "single"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--hosts", "15"], "--hosts"),
        (["--hosts-per-leaf", "0"], "--hosts-per-leaf"),
        (["--topology", "single"], "--topology"),
        (["--topology", "{shape"], "--topology"),
        (["--topology", "{shape: single}", "--spines", "2"], "--spines"),
        (["--collectives", "ring=often"], "--collectives"),
        (["--workers", "2,some"], "--workers"),
        (["--search", "hyperband", "--set", "batch=3"], "search.batch"),
        (["--search", "hyperband", "--set", "eta=some"], "search.eta"),
        (["--search", "hyperbnd"], "search"),
        (["--models", ""], "models"),
    ],
)
def test_the_command_names_the_option_that_does_not_fit(options: list[str], field: str, tmp_path: Path) -> None:
    _, error = run(tmp_path / "w.yaml", *options)
    assert isinstance(error, InputError)
    assert error.field == field
    assert not (tmp_path / "w.yaml").exists()


def test_searches_differ_in_budgets_trials_and_weights_alone() -> None:
    alike = Workload(0, LEAF_SPINE, studies=300, search=RandomSearch(4, 4, iterations=1000))
    apart = replace(alike, budget_spread=8.0, trials=(2, 4), weights=(1.0, 3.0))
    studies = generate(apart)["studies"]
    budgets = sorted(study["rungs"][0]["iterations"] / 1000 for study in studies)
    assert 1 / 8 <= budgets[0] < 1 / 7
    assert 7 < budgets[-1] <= 8
    assert budgets[150] == pytest.approx(1, rel=0.2), "as many below as above"
    assert {len(study["trials"]) for study in studies} == {2, 4}
    assert Counter(study.get("weight", 1.0) for study in studies)[3.0] == pytest.approx(150, abs=40)
    assert [study["study"] for study in studies] == [study["study"] for study in generate(alike)["studies"]]


def test_trials_differ_in_computing_alone() -> None:
    alike = Workload(0, LEAF_SPINE, search=RandomSearch(400, 400), models=("resnet50",), placement="random")
    apart = replace(alike, compute_jitter=0.2)
    trials, same = (generate(workload)["studies"][0]["trials"] for workload in (apart, alike))
    logs = np.log([trial["compute_s"] / MODELS["resnet50"].compute_s for trial in trials])
    assert np.mean(logs) == pytest.approx(0, abs=0.04)
    assert np.std(logs) == pytest.approx(0.2, rel=0.15)
    assert [trial | {"compute_s": 0} for trial in trials] == [trial | {"compute_s": 0} for trial in same]


@pytest.mark.parametrize(
    ("field", "value", "search"),
    [
        ("compute_jitter", -0.1, RandomSearch()),
        ("budget_spread", 0.5, RandomSearch()),
        ("weights", (0.0,), RandomSearch()),
        ("weights", (), RandomSearch()),
        ("trials", (0,), RandomSearch()),
        ("trials", (3,), Hyperband()),
    ],
)
def test_differences_that_cannot_be_drawn_are_named(field: str, value: Any, search: Any) -> None:
    with pytest.raises(InputError, match=field):
        Workload(0, LEAF_SPINE, search=search, **{field: value})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"arrivals_per_hour": 1e-300}, "arrivals_per_hour"),
        ({"bytes_scale": 1e9}, "bytes_scale"),
        ({"compute_ratio": 3e7, "bytes_scale": 1e3}, "compute_ratio"),
        ({"budget_spread": 2**40}, r"search\.iterations"),
    ],
)
def test_what_no_scenario_may_have_is_not_drawn(change: dict[str, Any], field: str) -> None:
    workload = Workload(0, LEAF_SPINE, studies=64, **change)
    with pytest.raises(InputError, match=field):
        generate(workload)


@pytest.mark.parametrize(("field", "value"), [("trials", 10**12), ("iterations", 2**41), ("eta", 2**41)])
def test_a_search_that_no_study_can_declare_is_refused(field: str, value: int) -> None:
    with pytest.raises(InputError, match=f"search.{field}: got {value}, expected a whole number of at most"):
        SuccessiveHalving(**{field: value})
