"""When Python looks for objects that nothing refers to any more but each other.

A controller keeps what it knows of studies for as long as they last: hundreds of thousands of objects, which such a search
visits one by one while everything else waits, as often as a quarter more of them have come. What it lets go of is in no cycle,
but what exceptions and tasks leave behind.
"""

import gc

YOUNG = 100_000  # objects made and not let go of, before the youngest are looked through: a few milliseconds
MIDDLE = 50  # of these, before the middle-aged are
OLD = 1000  # of these, before all are: not before billions of objects were made


def collect_rarely() -> None:
    """Look through all objects rarely, and never through those that there are now."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
