"""Logs each kind of refusal once: the repeats of a loop would hide the first line, and a record of them would fill memory."""

import logging
from collections.abc import Hashable

from beamer.errors import shortened

MAX_REASONS = 5  # At most so many reasons are logged per kind of request, as a controller may answer every one differently.
MAX_KINDS = 1000  # Refusals of at most so many kinds are logged; each kind has taken a line of the log.
MAX_CHARACTERS = 500  # A text is logged and remembered up to this length; the start of a message suffices.

_log = logging.getLogger("beamer.client")


def clip(text: str) -> str:
    """Return a text, as much of it as is logged and remembered; a log takes no lone surrogates."""
    return shortened(text, MAX_CHARACTERS).encode("utf-8", "backslashreplace").decode()


class Refusals:
    """What has been logged, by kind of request. line: of the log, with what is refused and why."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._reasons: dict[Hashable, set[str]] = {}

    def log(self, what: str, reason: str, kind: Hashable, told_apart_by: str | None = None) -> None:
        """Log that `what` is refused for a reason: as a warning if that is new of its kind.

        told_apart_by: by what reasons differ; None: by their texts.
        """
        what, reason = clip(what), clip(reason)
        known = reason if told_apart_by is None else told_apart_by
        reasons = self._reasons.setdefault(kind, set()) if len(self._reasons) < MAX_KINDS else self._reasons.get(kind)
        is_new = reasons is not None and known not in reasons and len(reasons) < MAX_REASONS
        if reasons is not None and is_new:
            reasons.add(known)
        _log.log(logging.WARNING if is_new else logging.DEBUG, self._line, what, reason)
