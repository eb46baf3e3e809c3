"""Under which conditions a published factor appears: claims over a grid of conditions, shown as heat maps.

`eval/configs/gpu-regions.yaml` states the grid of each claim. A condition is a part of the claim's section of the study's
config, by its path ("mixes.NAME.gap_s"; of a list of policies, by the policy's name), or the cell, by its name. The first two
conditions are the axes of the maps; at each of their points the map shows the largest factor over all values of the others.
"""

from collections.abc import Mapping
from copy import deepcopy
from itertools import product
from math import isfinite, isnan, log, nan, prod
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from pydantic import Field
from rich.table import Table

from beamer.errors import InputError, nearest
from beamer.yaml_files import read_json, read_mapping
from eval.config_section import ConfigSection
from eval.gpu.claim import contenders
from eval.gpu.claims import CLAIMS, Claim, GpuContender, Inputs
from eval.gpu.study import GpuStudyConfig, Run, Runner
from eval.json_lines import json_lines
from eval.published import PublishedFactor, read_published
from eval.statistics import Ratio

CONFIG = Path(__file__).parent.parent / "configs" / "gpu-regions.yaml"
RESULTS = Path(__file__).parent.parent / "results" / "gpu-regions.json"
LEVELS = 2  # of the file that have a line per entry
CELL = "cell"
MAP_IN = 4.3  # a map's width and height
TITLE_CHARACTERS = 13  # of a title, that fit into an inch
SHOWN_RANGE = 4.0  # times the published factor, up and down, that colours tell apart


class Condition(ConfigSection):
    """label: what maps call it. values: in the order of axes. names: what maps call the values; none: as they are."""

    label: str
    values: tuple[Any, ...]
    names: tuple[str, ...] = ()

    def shown(self) -> tuple[str, ...]:
        """Return what maps call the values."""
        return self.names or tuple(f"{one:g}" if isinstance(one, int | float) else str(one) for one in self.values)


class RegionConfig(ConfigSection):
    """A claim's grid.

    policy: the claim's own. cell: that is run, where it is no condition. published: the factors that are searched for.
    conditions: by path.
    """

    policy: str
    cell: str = ""
    published: tuple[PublishedFactor, ...]
    conditions: dict[str, Condition] = Field(min_length=2)


class RegionsConfig(ConfigSection):
    """The grids by claim, and the seeds of every point."""

    seeds: int = Field(ge=2)
    first_seed: int
    claims: dict[str, RegionConfig]


def read(path: Path = CONFIG) -> RegionsConfig:
    """Return the grids of a config file, with the published factors that are searched for in them."""
    document = read_mapping(path, "the grids", "with claims")
    published = read_published()
    for name, section in document["claims"].items():
        section["published"] = [one for one in published[name].factors if one.searched]
    return RegionsConfig.model_validate(document)


def changed(section: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the config with other values at some paths. Raises `InputError` for a path that is not there."""
    result = deepcopy(dict(section))
    for path, value in changes.items():
        inner: Any = result
        *parents, last = path.split(".")
        for name in parents:
            inner = _inner(inner, name, path)
        if last not in inner and "policy" not in inner:  # a contender's fields may be left out
            raise InputError("conditions", path, nearest(last, list(inner)))
        inner[last] = value
    return result


def _inner(outer: Any, name: str, path: str) -> Any:
    if isinstance(outer, list):
        outer[:] = [{"policy": one, "label": one} if isinstance(one, str) else one for one in outer]
        found = next((one for one in outer if name == one.get("label", one["policy"])), None)
    else:
        found = outer.get(name)
    if found is None:
        raise InputError("conditions", path, f"a path of the claim's section; {name!r} is not there")
    return found


def points(config: RegionConfig) -> list[dict[str, Any]]:
    """Return the values of all conditions, point by point."""
    values = product(*(one.values for one in config.conditions.values()))
    return [dict(zip(config.conditions, point, strict=True)) for point in values]


def search(study: GpuStudyConfig, name: str, regions: RegionsConfig, runner: Runner, inputs: Inputs) -> dict[str, Any]:
    """Return the factors at all points of a claim's grid, as plain JSON."""
    config = regions.claims[name]
    seeds = range(regions.first_seed, regions.first_seed + regions.seeds)
    grid = points(config)
    runs = []
    for point in grid:
        claim = study.claim(name, changed(study.claims[name], {path: value for path, value in point.items() if path != CELL}))
        cell = str(point.get(CELL, config.cell))
        runs += [Run(claim, cell, one, seed) for one in compared(claim, config) for seed in seeds]
    figures = iter(runner.run(runs, inputs, f"conditions, {name}"))
    titles = {metric.key: metric.title.partition(" (")[0] for metric in CLAIMS[name].metrics}
    factors = [
        {**one.model_dump(exclude={"searched"}), "title": f"{titles[one.metric]}, {one.baseline}", "values": []}
        for one in config.published
    ]
    for _ in grid:
        by_name = {who: [next(figures) for _ in seeds] for who in _names(config)}
        for factor in factors:
            theirs, ours = ([run[factor["metric"]] for run in by_name[who]] for who in (factor["baseline"], config.policy))
            # where jobs never end under one of them, which cannot have as many GPUs as users ask for, nothing is compared
            ends = all(map(isfinite, (*theirs, *ours)))
            found = Ratio.of(theirs, ours) if ends else Ratio(nan, nan, nan)
            factor["values"].append([found.mean, found.low, found.high])
    return {
        "policy": config.policy,
        "seeds": list(seeds),
        "conditions": [{"label": one.label, "values": one.shown()} for one in config.conditions.values()],
        "factors": factors,
    }


def _names(config: RegionConfig) -> list[str]:
    return [config.policy, *dict.fromkeys(one.baseline for one in config.published)]


def compared(claim: Claim, config: RegionConfig) -> list[GpuContender]:
    """Return the claim's own policy and the baselines of its published factors. Raises `InputError`."""
    known = {one.name: one for one in contenders(claim.policies)}
    for name in _names(config):
        if name not in known:
            raise InputError("baseline", name, nearest(name, list(known)))
    return [known[name] for name in _names(config)]


def _shape(found: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(len(one["values"]) for one in found["conditions"])


def is_reached(factor: Mapping[str, Any]) -> bool:
    """Return whether a factor that was searched for appears anywhere in the grid."""
    return largest(factor) >= float(factor["factor"])


def largest(factor: Mapping[str, Any]) -> float:
    """Return the largest mean that a factor has in the grid."""
    return float(np.nanmax([mean for mean, _, _ in factor["values"]]))


def reached_at(factor: Mapping[str, Any]) -> str:
    """Return at how many points of the grid a factor that was searched for appears, of those that were compared, in words."""
    means = [mean for mean, _, _ in factor["values"] if not isnan(mean)]
    return f"{sum(mean >= factor['factor'] for mean in means) or 'none'} of {len(means)}"


def summary(name: str, found: Mapping[str, Any]) -> Table:
    """Return where the published factors appear in a claim's grid: at how many points, and where the largest one does.

    Points at which jobs never end under one of the two policies are not counted.
    """
    shape = _shape(found)
    grid = "; ".join(f"{one['label']}: {' / '.join(one['values'])}" for one in found["conditions"])
    table = Table(title=f"{name}, {prod(shape)} conditions, {len(found['seeds'])} seeds each ({grid})", title_justify="left")
    for column in ("metric, of", "published", "reached at", "smallest", "largest", "largest at"):
        table.add_column(column, overflow="fold")
    for one in found["factors"]:
        means = [mean for mean, _, _ in one["values"]]
        best = int(np.nanargmax(means))
        places = zip(found["conditions"], np.unravel_index(best, shape), strict=True)
        where = "; ".join(f"{condition['label']} {condition['values'][place]}" for condition, place in places)
        mean, low, high = one["values"][best]
        published = f"{'up to ' if one['up_to'] else ''}{one['factor']:.2f}"
        table.add_row(
            one["title"], published, reached_at(one), f"{np.nanmin(means):.2f}", f"{mean:.2f} [{low:.2f}, {high:.2f}]", where
        )
    return table


def panels_of(found: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many maps stand beside and above each other; every row is full."""
    maps = len(found["factors"])
    across = next(count for count in (3, 2, 1) if maps % count == 0)
    return across, maps // across


def save(found: Mapping[str, Any], path: Path) -> None:
    """Draw a claim's maps into a PNG file."""
    across, down = panels_of(found)
    figure = Figure(figsize=(max(MAP_IN * across, 7.0), MAP_IN * down), layout="constrained")
    draw(found, figure)
    figure.savefig(path, dpi=110)


def draw(found: Mapping[str, Any], figure: Figure) -> None:
    """Draw a heat map per published factor over the first two conditions: white where it is as published, red above."""
    across, down = panels_of(found)
    panels = figure.subplots(down, across, squeeze=False).flat
    columns, rows, *others = found["conditions"]
    for number, (axes, one) in enumerate(zip(panels, found["factors"], strict=True)):
        means = np.array([mean for mean, _, _ in one["values"]]).reshape(*_shape(found)[:2], -1)
        _heat_map(axes, np.fmax.reduce(means, axis=2).T, one)
        axes.set_xticks(range(len(columns["values"])), columns["values"], fontsize=7)
        axes.set_yticks(range(len(rows["values"])), rows["values"], fontsize=7)
        axes.set_xlabel(columns["label"], fontsize=8)
        axes.set_ylabel("" if number % across else rows["label"], fontsize=8)
    text = "; ".join(f"{one['label']}: {' / '.join(one['values'])}" for one in others)
    over = f"; the largest over these conditions: {text}" if text else ""
    title = f"baseline / {found['policy']}, red above the published factor, blue below{over}"
    figure.suptitle(fill(title, int(TITLE_CHARACTERS * figure.get_figwidth())), fontsize=9)


def _heat_map(axes: Axes, grid: np.ndarray[Any, np.dtype[np.float64]], one: Mapping[str, Any]) -> None:
    published = one["factor"]
    colours = LogNorm(published / SHOWN_RANGE, published * SHOWN_RANGE)
    axes.imshow(grid, origin="lower", cmap="RdBu_r", norm=colours, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        if isnan(value):
            continue
        far = abs(log(value / published)) > log(SHOWN_RANGE) / 2
        weight, size = ("bold", 8) if value >= published else ("normal", 7)
        colour = "white" if far else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, weight=weight, fontsize=size)
    where = "bold: reached" if (grid >= published).any() else "not reached"
    axes.set_title(f"{one['title']}: published {'up to ' if one['up_to'] else ''}{published:.2f}, {where}", fontsize=8)


def write(found: Mapping[str, Any], path: Path = RESULTS) -> None:
    """Write claims' factors; claims that were not searched now keep theirs."""
    before = read_json(path, "the results") if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_lines({**before, **found}, LEVELS))
