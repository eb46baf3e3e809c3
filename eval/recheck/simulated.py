"""Cells of the tables of network policies, of both levels, and of what the simulator expects of emulated works."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, TypeVar

from eval.asynchronous.command import ASYNCHRONOUS
from eval.emulation import COMMITTED as EMULATION
from eval.emulation import simulated
from eval.grid import GridExperiment
from eval.grid_study import GridStudy
from eval.joint.command import JOINT
from eval.joint.runs import in_variant
from eval.loss_noise.command import LOSS_NOISE
from eval.network.command import NETWORK
from eval.network.runs import run_bound
from eval.noise.command import NOISE
from eval.rates.command import RATES
from eval.recheck.base import CommittedCell, RecheckInputs, only
from eval.trials.command import TRIALS

S = TypeVar("S", bound=GridStudy[Any])

SIMULATED = ("mean_sct_s", "p95_sct_s")
SEEDS = 2  # So many seeds of the distribution of emulated works are made again.


def _first_seed(experiment: GridExperiment[Any, Any, S], study: S, names: Iterable[tuple[str, str]]) -> list[CommittedCell]:
    """Return the first seed of a committed study, without times of decisions. names: of cells, and of contenders on them."""
    config, seed, cells = study.config, study.config.first_seed, experiment.cells(study.config)
    found = []
    for name, who in names:
        run = experiment.runs(config, name, cells[name], seed)[who]
        figures = {key: value for key, value in study.runs[name][who][0].items() if not key.startswith("decide")}
        found.append(CommittedCell(f"{name}, {who}, seed {seed}", figures, partial(run.function, *run.arguments)))
    return found


def asynchronous(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every cell under every policy, of one search or two."""
    study = ASYNCHRONOUS.committed.read()
    names = [name for name in study.config.cells if study.config.cell(name).searches <= 2]
    return _first_seed(ASYNCHRONOUS, study, product(names, study.config.policies))


def rates(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every cell in every mode."""
    study = RATES.committed.read()
    return _first_seed(RATES, study, product(study.config.cells, study.config.entries))


def loss_noise(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first problem of every model, at each learning rate, on both kinds of data."""
    study = LOSS_NOISE.committed.read()
    return _first_seed(LOSS_NOISE, study, [(name, rate) for name, rates in study.runs.items() for rate in rates])


def noise(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every search of every contender."""
    study = NOISE.committed.read()
    return _first_seed(NOISE, study, product(study.config.cells, study.config.contenders))


def network(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of the cells with the fewest studies, of all contenders without limits, and the bounds there."""
    study = NETWORK.committed.read()
    config, cells = study.config, study.config.cells()
    fewest = min(cell.studies for cell in cells.values())
    names = [name for name, cell in cells.items() if cell.studies == fewest]
    # Contenders that have fewer seeds or studies take minutes.
    without_limits = [one.name for one in config.contenders if not (one.most_seeds or one.most_studies)]
    bounds = [
        CommittedCell(
            f"{name}, bound", only(study.bounds[name][0], ["bound_s"]), partial(_bound, cells[name], config.first_seed)
        )
        for name in names
    ]
    return [*_first_seed(NETWORK, study, product(names, without_limits)), *bounds]


def _bound(cell: Any, seed: int) -> dict[str, float]:
    return only(run_bound(cell, seed), ["bound_s"])


def trials(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every variant on its first cell."""
    study = TRIALS.committed.read()
    first: dict[str, str] = {}
    for name, variants in study.config.compared().items():
        for who in variants:
            first.setdefault(who, name)
    return _first_seed(TRIALS, study, [(name, who) for who, name in first.items()])


def joint(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return the first seed of every pair of policies on the first cell, and of every variant on its first cell."""
    study = JOINT.committed.read()
    config = study.config
    names = [(next(iter(config.cells)), who) for who in config.pairs]
    for table in config.tables:
        for called in table.variants:
            names += [(table.cells[0], in_variant(who, called)) for who in table.pairs[:1]]
    return _first_seed(JOINT, study, names)


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
