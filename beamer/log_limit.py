"""Keeps the log readable, and the disk free, when somebody makes the same thing happen thousands of times."""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

# So many differences of peers of another version are logged, each once in so many seconds.
MAX_DIFFERENCES, DIFFERENCES_AGAIN_S = 20, 3600.0
MAX_KINDS = 4096  # Only the latest kinds are remembered, as a bound on memory.
# Records of other libraries are told apart by so many characters of the message; addresses come later in it.
_KIND_CHARACTERS = 60


class LogLimit:
    """Say of each line whether it may be logged: no more than `lines` of a kind in `period_s` seconds of `clock`."""

    def __init__(self, lines: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._period_s = period_s
        self._clock = clock
        self._logged: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def take(self, kind: Hashable) -> bool:
        """Return whether a line of this kind is to be logged now, and count it if it is."""
        now = self._clock()
        times = self._logged.setdefault(kind, deque(maxlen=self._lines))
        self._logged.move_to_end(kind)
        if len(self._logged) > MAX_KINDS:
            self._logged.popitem(last=False)
        if len(times) == self._lines and now - times[0] < self._period_s:
            return False
        times.append(now)
        return True


class VariedLogLimit:
    """Say of each line whether it may be logged: each variant of a kind once in `period_s` seconds, at most `variants` of them.

    Variants are what others choose: addresses, names, texts. Kinds are few: constants of the program. clock: seconds.
    """

    def __init__(self, variants: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._variants = variants
        self._period_s = period_s
        self._clock = clock
        # An entry holds when counting began and the variants logged since, by kind.
        self._logged: OrderedDict[Hashable, tuple[float, set[Hashable]]] = OrderedDict()
        self._left_out: dict[Hashable, int] = {}

    def take(self, kind: Hashable, variant: Hashable) -> bool:
        """Return whether this variant of a kind is to be logged now, and count it, either way."""
        now = self._clock()
        since, logged = self._logged.get(kind, (now, set()))
        if now - since >= self._period_s:
            since, logged = now, set()
        self._logged[kind] = since, logged
        self._logged.move_to_end(kind)
        if len(self._logged) > MAX_KINDS:
            self._left_out.pop(self._logged.popitem(last=False)[0], None)
        if variant in logged or len(logged) >= self._variants:
            self._left_out[kind] = self.left_out(kind) + 1
            return False
        logged.add(variant)
        self._left_out.pop(kind, None)
        return True

    def left_out(self, kind: Hashable) -> int:
        """Return how many lines of a kind were left out since the last one that was not."""
        return self._left_out.get(kind, 0)

    def reset(self, kind: Hashable) -> None:
        """Log the next of a kind, whatever it is: it was over in between."""
        self._logged.pop(kind, None)


class LimitedRecords(logging.Filter):
    """Lets few records of each message of a library's logger through."""

    def __init__(self, limit: LogLimit) -> None:
        super().__init__()
        self._limit = limit

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be logged."""
        return self._limit.take((record.name, str(record.msg)[:_KIND_CHARACTERS]))
