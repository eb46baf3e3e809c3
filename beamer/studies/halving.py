"""Successive halving of trials that continue from where they stopped: who is promoted from rung to rung.

Jamieson and Talwalkar (AISTATS 2016, algorithm 1) rank a rung when all of its trials have arrived. Here every trial is judged
as soon as its verdict cannot change any more, which promotes and stops the same trials, some of them earlier. A caller that
needs the whole rung waits for `is_over`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from beamer.errors import InputError
from beamer.studies.model import Rung


@dataclass(frozen=True)
class Verdict:
    """What is decided of a trial at the end of a rung. promoted: to the next one; otherwise it goes no further."""

    trial: str
    promoted: bool


class Halving:
    """Decide which trials are promoted at each rung.

    rungs: every one, the first included; `step` counts from the trial's beginning. As many trials are promoted as the
    next rung has jobs. A trial arrives at the end of its rung with a loss and waits for its verdict.

    A loss that is not finite is the worst, negative infinity too: it comes from a division by zero or an overflow, not from a
    model that fits better than all others. Of equal losses the first to arrive is the better. As long as trials are missing in
    a rung that not all survive, and none has come with a finite loss, nobody is judged there.
    """

    def __init__(self, rungs: Sequence[Rung]) -> None:
        if not rungs:
            raise InputError("rungs", tuple(rungs), "at least one rung")
        for i, rung in enumerate(rungs):
            if rung.trials < 1:
                raise InputError(f"rungs[{i}].trials", rung.trials, "at least 1")
            if i and rung.step <= rungs[i - 1].step:
                expected = f"above {rungs[i - 1].step}: counted from the trial's beginning"
                raise InputError(f"rungs[{i}].step", rung.step, expected)
        self.rungs = tuple(rungs)
        self._rung: dict[str, int] = {}
        self._entered = [0 for _ in rungs]
        self._left = [0 for _ in rungs]
        self._losses: list[dict[str, float]] = [{} for _ in rungs]
        self._judged: list[set[str]] = [set() for _ in rungs]
        self._promoted: list[set[str]] = [set() for _ in rungs]
        self._gone: set[str] = set()
        self._closed = False

    def __contains__(self, trial: str) -> bool:
        """Whether a trial takes part: it runs, waits for its verdict, or was promoted."""
        return trial in self._rung

    def rung(self, trial: str) -> int:
        """Return the number of the rung that a trial is in."""
        return self._rung[trial]

    def size(self, rung: int) -> int:
        """Return how many trials arrive at the end of a rung, as far as is known."""
        size = (self._entered[0] if self._closed else max(self.rungs[0].trials, self._entered[0])) - self._left[0]
        for i in range(1, rung + 1):
            size = min(self.rungs[i].trials, size) - self._left[i]
        return size

    def is_sealed(self, rung: int) -> bool:
        """Say whether no further trial enters a rung."""
        if rung == 0:
            return self._closed
        return self.is_sealed(rung - 1) and self._entered[rung] - self._left[rung] >= self.size(rung)

    def is_over(self, rung: int) -> bool:
        """Say whether all trials of a rung have arrived at its end or left."""
        return len(self._losses[rung]) == self.size(rung)

    def is_without_loss(self, rung: int) -> bool:
        """Say whether a rung is over in which some go no further, and no trial has come to its end with a finite loss."""
        return rung + 1 < len(self.rungs) and self.is_over(rung) and self._lacks_loss(rung)

    def _lacks_loss(self, rung: int) -> bool:
        return self.size(rung) > self.rungs[rung + 1].trials and not any(map(isfinite, self._losses[rung].values()))

    def survivors(self, rung: int) -> list[str]:
        """Return the trials that were promoted at the end of a rung, the best first."""
        return [trial for trial in self._ranked(rung) if trial in self._promoted[rung]]

    def join(self, trial: str) -> None:
        """Let a new trial enter the first rung; more trials than its jobs make it larger, but promote no more of them."""
        self._rung[trial] = 0
        self._entered[0] += 1

    def close(self) -> list[Verdict]:
        """Let no further trial join, and return what is now certain."""
        self._closed = True
        return self._judge(0)

    def arrive(self, trial: str, loss: float) -> list[Verdict]:
        """Let a trial arrive at the end of its rung, and return what is now certain, of it and of others."""
        rung = self._rung[trial]
        self._losses[rung][trial] = loss if isfinite(loss) else inf
        if rung + 1 == len(self.rungs):
            del self._rung[trial]
        return self._judge(rung)

    def leave(self, trial: str) -> list[Verdict]:
        """Let a trial end elsewhere than at the end of its rung, and return what is now certain of others.

        One that waits for its verdict keeps its place until then: the others were judged against it.
        """
        rung = self._rung.pop(trial)
        if trial in self._losses[rung]:
            self._gone.add(trial)
            return []
        self._left[rung] += 1
        return self._judge(rung)

    def _ranked(self, rung: int) -> list[str]:
        losses = self._losses[rung]
        # The sort is stable: of equal trials the first to arrive comes first.
        return sorted(losses, key=lambda trial: losses[trial])

    def _judge(self, first: int) -> list[Verdict]:
        """Return the verdicts that have become certain in the rung `first` and those after it."""
        verdicts: list[Verdict] = []
        for rung in range(first, len(self.rungs) - 1):
            keep = self.rungs[rung + 1].trials
            missing = self.size(rung) - len(self._losses[rung])
            if missing and self._lacks_loss(rung):
                continue
            for better, trial in enumerate(self._ranked(rung)):
                # Trials that were certain before better ones joined may have filled the rung.
                is_full = self._entered[rung + 1] >= keep
                if trial not in self._judged[rung] and (better >= keep or better + missing < keep or is_full):
                    self._judged[rung].add(trial)
                    verdicts += self._verdict(rung, trial, better < keep and not is_full)
        return verdicts

    def _verdict(self, rung: int, trial: str, promoted: bool) -> list[Verdict]:
        if promoted:
            self._entered[rung + 1] += 1
        if trial in self._gone:
            self._gone.discard(trial)
            self._left[rung + 1] += promoted
            return []
        if promoted:
            self._promoted[rung].add(trial)
            self._rung[trial] = rung + 1
        else:
            del self._rung[trial]
        return [Verdict(trial, promoted)]


def declared_rungs(declared: Sequence[tuple[int, int | None]], count: int, field: str) -> tuple[Rung, ...]:
    """Return the rungs of a search of `count` trials. declared: of each, its step and how many trials it keeps for the next.

    Raises `InputError` naming `field`, the rung and its key `iterations` or `keep`.
    """
    found: list[Rung] = []
    for i, (step, keep) in enumerate(declared):
        if found and step <= found[-1].step:
            raise InputError(f"{field}[{i}].iterations", step, f"above {found[-1].step}: counted from the start")
        found.append(Rung(f"rung{i}", count, step))
        is_last = i + 1 == len(declared)
        if is_last and keep is not None:
            raise InputError(f"{field}[{i}].keep", keep, "no such key in the last rung, after which nothing runs")
        if not is_last and (keep is None or keep > count):
            raise InputError(f"{field}[{i}].keep", keep, f"1 to {count}, the trials that run in this rung")
        count = keep or count
    return tuple(found)
