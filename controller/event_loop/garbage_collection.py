"""When Python's collector looks for unreachable cycles of objects: rarely, as each search keeps the event loop waiting.

A controller keeps what it knows of studies for as long as they last: hundreds of thousands of objects, which a full collection
visits one by one, by default whenever a quarter more of them have come. Little of what it lets go of is in a cycle: what
exceptions and tasks leave behind.
"""

import gc

YOUNG = 100_000  # So many objects are made and kept before the youngest are searched, which takes a few milliseconds.
MIDDLE = 50  # The youngest are searched so often before the middle-aged are.
OLD = 1000  # The middle-aged are searched so often before all are: not before billions of objects were made.


def collect_rarely() -> None:
    """Look through all objects rarely, and never through those that there are now."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
