"""What is counted while inputs are tried, alike for each of the things that listen, until it becomes `Findings`."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from eval.fuzz.findings import SLOW_TURN_S, Findings, FuzzFailure
from eval.fuzz.turns import TurnProbe

WARM_UP = 50  # Memory is compared after so many inputs.


class Tally:
    """Count the inputs that were accepted and refused, and keep those that failed. probe: of the loop under test."""

    def __init__(self, probe: TurnProbe) -> None:
        self._probe = probe
        self._accepted = self._refused = 0
        self._failures: list[FuzzFailure] = []
        self._before_bytes = 0

    @property
    def inputs(self) -> int:
        """How many were tried."""
        return self._accepted + self._refused

    def goes_on(self, until: float, most_inputs: int | None) -> bool:
        """Say whether another input is to be tried: until a failure, a time in monotonic seconds, or so many."""
        return not self._failures and time.monotonic() < until and self.inputs != most_inputs

    def add(self, refused: bool, disturbance: str | None, sent: Sequence[bytes | bytearray]) -> None:
        """Count an input. disturbance: in what something was served worse after it. sent: by connection."""
        if refused:
            self._refused += 1
        else:
            self._accepted += 1
        if disturbance:
            self.fail(disturbance, sent)
        if self.inputs <= WARM_UP:
            self._before_bytes = _resident_bytes()

    def fail(self, disturbance: str, sent: Sequence[bytes | bytearray] = ()) -> None:
        """Keep a failure."""
        self._failures.append(FuzzFailure(disturbance, tuple(data.hex() for data in sent)))

    def findings(self, target: str, seed: int) -> Findings:
        """Return what was found so far."""
        probe = self._probe
        return Findings(
            target,
            seed,
            self.inputs,
            self._accepted,
            self._refused,
            max(probe.late_s, default=0.0),
            probe.quantile(0.99),
            probe.slower_than(SLOW_TURN_S),
            probe.busy_s,
            _resident_bytes() - self._before_bytes,
            tuple(self._failures),
        )


def _resident_bytes() -> int:
    """Return the resident memory of this process (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
