"""How the suites run hypothesis: no deadline, since machines differ, and the same examples every time."""

from hypothesis import settings

PROFILE = settings(deadline=None, max_examples=60, derandomize=True, database=None)
