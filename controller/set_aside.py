"""Which jobs keep a decision from being made, so that all others are planned without them.

A policy that raises leaves the old decision in force, for everybody and for as long as the job that it raises for runs. Here
that job is found by asking the policy about parts of what runs, and is left out until it changes: its traffic is treated as
what is not registered. The search, `culprits`, is pure: it asks through a function.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from beamer.errors import shortened
from beamer.network.estimates import ProfileEstimates
from beamer.studies.records import TrialRecord
from beamer.studies.tracker import Tracker

MOST_TRIES = 64  # of a search: two culprits among 4 096 jobs of 100 studies take about 50, each as long as a decision

Group = tuple[str, ...]

log = structlog.get_logger("beamer-controller")


class DecisionOutcome(Protocol):
    """A decision, or a failure to make one."""

    @property
    def failed(self) -> bool:
        """Whether it could not be made."""

    @property
    def error(self) -> str:
        """Why not."""


P = TypeVar("P", bound=DecisionOutcome)


@dataclass
class _Question:
    """Whether jobs can be planned, asked no more than `left` times."""

    plans: Callable[[frozenset[str]], bool]
    left: int

    def fails(self, groups: Iterable[Group]) -> bool:
        """Say whether the jobs of these groups alone cannot be planned, or nothing may be asked any more."""
        self.left -= 1
        return self.left < 0 or not self.plans(frozenset(job for group in groups for job in group))


def culprits(studies: Sequence[Group], plans: Callable[[frozenset[str]], bool], tries: int = MOST_TRIES) -> frozenset[str]:
    """Return jobs without which all others can be planned; none where no such are found in so many tries.

    studies: the jobs of each, in order of their start. plans: says of jobs whether they can be planned with no other. Studies
    are halved until those that fail are found, then their jobs: about 2 log2(n) tries for each. Of two halves that only fail
    together the later one is left out, and what the tries do not suffice for is left out as a whole.
    """
    question = _Question(plans, tries - 1)  # the last one confirms
    found: set[str] = set()
    for study in _failing(studies, question):
        alone = question.fails([study])  # otherwise it is the later one of two that only fail together
        jobs = _failing([(job,) for job in study], question) if alone else [study]
        found.update(job for group in jobs for job in group)
    others = frozenset(job for study in studies for job in study) - found
    return frozenset(found) if found and others and plans(others) else frozenset()


def _failing(groups: Sequence[Group], question: _Question) -> list[Group]:
    """Return the groups that fail, of groups that fail together."""
    if len(groups) <= 1:
        return list(groups)
    halves = groups[: len(groups) // 2], groups[len(groups) // 2 :]
    found = [group for half in halves if question.fails(half) for group in _failing(half, question)]
    return found or list(halves[1])


class SetAside(Generic[P]):
    """Plan without the jobs that no decision can be made with, and remember which these are, why, and as what they failed.

    propose: asks for a decision without some jobs. A job is taken up again when it is not what it was.
    """

    def __init__(self, propose: Callable[[frozenset[str]], P], tracker: Tracker, profiles: ProfileEstimates) -> None:
        self._propose = propose
        self._tracker = tracker
        self._profiles = profiles
        self._left_out: dict[str, tuple[object, str]] = {}
        self._hopeless: AbstractSet[str] = frozenset()  # jobs among which no culprit was found

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why each job is left out, by its key."""
        return {key: reason for key, (_, reason) in self._left_out.items()}

    def propose(self) -> P:
        """Return a decision with all jobs that it can be made with, or the failed one where that is not found."""
        running = {trial.key: trial for trial in self._tracker.running}
        self._left_out = {
            key: known for key, known in self._left_out.items() if key in running and self._signature(running[key]) == known[0]
        }
        proposal = self._propose(frozenset(self._left_out))
        if not proposal.failed:
            return proposal
        asked = running.keys() - self._left_out.keys()
        if asked == self._hopeless:
            return proposal
        by_study: dict[str, list[str]] = {}
        for key in running:
            if key in asked:
                by_study.setdefault(running[key].study, []).append(key)
        errors: dict[frozenset[str], str] = {}

        def plans(jobs: frozenset[str]) -> bool:
            tried = self._propose(frozenset(running.keys() - jobs))
            errors[jobs] = tried.error
            return not tried.failed

        found = culprits([tuple(jobs) for jobs in by_study.values()], plans)
        self._hopeless = frozenset() if found else asked
        for key in sorted(found):
            error = shortened(errors.get(frozenset({key}), proposal.error))
            log.error("set aside: no decision can be made with it", trial=key, reason=error)
            self._left_out[key] = self._signature(running[key]), error
        return self._propose(frozenset(self._left_out)) if found else proposal

    def _signature(self, trial: TrialRecord) -> object:
        """Return what decisions on a trial are made of, but for its progress."""
        study, attempt = self._tracker.study(trial.study), trial.attempt
        assert attempt is not None
        targets = trial.farthest, len(trial.targets), trial.budget
        return attempt.seq, targets, study.weight, study.rungs, study.barriers, self._profiles.of_trial(trial.key)
