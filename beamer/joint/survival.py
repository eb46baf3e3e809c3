"""Which trials a declared rung will hold: the chances that the losses of a search's trials give them.

Where nothing tells, the network level takes a later rung to load links as the running trials of its search do on average. But
losses tell early which trials a rung will keep, and these are on certain hosts. Each trial's loss at the end of a rung is a
normal variate around its fitted curve [SLAQ, Zhang, Stafman, Or and Freedman 2017], independent of the others'; its chance is
that fewer of the others than the rung keeps come out lower, averaged over equally likely values of its own.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from math import floor, inf, isfinite, log, sqrt

import numpy as np
import scipy  # type: ignore[import-untyped]  # SciPy loads scipy.special at its first use, as that takes a while.

from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Report
from beamer.gpu.predictors.estimate import Estimate
from beamer.gpu.predictors.loss_curve import LossCurve, fit_weighted
from beamer.network.arrays import Floats
from beamer.network.views import StudyView
from beamer.studies.model import Rung, trial_key
from beamer.studies.records import StudyRecord
from beamer.studies.tracker import Tracker

MIN_REPORTS = 6  # With fewer reports, a curve of three or four parameters fits everything.
# A trial's reports grow by this factor between two fits: fewer new ones change a curve little, and a fit is costly.
REPORT_GROWTH = 1.2
MIN_DEVIATION = 1e-12  # Losses deviate by at least this share of their range, so that known losses are told apart all the same.
VALUES = 101  # A trial's own loss has so many values: a narrow curve's step beside a wide curve is known to a hundredth.


def chances(expected: Sequence[Estimate], kept: int) -> Floats:
    """Return the chance of each of some trials to be among the `kept` of least loss; they add up to about `kept`.

    expected: loss of each. One that is not known is taken to be like those that are: of their mean and deviation.
    """
    count = len(expected)
    if kept >= count:
        return np.ones(count)
    is_known = np.array([one.known and isfinite(one.value) for one in expected], np.bool_)
    if not is_known.any():
        return np.full(count, kept / count)
    value = np.array([one.value for one in expected])
    deviation = np.array([one.deviation for one in expected])
    known = value[is_known]
    value[~is_known] = known.mean()
    deviation[~is_known] = sqrt(float(known.var()) + float((deviation[is_known] ** 2).mean()))
    deviation = np.maximum(deviation, MIN_DEVIATION * max(float(np.ptp(value)), abs(float(value.mean())), 1e-300))
    return np.array([_chance(value, deviation, i, kept) for i in range(count)])


@cache
def _quantiles() -> Floats:
    """Return so many equally likely values of a standard normal variate."""
    quantiles: Floats = scipy.special.ndtri((np.arange(VALUES) + 0.5) / VALUES)
    return quantiles


def _chance(value: Floats, deviation: Floats, i: int, kept: int) -> float:
    """Return the chance that fewer than `kept` of the others are below trial i."""
    own = value[i] + deviation[i] * _quantiles()
    others = np.arange(len(value)) != i
    below = scipy.special.ndtr((own[:, None] - value[others]) / deviation[others])
    fewer = np.zeros((len(own), kept))  # by value, the chances that 0, 1, ... of the others so far are below
    fewer[:, 0] = 1.0
    for is_below in below.T:
        moved = fewer * is_below[:, None]
        fewer -= moved
        fewer[:, 1:] += moved[:, :-1]
    return float(fewer.sum(axis=1).mean())


def _expected(reports: tuple[Report, ...], step: int) -> Estimate:
    """Return the loss that a trial will report at a step: as reported, or as its curve goes on."""
    if reports and reports[-1].iteration >= step:
        return Estimate(next(one.loss for one in reports if one.iteration >= step), 0.0)
    if len(reports) < MIN_REPORTS:
        return Estimate(0.0, inf)
    fits = floor(log(len(reports) / MIN_REPORTS, REPORT_GROWTH))
    return _fitted(reports[: floor(MIN_REPORTS * REPORT_GROWTH**fits)]).loss(step)


@lru_cache(maxsize=1 << 12)
def _fitted(reports: tuple[Report, ...]) -> LossCurve:
    return fit_weighted([one.iteration for one in reports], [one.loss for one in reports])


class Survival:
    """Tell the network level of chances. tracker: with `ledger`, of the GPU level, among its ledgers."""

    def __init__(self, tracker: Tracker, ledger: GpuLedger) -> None:
        self._tracker = tracker
        self._ledger = ledger

    def told(self, views: Sequence[StudyView]) -> Sequence[StudyView]:
        """Return what runs with the chances of trials to be in rungs that follow the only stage that runs."""
        return [self._with_chances(view) if view.later else view for view in views]

    def _with_chances(self, view: StudyView) -> StudyView:
        study = self._tracker.studies[view.name]
        running = [stage for stage in study.stages.values() if stage.ended_s is None]
        if len(running) != 1:
            return view
        trials = [name for name in running[0].targets if study.trials[name].ended_s is None]
        found: dict[str, tuple[tuple[str, float], ...]] = {}
        least = np.ones(len(trials))
        for before, rung in _following(study, running[0].name):
            if not rung.trials:
                break
            losses = [self._loss(trial_key(view.name, name), before.step) for name in trials]
            least = np.minimum(least, chances(losses, rung.trials))
            found[rung.name] = tuple(zip(trials, least.tolist(), strict=True))
        return replace(view, later=tuple(replace(rung, chances=found.get(rung.name, ())) for rung in view.later))

    def _loss(self, key: str, step: int) -> Estimate:
        job = self._ledger.job(key)
        return _expected(job.reports, step) if job else Estimate(0.0, inf)


def _following(study: StudyRecord, stage: str) -> list[tuple[Rung, Rung]]:
    """Return the rungs that continue a stage, each with the one before it: until one begins with new trials."""
    names = [rung.name for rung in study.rungs]
    if stage not in names:
        return []
    found = []
    rungs = study.rungs[names.index(stage) :]
    for before, rung in pairwise(rungs):
        if rung.step <= before.step:
            break
        found.append((before, rung))
    return found
