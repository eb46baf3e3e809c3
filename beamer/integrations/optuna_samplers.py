"""Optuna's samplers as samplers of `beamer schedule`: every draw is of a study in memory, by a seed of its own.

Optuna's samplers keep what they know in their study and in a generator of random numbers. Here each draw has a new sampler with
a seed that follows from the search's seed and the trial's number. So a study that is built again from the trials and results
of a journal draws what the first one would have drawn.
"""

import hashlib
import importlib.util
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf, isfinite
from types import MappingProxyType
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from beamer.errors import InputError
from beamer.studies.parameters import Choice, ConfigurationSampler, FloatRange, IntegerRange, Parameter, TrialResult

_SEEDS = 2**32  # NumPy's generators take as many.


def seed_of(seed: int, number: int) -> int:
    """Return the seed of one trial's draw, below 2^32: those of neighbouring trials and searches have nothing in common."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:8], "big") % _SEEDS


def distribution(parameter: Parameter) -> Any:
    """Return a parameter as Optuna has it."""
    match parameter:
        case FloatRange(low=low, high=high, step=step, log=log):
            return FloatDistribution(low, high, log=log, step=step)
        case IntegerRange(low=low, high=high, step=step, log=log):
            return IntDistribution(low, high, log=log, step=step)
        case Choice(choices=choices):
            return CategoricalDistribution(choices)


def loss_told(result: TrialResult) -> float | None:
    """Return the loss that Optuna is told: infinity, the worst, in place of one that is not finite; None for a failure."""
    return result.loss if result.loss is None or isfinite(result.loss) else inf


@contextmanager
def quietly() -> Iterator[None]:
    """Have Optuna say nothing in a block: that arguments are experimental, and each trial that it is told of."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


class _Drawing(ConfigurationSampler):
    """What the samplers have in common. study: in memory, of all trials that were drawn."""

    def __init__(self, parameters: Mapping[str, Parameter], seed: int) -> None:
        self.parameters = parameters
        self.seed = seed
        self.count = 0
        self._distributions = {name: distribution(parameter) for name, parameter in parameters.items()}
        with quietly():
            self.study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def draw(self) -> dict[str, str]:
        """Ask Optuna for a trial."""
        with quietly():
            drawn = self._ask()
        self.count += 1
        return {name: parameter.text(drawn[name]) for name, parameter in self.parameters.items()}

    def tell(self, number: int, result: TrialResult) -> None:
        """Tell Optuna of a result."""
        loss = loss_told(result)
        with quietly():
            self.study.tell(number, loss, state=TrialState.FAIL if loss is None else TrialState.COMPLETE)

    def _ask(self) -> dict[str, Any]:
        """Return the values of the next trial, which the study has from now on."""
        self.study.sampler = self._of_one_draw(seed_of(self.seed, self.count))
        return dict(self.study.ask(self._distributions).params)

    @abstractmethod
    def _of_one_draw(self, seed: int) -> Any:
        """Return Optuna's sampler for one draw."""


class TpeSampler(_Drawing):
    """The tree-structured Parzen estimator, over all parameters jointly; trials without a result count as bad ones.

    After Bergstra, Bardenet, Bengio and Kegl 2011, "Algorithms for hyper-parameter optimization" (NIPS), as Optuna has it.
    """

    def take(self, values: Mapping[str, str]) -> None:
        """Add a trial without a result to the study."""
        read = {name: parameter.value(values[name]) for name, parameter in self.parameters.items()}
        with quietly():
            self.study.add_trial(create_trial(state=TrialState.RUNNING, params=read, distributions=self._distributions))
        self.count += 1

    def _of_one_draw(self, seed: int) -> Any:
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


class CmaEsSampler(_Drawing):
    """The covariance matrix adaptation evolution strategy, by the package `cmaes`; of at least two numbers, and nothing else.

    After Hansen and Ostermeier 2001, "Completely derandomized self-adaptation in evolution strategies" (Evolutionary
    Computation 9), as Optuna has it. Its matrix follows from all trials so far, which are therefore drawn again after a start.
    """

    def take(self, values: Mapping[str, str]) -> None:
        """Draw a trial again. Raises `InputError` where that gives other values."""
        number, drawn = self.count, self.draw()
        if drawn != dict(values):
            versions = "the versions of optuna and cmaes with which the search was begun, or a new --dir"
            raise InputError(
                f"trial-{number}", f"{drawn} in place of {dict(values)}", f"{versions}: cma-es draws otherwise now"
            )

    def _of_one_draw(self, seed: int) -> Any:
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


class _Unlearning(_Drawing):
    """What draws by the trial's number alone."""

    def tell(self, number: int, result: TrialResult) -> None:
        """Do nothing."""


class RandomSampler(_Unlearning):
    """Draws that are independent of one another."""

    def take(self, values: Mapping[str, str]) -> None:
        """Count a trial."""
        self.count += 1

    def _of_one_draw(self, seed: int) -> Any:
        return optuna.samplers.RandomSampler(seed=seed)


class QuasiRandomSampler(_Unlearning):
    """A scrambled Sobol sequence, which covers the ranges more evenly than independent draws; the first trial is random.

    After Sobol 1967, "On the distribution of points in a cube and the approximate evaluation of integrals", as Optuna has it.
    """

    def __init__(self, parameters: Mapping[str, Parameter], seed: int) -> None:
        super().__init__(parameters, seed)
        self._sequence = optuna.samplers.QMCSampler(
            seed=seed_of(seed, 0), scramble=True, warn_independent_sampling=False, warn_asynchronous_seeding=False
        )

    def take(self, values: Mapping[str, str]) -> None:
        """Pass over a point of the sequence."""
        self.draw()

    def _ask(self) -> dict[str, Any]:
        drawn = super()._ask()
        self.study.tell(self.count, 0.0)  # Optuna takes the dimensions of the sequence from trials that are complete.
        return drawn

    def _of_one_draw(self, seed: int) -> Any:
        return self._sequence


SAMPLERS: Mapping[str, Callable[[Mapping[str, Parameter], int], ConfigurationSampler]] = MappingProxyType(
    {"tpe": TpeSampler, "cma-es": CmaEsSampler, "random": RandomSampler, "quasi-random": QuasiRandomSampler}
)
"""The samplers by name."""


def open_sampler(kind: str, parameters: Mapping[str, Parameter], seed: int) -> ConfigurationSampler:
    """Return a sampler that has drawn nothing yet. Raises `ModuleNotFoundError` for a package that it lacks."""
    if kind == "cma-es" and importlib.util.find_spec("cmaes") is None:
        raise ModuleNotFoundError("No module named 'cmaes'", name="cmaes")
    with quietly():
        return SAMPLERS[kind](parameters, seed)
