"""The quarantine of jobs that keep a decision from being made, so that all others are planned without them.

A policy that raises leaves the old decision in force, for everybody and for as long as the job that it raises for runs. Here
that job is found by asking the policy about parts of what runs, and is quarantined until it changes: its traffic is treated as
what is not registered. The search, `culprits`, is pure: a generator of questions.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from beamer.decision.core import Proposal
from beamer.errors import shortened
from beamer.network.estimates import ProfileEstimates
from beamer.network.explanation import Basis
from beamer.network.plan import Plan
from beamer.studies.records import TrialRecord
from beamer.studies.tracker import Tracker
from controller.limited_log import LimitedLog
from controller.network.phases import DecisionTimes

# Tries of a search are bounded: two culprits among 4 096 jobs of 100 studies take about 50, each as long as a decision.
MAX_TRIES = 64

Group = tuple[str, ...]


@dataclass(frozen=True)
class Decided:
    """A decision, or a failure to make one.

    asked: the jobs that it is about. attempts: the same by job as their starts, where there is one. events: that call for a
    decision, as many as it knows of. state: how what the policy remembers differs from what was journaled last. basis: what the
    policy was told and how it ordered it, None where it failed or was not asked. times: when it was made.
    """

    proposal: Proposal[Any, Plan]
    asked: frozenset[str] = frozenset()
    attempts: Mapping[str, float] = field(default_factory=dict)
    events: int = 0
    state: Any = None
    basis: Basis | None = None
    times: DecisionTimes | None = None


Search = Generator[frozenset[str], bool, frozenset[str] | None]
"""Yields jobs, is sent whether they can be planned with no others, and returns those that it was looking for.

None: all of them can be planned by now.
"""


@dataclass
class _Questions:
    """Whether jobs can be planned, asked no more than `left` times."""

    left: int

    def fail(self, groups: Iterable[Group]) -> Generator[frozenset[str], bool, bool]:
        """Say whether the jobs of these groups alone cannot be planned, or nothing may be asked any more."""
        self.left -= 1
        if self.left < 0:
            return True
        planned = yield frozenset(job for group in groups for job in group)
        return not planned


def culprits(studies: Sequence[Group]) -> Search:
    """Search for jobs without which all others can be planned; none where no such are found in `MAX_TRIES`.

    studies: the jobs of each, in order of their start. Studies are halved until those that fail are found, then their jobs:
    about 2 log2(n) tries for each. Of two halves that only fail together the later one is taken, and what the tries do not
    suffice for is taken as a whole.
    """
    questions = _Questions(MAX_TRIES - 1)  # The last try confirms the result.
    found: set[str] = set()
    if not (yield from questions.fail(studies)):
        return None
    for study in (yield from _failing(studies, questions)):
        # A study that does not fail alone is the later one of two that only fail together.
        alone = yield from questions.fail([study])
        jobs = (yield from _failing([(job,) for job in study], questions)) if alone else [study]
        found.update(job for group in jobs for job in group)
    others = frozenset(job for study in studies for job in study) - found
    return frozenset(found) if found and others and (yield others) else frozenset()


def _failing(groups: Sequence[Group], questions: _Questions) -> Generator[frozenset[str], bool, list[Group]]:
    """Return the groups that fail, of groups that fail together."""
    if len(groups) <= 1:
        return list(groups)
    found: list[Group] = []
    for half in (groups[: len(groups) // 2], groups[len(groups) // 2 :]):
        if (yield from questions.fail(half)):
            found += yield from _failing(half, questions)
    return found or list(groups[len(groups) // 2 :])


class Quarantine:
    """Plan without the jobs that no decision can be made with, and remember which these are, why, and as what they failed.

    propose: asks for a decision without some jobs, and among some. A job is released when it is not what it was. A search takes
    many decisions, each as long as one of all jobs: whoever drives it leaves time for everything else in between.
    """

    def __init__(
        self,
        propose: Callable[[frozenset[str], frozenset[str] | None], Awaitable[Decided]],
        tracker: Tracker,
        profiles: ProfileEstimates,
    ) -> None:
        self._propose = propose
        self._tracker = tracker
        self._profiles = profiles
        self._jobs: dict[str, tuple[object, str]] = {}
        self._search: _Searched | None = None
        self._limited = LimitedLog()
        self._hopeless: AbstractSet[str] = frozenset()  # jobs among which no culprit was found

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why each job is quarantined, by its key."""
        return {key: reason for key, (_, reason) in self._jobs.items()}

    @property
    def is_searching(self) -> bool:
        """Whether `search` is to be called."""
        return self._search is not None

    async def propose(self) -> Decided:
        """Return a decision with all jobs but the quarantined ones; a failed one begins a search for others."""
        running = {trial.key: trial for trial in self._tracker.running}
        self._jobs = {
            key: known for key, known in self._jobs.items() if key in running and self._signature(running[key]) == known[0]
        }
        made = await self._propose(frozenset(self._jobs), None)
        asked = made.asked
        if not made.proposal.failed:
            self._search = None
        elif self._search is None and asked != self._hopeless:
            by_study: dict[str, list[str]] = {}
            for trial in self._tracker.running:
                if trial.key in asked:
                    by_study.setdefault(trial.study, []).append(trial.key)
            self._search = _Searched(culprits([tuple(jobs) for jobs in by_study.values()]), asked, made.proposal.error)
            self._go_on(None)
        return made

    async def search(self) -> None:
        """Ask once more; at the search's end, quarantine what it has found: then a decision is to be asked for again."""
        search = self._search
        if search is None:
            return
        tried = await self._propose(frozenset(), search.question)
        search.errors[search.question] = tried.proposal.error
        self._go_on(not tried.proposal.failed)

    def _go_on(self, answer: bool | None) -> None:
        search = self._search
        assert search is not None
        try:
            search.question = next(search.steps) if answer is None else search.steps.send(answer)
        except StopIteration as end:
            self._search = None
            self._hopeless = frozenset() if end.value is None or end.value else search.asked
            self._add(end.value or frozenset(), search)

    def _add(self, found: frozenset[str], search: "_Searched") -> None:
        running = {trial.key: trial for trial in self._tracker.running}
        for key in sorted(found & running.keys()):
            error = shortened(search.errors.get(frozenset({key}), search.error))
            self._limited.error("quarantined: no decision can be made with it", None, key, trial=key, reason=error)
            self._jobs[key] = self._signature(running[key]), error

    def _signature(self, trial: TrialRecord) -> object:
        """Return what decisions on a trial are made of, but for its progress."""
        study, attempt = self._tracker.study(trial.study), trial.attempt
        assert attempt is not None
        targets = trial.farthest, len(trial.targets), trial.budget
        return attempt.seq, targets, study.weight, study.rungs, study.barriers, self._profiles.of_trial(trial.key)


@dataclass
class _Searched:
    """A search under way. asked: the jobs that it is among. error: of the decision with all of them; errors: with some."""

    steps: Search
    asked: AbstractSet[str]
    error: str
    question: frozenset[str] = frozenset()
    errors: dict[frozenset[str], str] = field(default_factory=dict)
