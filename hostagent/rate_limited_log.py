"""Logging of failures that may be repeated many times a second: each text once in a minute, and few texts of a kind."""

import logging
import time
from collections.abc import Callable

from beamer.errors import shortened
from beamer.log_limit import VariedLogLimit

_AGAIN_S = 60.0  # The same line is logged again after so long.
# A kind has so many texts in that time: enough for failures that alternate, few where another program chooses the text.
_MAX_TEXTS = 5

log = logging.getLogger("beamer.hostagent")


class RateLimitedLog:
    """Logs failures by kind. A kind is one of few constants, never what another program has sent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = VariedLogLimit(_MAX_TEXTS, _AGAIN_S, clock)

    def add(self, kind: str, what: object, level: int = logging.ERROR, error: BaseException | None = None) -> None:
        """Log `what` unless it, or much else of its kind, was logged within the last minute; with `error`'s traceback."""
        text = shortened(str(what))
        if self._limit.take(kind, text):
            log.log(level, "%s: %s", kind, text, exc_info=error)

    def reset(self, kind: str) -> None:
        """Log the next of a kind, whatever it is: it was over in between."""
        self._limit.reset(kind)
