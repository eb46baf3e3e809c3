"""What moving the GPU memory of jobs takes, by their sizes, as the moves of this engine have shown."""

from collections import deque
from statistics import median

KEPT = 20
"""Moves that count, the last ones."""


class MoveTimes:
    """Times of moves in one direction."""

    def __init__(self) -> None:
        self._moves: deque[tuple[float, int]] = deque(maxlen=KEPT)

    def add(self, took_s: float, size: int) -> None:
        """Take in a move. size: in bytes, 0: not known."""
        self._moves.append((took_s, size))

    def expected_s(self, size: int) -> float:
        """Return what a move takes by the median rate, or the median time where sizes are not known; 0: none has been made."""
        if not self._moves:
            return 0.0
        rates = [took_s / moved for took_s, moved in self._moves if moved]
        return median(rates) * size if rates and size else median(took_s for took_s, _ in self._moves)
