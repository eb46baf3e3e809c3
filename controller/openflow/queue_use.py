"""Whether a switch sends what is told to use a queue through that queue: its statistics say so, against the probes sent there.

Rules choose queues as the controller's probes do, by `set_queue`, so no traffic has to be waited for.
"""

from dataclasses import dataclass

UNANSWERED = 3  # After so many questions in a row without an answer nothing is known of a switch's queues any more.
MISSED = 6  # So many probes that a queue has not counted show that it gets none.
_UNKNOWN = 2**64 - 1  # What a switch that does not count says (OpenFlow 1.3.5, A.3.5).


@dataclass
class QueueUse:
    """The use of the queue of class 0 at a port.

    obeyed: whether it counts what is sent to it, None while that is not known. told: probes sent to it since the last reading.
    """

    obeyed: bool | None = None
    told: int = 0
    _counted: int | None = None
    _missed: int = 0

    def read(self, packets: int | None, told: int) -> None:
        """Take in how many packets the queue has counted, None where there is none. told: as it was when that was asked for."""
        self.told -= told
        before, self._counted = self._counted, packets
        if packets is None:
            self.obeyed, self._missed = None, 0
        elif packets == _UNKNOWN:
            self.obeyed = False
        elif before is None or packets < before:  # It is new.
            self._missed = 0
        elif packets > before:
            self.obeyed, self._missed = True, 0
        else:
            self._missed += told
            if self._missed >= MISSED:
                self.obeyed = False
