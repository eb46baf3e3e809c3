"""The meters that hold the senders of jobs to their caps at the edge, where a host has no agent to do it: OpenFlow 1.3, 5.7.

A meter drops what exceeds its rate, many packets of a window at a time, and TCP then waits for its retransmission time-out, of
200 ms at least. A bucket that is full before that is over wastes the rest: with one of 0.1 s TCP gets half of the rate, from
0.25 s on all of it. Meters with ids from `FIRST_METER` on are Beamer's, others are left alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

FIRST_METER = 0xB000
METERS = 0x4000  # So many meter ids are Beamer's.
# A burst lasts so long at the rate: more than TCP's least time-out, and no more, as it may pass at the link's speed.
BURST_S = 0.3
MIN_BURST_KBIT = 200  # some frames even of the largest size


@dataclass(frozen=True)
class RateMeter:
    """A meter with one band that drops. burst_kbit: what may exceed the rate at once."""

    id: int
    rate_kbps: int
    burst_kbit: int

    @classmethod
    def of(cls, number: int, cap_bps: int) -> "RateMeter":
        """Return the meter that holds a sender to `cap_bps`, in whole kbit/s."""
        rate_kbps = max(1, cap_bps // 1000)
        return cls(number, rate_kbps, max(MIN_BURST_KBIT, round(rate_kbps * BURST_S)))

    @property
    def is_own(self) -> bool:
        """Whether its id is one of Beamer's."""
        return FIRST_METER <= self.id < FIRST_METER + METERS


def meter_ids(senders: Iterable[tuple[int, int]], hosts: int) -> dict[tuple[int, int], int]:
    """Return a meter id for each (job's registration number, position of the host) among so many hosts.

    The same for the same senders, so that a restarted controller finds its meters, and rarely moved when others come or go. Of
    more senders than `METERS` the latest have none.
    """
    taken: dict[int, tuple[int, int]] = {}
    for seq, host in islice(sorted(senders), METERS):
        slot = (seq * hosts + host) % METERS
        while slot in taken:
            slot = (slot + 1) % METERS
        taken[slot] = seq, host
    return {sender: FIRST_METER + slot for slot, sender in taken.items()}
