"""The log of what peers cause: each of them can make the same thing happen thousands of times, in thousands of variants."""

from collections.abc import Callable, Hashable
from typing import Any

import structlog

from beamer.errors import shortened
from beamer.log_limit import VariedLogLimit

MAX_LOGGED = 20  # So many variants of an event of a peer are logged within `AGAIN_S`: more of them say nothing new.
MAX_LOGGED_OF_ALL = 500  # So many variants of an event without a peer are logged: one per trial, in a search that loses many.
AGAIN_S = 3600.0
LINES_AN_HOUR = 20  # So many lines of a kind are logged of a switch or an agent where each says the same.
MAX_CHARACTERS = 200  # A text that a peer has chosen is cut to so many characters.

log = structlog.get_logger("beamer-controller")


class LimitedLog:
    """Logs events by peer: each variant once in `AGAIN_S`, `MAX_LOGGED` of them.

    Events are constants of the program, and peers those that the fabric names, or None: both are few.
    """

    def __init__(self) -> None:
        self._of_peers = VariedLogLimit(MAX_LOGGED, AGAIN_S)
        self._of_all = VariedLogLimit(MAX_LOGGED_OF_ALL, AGAIN_S)

    def warning(self, event: str, peer: str | None, variant: Hashable = None, **what: Any) -> None:
        """Log that something is not as it should be."""
        self._add(log.warning, event, peer, variant, what)

    def error(self, event: str, peer: str | None, variant: Hashable = None, **what: Any) -> None:
        """Log that something cannot be done. exc_info: the exception, whose traceback is logged with it."""
        self._add(log.error, event, peer, variant, what)

    def _add(self, write: Callable[..., None], event: str, peer: str | None, variant: Hashable, what: dict[str, Any]) -> None:
        kind = event, peer
        limit = self._of_all if peer is None else self._of_peers
        left_out = limit.left_out(kind)
        if limit.take(kind, variant):
            shown = {name: shortened(one, MAX_CHARACTERS) if isinstance(one, str) else one for name, one in what.items()}
            write(event, **shown, **({"left_out": left_out} if left_out else {}))
