"""Cells of the tables of GPU policies: of claims, chosen parameters and conditions, and of decisions of both levels."""

import json
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean

from eval.bench.levels import COMMITTED as BENCH
from eval.bench.levels import HOSTS_PER_LEAF, LEAVES, SPINES, DecisionParts, decisions_of_both
from eval.gpu import regions, tuning
from eval.gpu.claims import Claim, GpuContender, Inputs
from eval.gpu.results_file import read_results
from eval.gpu.study import read as read_study
from eval.recheck.base import CommittedCell, MissingInput, RecheckInputs, only
from eval.statistics import Ratio
from topologies.leaf_spine import build

TIMES = ("cpu_s", "decision_ms")
"""Figures of runs that say how long they took; so do all whose names begin like one of them."""
COUNTED = ("changed", "running", "loading")
"""What a decision of both levels is about, which follows from the code; the rest of that table is processor time."""


def gpu(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every policy in the first cell of each claim whose inputs can be had again."""
    results = read_results()
    found = []
    for one in results.claims:
        claim, cell = one.claim, one.claim.judged()[0]
        if claim.processes and one.costs is None:
            continue  # The claim's costs were measured, and are in the file in words alone.
        given = Inputs(_data(inputs), one.costs)
        for who in claim.contenders(cell):
            committed = {
                name: value for name, value in one.cells[cell][who.name][0].items() if name != "seed" and not _is_time(name)
            }
            again = partial(claim.run, cell, who, int(one.seeds[0]), given)
            found.append(CommittedCell(f"{claim.name}, {cell}, {who.name}, seed {one.seeds[0]}", committed, again))
    return found


def gpu_tuning(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the defaults of our policy, as they were tried for each claim that has no measured costs."""
    chosen, budget, study = tuning.read_chosen(), tuning.read(), read_study()
    found = []
    for name, policies in chosen.claims.items():
        claim = study.claim(name)
        if claim.processes:
            continue
        ours = budget.claims[name]
        contender = tuning.settings(claim, ours, "convergence")[0][1]
        mean = partial(_mean, claim, ours.cell, contender, chosen.seeds, Inputs(_data(inputs)))
        found.append(CommittedCell(f"{name}, convergence, the defaults", {"mean": policies["convergence"].tried[0].mean}, mean))
    return found


def _mean(claim: Claim, cell: str, contender: GpuContender, seeds: tuple[int, ...], inputs: Inputs) -> dict[str, float]:
    return {"mean": fmean(claim.run(cell, contender, seed, inputs)[claim.metrics[0].key] for seed in seeds)}


def gpu_regions(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first point of the grid of every claim that has no measured costs."""
    study, grids, committed = read_study(), regions.read(), json.loads(regions.RESULTS.read_text())
    found = []
    for name, of in committed.items():
        if study.claim(name).processes:
            continue
        figures = {f"{one['metric']}, {one['baseline']}": one["values"][0][0] for one in of["factors"]}
        again = partial(_factors, name, grids.claims[name], of["seeds"], Inputs(_data(inputs)))
        found.append(CommittedCell(f"{name}, first point", figures, again))
    return found


def _factors(name: str, config: regions.RegionConfig, seeds: list[int], inputs: Inputs) -> dict[str, float]:
    study, point = read_study(), regions.points(config)[0]
    changes = {path: value for path, value in point.items() if path != regions.CELL}
    claim = study.claim(name, regions.changed(study.claims[name], changes))
    cell = str(point.get(regions.CELL, config.cell))
    runs = {who.name: [claim.run(cell, who, seed, inputs) for seed in seeds] for who in regions.compared(claim, config)}
    return {
        f"{one.metric}, {one.baseline}": Ratio.of(
            *([run[one.metric] for run in runs[who]] for who in (one.baseline, config.policy))
        ).mean
        for one in config.published
    }


def bench(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return what the decisions about the fewest trials are about."""
    study = BENCH.read()
    found = []
    for policy, sizes in study.taken.items():
        trials = min(sizes)
        again = partial(_counted, policy, trials, study.repeats)
        found.append(CommittedCell(f"{policy}, {trials} trials", _counts(sizes[trials]), again))
    return found


def _counted(policy: str, trials: int, repeats: int) -> dict[str, float]:
    fabric = build(LEAVES, SPINES, HOSTS_PER_LEAF, "10gbit", "40gbit")
    return _counts(decisions_of_both(policy, trials, fabric, repeats))


def _counts(taken: Mapping[str, DecisionParts]) -> dict[str, float]:
    return {f"{kind} {name}": value for kind, parts in taken.items() for name, value in only(vars(parts), COUNTED).items()}


def _data(inputs: RecheckInputs) -> Path:
    if inputs.data is None:
        raise MissingInput("--data, the folder of the measured data: the committed figures were made with it")
    return inputs.data


def _is_time(name: str) -> bool:
    return name.startswith(TIMES)
