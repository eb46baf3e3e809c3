"""What is reported of switches: connections, losses, installed generations, and what they have counted."""

from dataclasses import dataclass

from beamer.network.next_hops import Cable
from beamer.network.observed_fabric import Mismatch


@dataclass(frozen=True)
class SwitchConnected:
    """A switch of the fabric has connected; what it holds is being compared."""

    switch: str


@dataclass(frozen=True)
class SwitchLost:
    """A switch's connection is gone; it keeps forwarding by the rules it has."""

    switch: str


@dataclass(frozen=True)
class RulesWorkedOut:
    """It is known what a generation changes on every switch."""

    generation: int


@dataclass(frozen=True)
class SwitchInstalled:
    """A switch has answered the barrier behind a generation's rules.

    changes: rules that had to be added or have lost their purpose.
    """

    switch: str
    generation: int
    changes: int


@dataclass(frozen=True)
class SwitchChanges:
    """A switch that has held a generation is to hold it in another form, and has not yet."""

    switch: str


@dataclass(frozen=True)
class SwitchForm:
    """The form of a connected switch's rules, or what is said of it, is another than before; at first all have the full one.

    form: one of `FORMS`. reason: why no fuller one, empty for the fullest. limits: a sentence for each thing that does not hold
    there. able: whether it can hold rules at all. counts: whether it counts what host pairs send.
    """

    switch: str
    form: str
    reason: str
    limits: tuple[str, ...] = ()
    able: bool = True
    counts: bool = True

    @classmethod
    def full(cls, switch: str) -> "SwitchForm":
        """Return that of a switch of which nothing else is known."""
        return cls(switch, FULL_FORM, "")


FULL_FORM = "full"
HOST_MARKS = "host marks"
NO_FORM = "none"
FORMS = (FULL_FORM, HOST_MARKS, NO_FORM)
"""What the form of a switch may be: all four tables, forwarding in one table, where hosts' marks stand, or no rules at all."""


@dataclass(frozen=True)
class NetworkSeen:
    """What switches and hosts show of the network is another than before.

    mismatches: from its file. dead: the cables between switches that nothing passes, around which packets are led.
    switches: those that show their ports. remarks: a sentence for each thing that is odd and no mismatch. unread: switches
    whose queues the controller makes, and has not read back, or not yet seen in use.
    """

    mismatches: tuple[Mismatch, ...] = ()
    dead: frozenset[Cable] = frozenset()
    switches: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()


SwitchEvent = SwitchConnected | SwitchLost | RulesWorkedOut | SwitchInstalled | SwitchChanges | SwitchForm | NetworkSeen


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
