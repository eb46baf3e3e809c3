"""The capabilities(7) that an agent needs, and what does not work without each.

CAP_NET_ADMIN is not read here: whether queues may be managed depends on the network namespace as well, so
`hostagent.queues.htb` tries.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

NET_ADMIN = "CAP_NET_ADMIN"
SYS_PTRACE = "CAP_SYS_PTRACE"
DAC_READ_SEARCH = "CAP_DAC_READ_SEARCH"
SEE_DOCS = "see docs/operate.md"

OPTIONAL: Mapping[str, str] = {
    SYS_PTRACE: "workers of other users than the agent's, and those that may do more than the agent, are not marked:"
    " their sockets cannot be borrowed",
    DAC_READ_SEARCH: "workers of other users than the agent's are not marked: which sockets they hold cannot be read",
}
"""What an agent can start without, and what it does not do then; what it cannot, `Queues.check` finds."""
# Any of these bits (linux/capability.h) meets the need: CAP_DAC_OVERRIDE, 1, allows what CAP_DAC_READ_SEARCH does and more.
_MET_BY = {SYS_PTRACE: 1 << 19, DAC_READ_SEARCH: 1 << 2 | 1 << 1}


def effective_capabilities(status: Path = Path("/proc/self/status")) -> int:
    """Return the capabilities that a process has in effect, a bit for each number (proc(5), CapEff)."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["CapEff"], 16)


def missing(effective: int) -> Iterator[str]:
    """Yield, for each of the capabilities that a set lacks, what will not work."""
    for name, without in OPTIONAL.items():
        if not effective & _MET_BY[name]:
            yield f"no {name}: {without}; {SEE_DOCS}"
