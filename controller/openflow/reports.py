"""What is reported of switches: connections, losses, installed generations, and what they have counted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SwitchConnected:
    """A switch of the fabric has connected; what it holds is being compared."""

    switch: str


@dataclass(frozen=True)
class SwitchLost:
    """A switch's connection is gone; it keeps forwarding by the rules it has."""

    switch: str


@dataclass(frozen=True)
class SwitchInstalled:
    """A switch has answered the barrier behind a generation's rules.

    changes: rules that had to be added or have lost their purpose.
    """

    switch: str
    generation: int
    changes: int


SwitchEvent = SwitchConnected | SwitchLost | SwitchInstalled


@dataclass(frozen=True)
class PairCount:
    """What a job sent from one host to another in one class, counted at the edge before the queue.

    marked: with this class by its host, too; otherwise while host and edge did not agree.
    final: from rules that have been removed since this controller started; otherwise from rules in force.
    """

    switch: str
    job_seq: int
    src: str
    dst: str
    klass: int
    marked: bool
    sent_bytes: int
    sent_packets: int
    final: bool
