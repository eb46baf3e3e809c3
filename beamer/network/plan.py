"""What the network is asked to do: a class per job, an optional rate cap, on a fabric with K queues.

Classes are numbered 0 (served first) to K-1, each with a codepoint of its own (`beamer.network.codepoints`); unregistered
traffic has its own queue with a guaranteed share. A plan is plain data: simulator, switches and host agents apply the same one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from beamer.errors import InputError

if TYPE_CHECKING:
    from beamer.network.policy import Order

QUEUES = 8  # HTB knows priorities 0 to 7.
# Managed classes leave this share of a port's rate, or they would starve what is not registered, logins and controllers too.
UNREGISTERED_SHARE = 0.1


def check_queues(queues: int) -> int:
    """Return `queues` if a port can have that many managed classes; raise `InputError` otherwise."""
    if isinstance(queues, bool) or not isinstance(queues, int) or not 1 <= queues <= QUEUES:
        raise InputError("queues", queues, f"1 to {QUEUES}, the priorities that HTB knows")
    return queues


@dataclass(frozen=True)
class JobPlan:
    """One job's treatment: its class, and the rate that its busiest sender may not exceed (None: no cap).

    Its other senders may send in proportion, as they do with the fabric to themselves.
    """

    klass: int
    cap_bps: int | None = None


@dataclass(frozen=True)
class Plan:
    """The treatment of every running job. Two equal plans need no change in the network.

    order: that it was made from, for those who ask why; no part of the treatment.
    """

    queues: int = QUEUES
    jobs: Mapping[str, JobPlan] = field(default_factory=lambda: MappingProxyType({}))
    order: "Order" = field(default=(), compare=False, repr=False)

    def within(self, queues: int) -> "Plan":
        """Return the same in at most so many classes: what would be behind the last is in it."""
        if self.queues <= queues:
            return self
        jobs = {key: replace(job, klass=min(job.klass, queues - 1)) for key, job in self.jobs.items()}
        return replace(self, queues=queues, jobs=jobs)
