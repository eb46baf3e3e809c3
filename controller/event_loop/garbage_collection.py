"""When Python's collector looks for unreachable cycles of objects: rarely, as each search keeps the event loop waiting.

A controller keeps what it knows of studies for as long as they last: hundreds of thousands of objects, which a full collection
visits one by one, by default whenever a quarter more of them have come. Little of what it lets go of is in a cycle: what
exceptions and tasks leave behind.
"""

import gc

YOUNG = 100_000  # objects made and not let go of, before the youngest are looked through: a few milliseconds
MIDDLE = 50  # of these, before the middle-aged are
OLD = 1000  # of these, before all are: not before billions of objects were made


def collect_rarely() -> None:
    """Look through all objects rarely, and never through those that there are now."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
