"""How many bytes each trial's connections had sent before agents first marked them, over all attempts.

An agent counts per trial for as long as the trial has workers on its hosts, and from zero at the next attempt.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass


@dataclass
class _Count:
    """What one agent says of one trial. attempt: the latest, by number. before: of all earlier ones."""

    attempt: int
    latest: int
    before: int


class UnmatchedBytes:
    """Adds up what agents say."""

    def __init__(self) -> None:
        self._of_agent: dict[str, dict[str, _Count]] = {}  # by trial

    def count(self, agent: str, trial: str, attempt: int, size: int) -> None:
        """Take in what an agent has counted so far of a trial's attempt."""
        counts = self._of_agent.setdefault(agent, {})
        known = counts.get(trial)
        if known is not None and known.attempt == attempt:
            known.latest = size
        else:
            counts[trial] = _Count(attempt, size, known.before + known.latest if known is not None else 0)

    def keep(self, trials: Container[str]) -> None:
        """Forget all other trials."""
        for agent, counts in self._of_agent.items():
            self._of_agent[agent] = {trial: count for trial, count in counts.items() if trial in trials}

    def by_trial(self) -> dict[str, int]:
        """Return the sum over agents and attempts."""
        total: Counter[str] = Counter()
        for counts in self._of_agent.values():
            for trial, count in counts.items():
                total[trial] += count.before + count.latest
        return dict(total)
