"""What `ss -tin` shows of the segments that a connection has sent again."""

import re


def sent_again(shown: str) -> int:
    """Return how many segments were sent again."""
    return int(found[1]) if (found := re.search(r"retrans:\d+/(\d+)", shown)) else 0


def lost(shown: str) -> int:
    """Return how many of them had not arrived: TCP also sends again what is acknowledged late, and is told what came twice."""
    return sent_again(shown) - (int(found[1]) if (found := re.search(r"dsack_dups:(\d+)", shown)) else 0)
