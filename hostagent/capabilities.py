"""The capabilities(7) that an agent needs, and what does not work without each.

CAP_NET_ADMIN is not read here: whether queues may be managed depends on the network namespace as well, so
`hostagent.queues.probe` tries.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NET_ADMIN = "CAP_NET_ADMIN"
SYS_PTRACE = "CAP_SYS_PTRACE"
DAC_READ_SEARCH = "CAP_DAC_READ_SEARCH"
DEPLOYMENT = "see docs/operate.md"

_NUMBERS = {"CAP_DAC_OVERRIDE": 1, DAC_READ_SEARCH: 2, SYS_PTRACE: 19}  # linux/capability.h


@dataclass(frozen=True)
class Need:
    """A capability that some of an agent's work needs.

    capability: the least that does. others: that allow the same and more. without: what the agent does not do then.
    """

    capability: str
    without: str
    others: tuple[str, ...] = ()

    def met(self, effective: int) -> bool:
        """Return whether a set of capabilities, a bit for each number, meets it."""
        return any(effective >> _NUMBERS[name] & 1 for name in (self.capability, *self.others))


OPTIONAL = (
    Need(
        SYS_PTRACE,
        "workers of other users than the agent's, and those that may do more than the agent, are not marked: their sockets"
        " cannot be borrowed",
    ),
    Need(
        DAC_READ_SEARCH,
        "workers of other users than the agent's are not marked: which sockets they hold cannot be read",
        ("CAP_DAC_OVERRIDE",),
    ),
)
"""What an agent can start without; what it cannot, `hostagent.queues.probe` finds."""


def effective_capabilities(status: Path = Path("/proc/self/status")) -> int:
    """Return the capabilities that a process has in effect, a bit for each number (proc(5), CapEff)."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["CapEff"], 16)


def missing(effective: int) -> Iterator[str]:
    """Yield, for each of the capabilities that a set lacks, what will not work."""
    for need in OPTIONAL:
        if not need.met(effective):
            yield f"no {need.capability}: {need.without}; {DEPLOYMENT}"
