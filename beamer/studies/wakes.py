"""What an event wakes: who has to decide, install or look again because of it. Each kind of event declares it, in one place."""

from enum import Flag, auto


class Wakes(Flag):
    """What is due after an event. A kind of event declares a combination, `NOTHING` where nothing is.

    An event that follows from another one, as the end of an attempt from an allocation, wakes by its own declaration.
    """

    NOTHING = 0
    """Nothing is due. Decisions are such: whoever made them carries them out."""

    ORDER = auto()
    """Who runs or what is waited for has changed: the network level decides at once."""

    PACE = auto()
    """How much a trial has left to do has changed: the network level decides, no more often than progress re-orders."""

    STANDING = auto()
    """A report on the event's `trial`: the network level decides at once if its status changes, or what waits for it."""

    TARGETS = auto()
    """Switches and agents have other things to install under the same order: the network level makes their targets anew."""

    LEASES = auto()
    """Which processes should be there has changed: the controller compares them with the leases that are held."""

    GPUS = auto()
    """Who wants GPUs, or which there are, has changed: the GPU level decides at once."""

    GPUS_PACE = auto()
    """What a GPU policy decides by was reported: the GPU level decides, no more often than its reports allow."""
