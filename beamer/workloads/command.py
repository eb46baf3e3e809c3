"""`beamer workload`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from beamer.errors import InputError
from beamer.progress import work
from beamer.validation import parsed_settings
from beamer.workloads.generate import Workload, write
from beamer.workloads.scenario import load
from beamer.workloads.searches import SEARCHES
from beamer.workloads.searches import search as build_search
from beamer.yaml_files import parse_yaml


def workload(
    out: Annotated[Path, typer.Option(help="Scenario file (YAML) to write.", dir_okay=False)],
    seed: Annotated[int, typer.Option(help="Decides every draw.")] = 0,
    search: Annotated[str, typer.Option(help=f"Kind of the searches: {', '.join(SEARCHES)}.")] = "successive-halving",
    studies: Annotated[int, typer.Option(help="How many searches share the network.")] = 4,
    trials: Annotated[
        str | None, typer.Option(help="Trials of a search, or members of its population; several with commas, drawn evenly.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Of the first rung, a unit, a trial or a generation.")] = None,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            help="Another setting of the kind, NAME=VALUE; repeatable. eta and resume of both kinds of halving, resource of "
            "hyperband, batch of random, generations of population-based.",
        ),
    ] = [],  # noqa: B006
    budget_spread: Annotated[
        float, typer.Option(help="Iterations of searches differ by a factor of up to this either way, drawn log-uniformly.")
    ] = 1.0,
    weights: Annotated[str, typer.Option(help="Comma-separated weights of searches, drawn evenly.")] = "1",
    hosts: Annotated[int | None, typer.Option(help="Hosts of a leaf-spine network.  [default: 16]")] = None,
    hosts_per_leaf: Annotated[int | None, typer.Option(help="Of a leaf-spine network.  [default: 4]")] = None,
    spines: Annotated[int | None, typer.Option(help="Of a leaf-spine network.  [default: 2]")] = None,
    rate: Annotated[str | None, typer.Option(help="Of its links.  [default: 10gbit]")] = None,
    topology: Annotated[
        str | None, typer.Option(help="Another network, as in a scenario file: '{shape: fat-tree, k: 4, rate: 10gbit}'.")
    ] = None,
    models: Annotated[str, typer.Option(help="Comma-separated models, drawn evenly.")] = "resnet50,vgg16,bert-base",
    collectives: Annotated[str, typer.Option(help="Comma-separated, with relative frequencies: 'ring=3,fsdp=1'.")] = "ring",
    workers: Annotated[str, typer.Option(help="Comma-separated numbers of workers of a job, drawn evenly.")] = "4",
    servers: Annotated[int, typer.Option(help="Parameter servers of a job that has any.")] = 1,
    placement: Annotated[str, typer.Option(help="packed on the fewest leaves, or random.")] = "packed",
    arrivals_per_hour: Annotated[
        float | None, typer.Option(help="Searches arrive as a Poisson process; all together by default.")
    ] = None,
    compute_ratio: Annotated[
        float | None, typer.Option(help="Computing as a multiple of the synchronisation alone; as measured by default.")
    ] = None,
    compute_jitter: Annotated[
        float, typer.Option(help="By which trials of a search differ in computing: standard deviation of the logarithm.")
    ] = 0.0,
    bytes_scale: Annotated[float, typer.Option(help="Factor on the gradients' bytes.")] = 1.0,
    overlap: Annotated[float, typer.Option(help="Share of the computing in which the gradients already move.")] = 0.0,
    start_up: Annotated[float, typer.Option(help="Seconds from a job's start to its first iteration.")] = 0.0,
    name: Annotated[str, typer.Option(help="Of the scenario.")] = "workload",
) -> None:
    """Write a workload of hyper-parameter searches, drawn from a seed, as a scenario file."""
    counts = () if trials is None else tuple(_count(text, "--trials") for text in trials.split(","))
    named_settings = {"trials": counts[0] if len(counts) == 1 else None, "iterations": iterations}
    given = {key: value for key, value in named_settings.items() if value is not None}
    given |= parsed_settings("search", SEARCHES.choose("search", search), settings)
    named = {"--hosts": hosts, "--hosts-per-leaf": hosts_per_leaf, "--spines": spines, "--rate": rate}
    drawn = Workload(
        seed=seed,
        topology=_leaf_spine(hosts, hosts_per_leaf, spines, rate) if topology is None else _other(topology, named),
        studies=studies,
        search=build_search(search, **given),
        trials=counts if len(counts) > 1 else (),
        budget_spread=budget_spread,
        weights=tuple(_amount(text, "--weights") for text in weights.split(",")),
        models=tuple(name.strip() for name in models.split(",")),
        collectives=_frequencies(collectives),
        workers=tuple(_count(text, "--workers") for text in workers.split(",")),
        servers=servers,
        placement=placement,
        arrivals_per_hour=arrivals_per_hour,
        compute_ratio=compute_ratio,
        compute_jitter=compute_jitter,
        bytes_scale=bytes_scale,
        overlap=overlap,
        start_up_s=start_up,
        name=name,
    )
    with work("drawing searches"):
        write(drawn, out)
        plan = load(out)
    stages = [stage for study in plan.studies for stage in study.stages]
    jobs = sum(len(stage.jobs) for stage in stages)
    Console().print(f"{out}: {len(plan.studies)} studies, {len(stages)} stages, {jobs} jobs on {len(plan.fabric.hosts)} hosts")


def _leaf_spine(hosts: int | None, hosts_per_leaf: int | None, spines: int | None, rate: str | None) -> dict[str, Any]:
    how_many = 16 if hosts is None else hosts
    per_leaf = 4 if hosts_per_leaf is None else hosts_per_leaf
    if per_leaf < 1:
        raise InputError("--hosts-per-leaf", per_leaf, "a whole number of at least 1")
    if how_many < 1 or how_many % per_leaf:
        raise InputError("--hosts", how_many, f"a multiple of the {per_leaf} hosts per leaf")
    return {
        "shape": "leaf-spine",
        "leaves": how_many // per_leaf,
        "hosts_per_leaf": per_leaf,
        "spines": 2 if spines is None else spines,
        "rate": "10gbit" if rate is None else rate,
    }


def _other(text: str, named: dict[str, Any]) -> dict[str, Any]:
    for option, value in named.items():
        if value is not None:
            raise InputError(option, value, "no such option beside --topology, which describes the whole network")
    parsed = parse_yaml(text, "--topology")
    if not isinstance(parsed, dict):
        raise InputError("--topology", text, "a mapping such as '{shape: fat-tree, k: 4}'")
    return parsed


def _frequencies(text: str) -> dict[str, float]:
    frequencies: dict[str, float] = {}
    for part in text.split(","):
        name, given, frequency = part.partition("=")
        try:
            frequencies[name.strip()] = float(frequency) if given else 1.0
        except ValueError:
            raise InputError("--collectives", part, "a name, or name=frequency such as ring=3") from None
    return frequencies


def _count(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(option, text, "whole numbers, separated by commas") from None


def _amount(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(option, text, "numbers, separated by commas") from None
