"""What the study of noisy losses consists of, as in `eval/configs/noise.yaml`, and one run of it.

A search tries learning rates on one slot until a loss reaches its target. The losses are those of real training, computed
beforehand; time is virtual. The scheduler looks at its jobs as often as it does by default, and finds several reports each
time. A seed draws the samples and the order of the list; every policy is given the same.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count, islice
from random import Random
from typing import Any, Literal

from pydantic import Field

from beamer.engines.simulated import Outcome, SimulatedCluster, SimulatedJob, SimulatedProfile
from beamer.gpu.decider import by_policy
from beamer.gpu.driver import SearchDriver
from beamer.gpu.events import TrialReported
from beamer.gpu.model import Costs, Grant, Node, Request
from beamer.gpu.policies import GPU_POLICIES
from beamer.gpu.tuners import NoTuner
from beamer.sim.gpu import Arrival, settle, submit, target_of
from beamer.studies.events import Event
from eval.config_section import ConfigSection
from eval.gpu.fresh_samples import PROBLEMS

POLL_S = 0.1  # as of `beamer schedule` on processes of its own machine
STUDY = "search"
JUDGED_S = 1.0  # A trial has been judged when it has run for so many seconds, an eighth of what it takes.


class NoiseCell(ConfigSection):
    """A search. rates: learning rates of trials, per iteration that a trial has, best first. diverging: that of one more.

    problem: of `eval.gpu.fresh_samples`. target: loss. per_poll: iterations between two looks at the jobs. trial_s: seconds
    that a trial takes. suspend_s, resume_s: what changing between trials takes.
    """

    problem: Literal["regression", "classification"]
    rates: tuple[float, ...] = Field(min_length=2)
    diverging: float
    target: float
    per_poll: int = Field(ge=1)
    trial_s: float = Field(gt=0)
    suspend_s: float = Field(ge=0)
    resume_s: float = Field(ge=0)

    @property
    def iterations(self) -> int:
        """Those of a trial."""
        return round(self.trial_s / POLL_S * self.per_poll)

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """Those of all trials, best first."""
        return (*(rate / self.iterations for rate in self.rates), self.diverging)


class NoiseContender(ConfigSection):
    """A policy. target: whether it is told the search's target and the end of its trials."""

    policy: str
    target: bool = False


class NoiseConfig(ConfigSection):
    """What the study consists of, as in the config file. contenders: the first is what the others are compared with."""

    seeds: int = Field(ge=2)
    first_seed: int
    contenders: dict[str, NoiseContender] = Field(min_length=2)
    base: dict[str, Any]
    cells: dict[str, dict[str, Any]]

    def cell(self, name: str) -> NoiseCell:
        """Return the search of that name."""
        return NoiseCell.model_validate(self.base | self.cells[name])


class _Trained(SimulatedProfile):
    """A trial whose losses are known. step_s: what an iteration takes."""

    def __init__(self, losses: tuple[float, ...], step_s: float) -> None:
        self._losses, self._step_s = losses, step_s

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        return self._step_s, 0.0

    def outcome(self, iteration: float) -> Outcome:
        return Outcome(self._losses[int(iteration)])


@cache
def _losses(problem: str, rate: float, iterations: int, seed: int) -> tuple[float, ...]:
    """Return a trial's losses, that before its first iteration included."""
    return tuple(islice(PROBLEMS[problem](rate, seed), iterations + 1))


def run_contender(cell: NoiseCell, contender: NoiseContender, seed: int) -> dict[str, float]:
    """Return what is measured of a contender on a search.

    reached_s: seconds until a loss has reached the target. worse: the share of that for which trials of the worse half ran
    after their first `JUDGED_S`.
    """
    told = {"target_loss": cell.target} if contender.target else {"known_end": False}
    step_s, rates = POLL_S / cell.per_poll, cell.learning_rates
    arrivals = []
    for place, rate in enumerate(rates):
        losses = _losses(cell.problem, rate, cell.iterations, len(rates) * seed + place)
        job = SimulatedJob(Request(cell.iterations, **told), _Trained(losses, step_s), Costs(cell.suspend_s, cell.resume_s))
        arrivals.append(Arrival(0.0, STUDY, f"rate-{place}", job))
    worse = {arrival.key for arrival in arrivals[len(arrivals) // 2 :]}
    Random(seed).shuffle(arrivals)
    reached_s, ran_s = _search(contender.policy, arrivals, cell.target)
    after_s = sum(max(ran_s[key] - JUDGED_S, 0.0) for key in worse if key in ran_s)
    return {"reached_s": reached_s, "worse": after_s / sum(ran_s.values())}


def _search(policy: str, arrivals: Sequence[Arrival], target: float) -> tuple[float, Mapping[str, float]]:
    """Return when a search has reached its target, infinite if it never does, and for how long each of its trials ran."""
    engine = SimulatedCluster([Node("node", 1)], {one.key: one.job for one in arrivals}, lambda key: target_of(driver, key))
    reached: list[float] = []

    def seen(event: Event) -> None:
        if isinstance(event, TrialReported) and event.report and event.report.loss <= target:
            reached.append(event.report.at_s)

    driver = SearchDriver(by_policy(GPU_POLICIES[policy](), live=False), engine, NoTuner(), on_event=seen)
    for arrival in arrivals:
        submit(driver, arrival, 0.0)
    for poll in count():
        while engine.next_s() <= poll * POLL_S:
            engine.advance(engine.next_s())
        engine.advance(poll * POLL_S)
        settle(driver, engine.now)
        if reached or len(driver.ledger.ended) == len(arrivals):
            break
    return (reached[0] if reached else math.inf), engine.busy_s
