"""What is logged where an agent and its controller do not understand, or do not take, all that the other one says."""

from collections.abc import Mapping
from dataclasses import dataclass

from beamer.errors import InputError
from beamer.network.protocol import Assignment
from beamer.protocol_version import PeerProtocol
from controller.limited_log import LimitedLog


@dataclass(frozen=True)
class AgentLog:
    """Logs what an agent and its controller do not understand, or do not take, of each other."""

    agent: str
    limited: LimitedLog

    def unused(self, protocol: PeerProtocol, names: tuple[str, ...]) -> None:
        """Log once what a newer agent says beyond this controller's version."""
        what = "an agent speaks a newer version, of which this is not used"
        self.limited.warning(what, self.agent, names, agent=self.agent, version=protocol.version, fields=", ".join(names))

    def shortened(self, left_out: Mapping[str, int]) -> None:
        """Log once how much of an assignment its agent does not take."""
        what = "an agent takes less than it is assigned; everything else is in force there"
        self.limited.warning(what, self.agent, tuple(left_out), agent=self.agent, left_out_of_it=_counts(left_out))

    def unreported(self, kind: str, left_out: Mapping[str, int]) -> None:
        """Log once how much of a report is beyond this controller's limits."""
        what = "a host has more to report than is taken, see docs/operate.md; its workers without it are named as unattached"
        self.limited.warning(
            what, self.agent, (kind, *left_out), agent=self.agent, report=kind, left_out_of_it=_counts(left_out)
        )

    def not_sent(self, assignment: Assignment, error: InputError) -> None:
        """Log that an agent takes no assignment, however short: it never applies it, so that it is not in force there."""
        what = "an assignment is not sent, as it is more than its agent takes: the one before stays"
        reason, generation = str(error), assignment.generation
        self.limited.error(what, self.agent, error.field, agent=self.agent, generation=generation, reason=reason)


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {part}" for part, count in left_out.items())
