"""Cells of the tables of network policies, of both levels, and of what the simulator expects of emulated works."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from eval.asynchronous.report import COMMITTED as ASYNCHRONOUS
from eval.asynchronous.runs import run_policy
from eval.emulation import COMMITTED as EMULATION
from eval.emulation import simulated
from eval.joint.report import COMMITTED as JOINT
from eval.joint.runs import PLAIN, in_variant, run_pair
from eval.network.command import read_config as read_network_config
from eval.network.results_file import COMMITTED as NETWORK
from eval.network.runs import run_bound, run_contender
from eval.pairs import policies_of
from eval.rates.report import COMMITTED as RATES
from eval.rates.runs import run_mode
from eval.recheck.base import CommittedCell, RecheckInputs, only
from eval.trials.report import COMMITTED as TRIALS
from eval.trials.runs import run_variant

SIMULATED = ("mean_sct_s", "p95_sct_s")
SEEDS = 2  # So many seeds of the distribution of emulated works are made again.


def asynchronous(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every cell under every policy, of one search or two."""
    study = ASYNCHRONOUS.read()
    config = study.config
    return [
        CommittedCell(
            f"{name}, {policy}, seed {config.first_seed}",
            study.runs[name][policy][0],
            partial(run_policy, config.cell(name), policy, config.queues, config.first_seed),
        )
        for name in config.cells
        for policy in config.policies
        if config.cell(name).searches <= 2
    ]


def rates(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every cell in every mode."""
    study = RATES.read()
    config = study.config
    return [
        CommittedCell(
            f"{name}, {who}, seed {config.first_seed}",
            study.runs[name][who][0],
            partial(run_mode, config.cell(name), policy, entry, config.first_seed),
        )
        for name in config.cells
        for who, (policy, entry) in config.entries.items()
    ]


def network(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of the cells with the fewest studies, of all contenders without limits, and the bounds there."""
    study = NETWORK.read()
    config = study.config
    fewest = min(cell.studies for cell in config.cells().values())
    found = []
    for name, cell in config.cells().items():
        if cell.studies > fewest:
            continue
        for contender in config.contenders:
            if contender.most_seeds or contender.most_studies:
                continue  # Contenders that have fewer seeds or studies take minutes.
            committed = {
                key: value for key, value in study.runs[name][contender.name][0].items() if not key.startswith("decide")
            }
            again = partial(run_contender, cell, contender, config.queues, config.first_seed)
            found.append(CommittedCell(f"{name}, {contender.name}, seed {config.first_seed}", committed, again))
        bound = only(study.bounds[name][0], ["bound_s"])
        found.append(CommittedCell(f"{name}, bound", bound, partial(_bound, cell, config.first_seed)))
    return found


def _bound(cell: Any, seed: int) -> dict[str, float]:
    return only(run_bound(cell, seed), ["bound_s"])


def trials(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every variant on its first cell."""
    study = TRIALS.read()
    config, cells = study.config, read_network_config().cells()
    first: dict[str, str] = {}
    for name, variants in config.compared().items():
        for who in variants:
            first.setdefault(who, name)
    return [
        CommittedCell(
            f"{name}, {who}, seed {config.first_seed}",
            study.runs[name][who][0],
            partial(run_variant, cells[name], config.variants[who], config.queues, config.first_seed),
        )
        for who, name in first.items()
    ]


def joint(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every pair of policies on the first cell, and of every variant on its first cell."""
    study = JOINT.read()
    config, seed = study.config, study.config.first_seed
    first = next(iter(config.cells))
    runs = [(first, who, who, PLAIN) for who in config.pairs]
    for table in config.tables:
        for called, variant in table.variants.items():
            runs += [(table.cells[0], who, in_variant(who, called), variant) for who in table.pairs[:1]]
    return [
        CommittedCell(
            f"{name}, {title}, seed {seed}",
            study.runs[name][title][0],
            partial(run_pair, config.cell(name), *policies_of(who), seed, variant),
        )
        for name, who, title, variant in runs
    ]


def emulation(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return what the simulator expects of every emulated work, and of the first seeds of the distribution."""
    study = EMULATION.read()
    found = []
    for name, of in study.works.items():
        work, expected = study.config.work(name), of["simulated"]
        found.append(CommittedCell(f"{name}, simulated", dict(_flat(expected)), partial(_expected, work, tuple(expected))))
    for seed in range(SEEDS):
        expected = {policy: several[seed] for policy, several in study.distribution.items()}
        work = study.config.base.document(seed)
        found.append(
            CommittedCell(f"distribution, seed {seed}", dict(_flat(expected)), partial(_expected, work, tuple(expected)))
        )
    return found


def _expected(work: dict[str, Any], policies: tuple[str, ...]) -> dict[str, float]:
    return dict(_flat(simulated(work, policies)))


def _flat(by_policy: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    for policy, run in by_policy.items():
        yield from ((f"{policy} {figure}", run[figure]) for figure in SIMULATED)
