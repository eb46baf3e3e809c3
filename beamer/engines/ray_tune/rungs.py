"""Who goes on at the rungs of a search whose survivors continue from their checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isnan

from beamer.errors import InputError
from beamer.workloads.searches import SearchRung


@dataclass(frozen=True)
class Verdict:
    """What became of a trial at a rung. goes_on: to the next one; otherwise it is stopped."""

    trial: str
    goes_on: bool


class Rungs:
    """Successive halving as trials live it: each rung's best go on, the others are stopped, both as soon as it is certain.

    rungs: as of a search with `resume`, so `iterations` is what each adds. A trial at the end of its rung waits until as many
    others are better as may go on, or until no more of them can be. A loss that is not a number is the worst; of equal losses
    the first to arrive is the better.
    """

    def __init__(self, rungs: Sequence[SearchRung]) -> None:
        if not rungs:
            raise InputError("rungs", tuple(rungs), "at least one rung")
        for i, rung in enumerate(rungs):
            if rung.jobs < 1 or rung.iterations < 1 or (rung.keep is None) != (i == len(rungs) - 1):
                raise InputError(f"rungs[{i}]", rung, "jobs, iterations, and how many go on unless it is the last")
        self._rungs = tuple(rungs)
        self._until = tuple(accumulate(rung.iterations for rung in rungs))
        self._at: dict[str, int] = {}
        self._sizes = [rungs[0].jobs, *(0 for _ in rungs[1:])]
        self._arrived: list[dict[str, float]] = [{} for _ in rungs]
        self._judged: list[set[str]] = [set() for _ in rungs]
        self._joined = [0] * len(rungs)
        self._left = [0] * len(rungs)
        self._expect(1)

    def __len__(self) -> int:
        return len(self._rungs)

    def join(self, trial: str) -> None:
        """Let a new trial begin in the first rung. More than were declared make it larger."""
        self._at[trial] = 0
        self._joined[0] += 1
        if self._joined[0] > self._sizes[0]:
            self._sizes[0] = self._joined[0]
            self._expect(1)

    def rung(self, trial: str) -> int:
        """Return the number of the rung that a trial is in."""
        return self._at[trial]

    def until(self, trial: str) -> int:
        """Return the iterations after which a trial has arrived at the end of its rung, counted from its start."""
        return self._until[self._at[trial]]

    def is_last(self, trial: str) -> bool:
        """Say whether no rung follows that of a trial."""
        return self._at[trial] == len(self._rungs) - 1

    def size(self, rung: int) -> int:
        """Return how many trials a rung has had and will have."""
        return self._sizes[rung]

    def keeps(self, rung: int) -> int | None:
        """Return how many of a rung's trials go on; None after the last."""
        return self._rungs[rung].keep

    def is_sealed(self, rung: int) -> bool:
        """Say whether all trials of a rung have joined it."""
        return self._joined[rung] >= self._sizes[rung]

    def arrive(self, trial: str, loss: float) -> list[Verdict]:
        """Let a trial arrive at the end of its rung and return what is now certain, of it and of others."""
        self._arrived[self._at[trial]][trial] = inf if isnan(loss) else loss
        return self._judge(self._at[trial])

    def leave(self, trial: str) -> list[Verdict]:
        """Let a trial end elsewhere than at the end of its rung and return what is now certain of others."""
        rung = self._at.pop(trial)
        if trial in self._arrived[rung]:
            return []
        self._joined[rung] -= 1
        self._left[rung] += 1
        if rung == 0:
            self._sizes[0] -= 1
        self._expect(1)
        return [verdict for i in range(rung, len(self._rungs)) for verdict in self._judge(i)]

    def _judge(self, rung: int) -> list[Verdict]:
        keep = self._rungs[rung].keep
        if keep is None:
            return []
        arrived, judged = self._arrived[rung], self._judged[rung]
        missing = self._sizes[rung] - len(arrived)
        verdicts = []
        for better, trial in enumerate(sorted(arrived, key=lambda trial: arrived[trial])):  # stable: the first to arrive
            if trial not in judged and (better >= keep or better + missing < keep):
                judged.add(trial)
                verdicts.append(Verdict(trial, goes_on=better < keep))
        for verdict in verdicts:
            if verdict.goes_on:
                self._at[verdict.trial] = rung + 1
                self._joined[rung + 1] += 1
        return verdicts

    def _expect(self, rung: int) -> None:
        """Work out anew how many trials come to `rung` and those after it."""
        for i in range(rung, len(self._rungs)):
            keep = self._rungs[i - 1].keep
            self._sizes[i] = min(keep or 0, self._sizes[i - 1]) - self._left[i]
