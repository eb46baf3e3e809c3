"""What is logged of refused peers: each kind once in a while per peer, so that a flood of them does not fill the log."""

from collections.abc import Hashable

EVERY_S = 600.0  # often enough for who looks into the log while it goes on
MOST = 256  # kinds by peer remembered at a time: a peer needs an address of its own for each further one


class RefusalLog:
    """Decides which refusals are to be logged."""

    def __init__(self) -> None:
        self._since: dict[Hashable, tuple[float, int]] = {}

    def due(self, key: Hashable, now: float) -> int | None:
        """Return how many of this key were left out since it was last logged, None if this one is to be left out, too.

        now: monotonic seconds.
        """
        logged_at, left_out = self._since.get(key, (-EVERY_S, 0))
        if now - logged_at < EVERY_S:
            self._since[key] = logged_at, left_out + 1
            return None
        if key not in self._since and len(self._since) >= MOST:
            self._since = {k: kept for k, kept in self._since.items() if now - kept[0] < EVERY_S}
            if len(self._since) >= MOST:
                return None
        self._since[key] = now, 0
        return left_out
