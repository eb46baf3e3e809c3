"""Logging of failures that may be repeated many times a second: each text once in a minute, and few texts of a kind."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_AGAIN_S = 60.0  # after which the same is said again
_MOST_TEXTS = 5  # of a kind within that time: enough for failures that alternate, few where another program chooses the text
MOST_CHARACTERS = 500  # of a text: it may quote what another program has sent


def shortened(text: object) -> str:
    """Return a text, cut off where it is too long to be read."""
    whole = str(text)
    return whole if len(whole) <= MOST_CHARACTERS else f"{whole[:MOST_CHARACTERS]}..."


@dataclass
class _Kind:
    since_s: float
    texts: set[str] = field(default_factory=set)


class RateLimitedLog:
    """Logs failures by kind. A kind is one of few constants, never what another program has sent."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def add(self, kind: str, what: object, level: int = logging.ERROR, error: BaseException | None = None) -> None:
        """Log `what` unless it, or much else of its kind, was logged within the last minute; with `error`'s traceback."""
        now_s, text = self._clock(), shortened(what)
        said = self._kinds.get(kind)
        if said is None or now_s - said.since_s >= _AGAIN_S:
            said = self._kinds[kind] = _Kind(now_s)
        if text not in said.texts and len(said.texts) < _MOST_TEXTS:
            said.texts.add(text)
            self._log.log(level, "%s: %s", kind, text, exc_info=error)

    def reset(self, kind: str) -> None:
        """Log the next of a kind, whatever it is: it was over in between."""
        self._kinds.pop(kind, None)
