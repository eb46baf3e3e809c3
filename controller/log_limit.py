"""Keeps the log readable, and the disk free, when somebody makes the same thing happen thousands of times."""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable

MOST_KINDS = 4096  # that are remembered, the latest: a bound on memory
_KIND_CHARACTERS = 60  # of a message, by which records of other libraries are told apart; addresses come later in them


class LogLimit:
    """Say of each line whether it may be logged: no more than `lines` of a kind in `period_s` seconds of `clock`."""

    def __init__(self, lines: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._period_s = period_s
        self._clock = clock
        self._logged: OrderedDict[object, deque[float]] = OrderedDict()

    def take(self, kind: object) -> bool:
        """Return whether a line of this kind is to be logged now, and count it if it is."""
        now = self._clock()
        times = self._logged.setdefault(kind, deque(maxlen=self._lines))
        self._logged.move_to_end(kind)
        if len(self._logged) > MOST_KINDS:
            self._logged.popitem(last=False)
        if len(times) == self._lines and now - times[0] < self._period_s:
            return False
        times.append(now)
        return True


class LimitedRecords(logging.Filter):
    """Lets few records of each message of a library's logger through."""

    def __init__(self, limit: LogLimit) -> None:
        super().__init__()
        self._limit = limit

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be logged."""
        return self._limit.take((record.name, str(record.msg)[:_KIND_CHARACTERS]))
