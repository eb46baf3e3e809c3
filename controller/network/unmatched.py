"""How many bytes each trial's connections had sent before agents first marked them, over all attempts.

An agent counts per trial for as long as the trial has workers on its hosts: from zero at the next attempt, if there was none in
between, and after its own restart.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass


@dataclass
class _Count:
    """What one agent says of one trial. before: what it had counted when it began anew."""

    latest: int = 0
    before: int = 0


class UnmatchedBytes:
    """Adds up what agents say. A count that began anew and has passed the old one between two reports is taken to go on."""

    def __init__(self) -> None:
        self._of_agent: dict[str, dict[str, _Count]] = {}  # Each agent's counts, by trial.

    def count(self, agent: str, trial: str, size: int) -> None:
        """Take in what an agent has counted of a trial so far."""
        known = self._of_agent.setdefault(agent, {}).setdefault(trial, _Count())
        if size < known.latest:
            known.before += known.latest
        known.latest = size

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
