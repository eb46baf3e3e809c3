"""Tables of TCP sockets that are as small as an emulated host needs.

A host agent lists the sockets of its host, for which the kernel walks the whole table of connections. Network namespaces share
the machine's: where that has 262 144 places, a list takes 4.7 ms of processor, and 0.2 ms from a table of their own.
A testbed's machines have a processor each; here all agents share those of one.
"""

from contextlib import suppress
from pathlib import Path

TABLE_ENTRIES = 4096
"""Places in an emulated host's table: several times the connections of any, so that few share one."""
CHILD_TABLES = Path("/proc/sys/net/ipv4/tcp_child_ehash_entries")
"""The kernel's setting of how many places a table has that a network namespace gets from this one (Linux 6.1 and newer)."""


def give_children_tables() -> None:
    """Have the namespaces that this one makes from now on have tables of their own, where the kernel can do that."""
    with suppress(FileNotFoundError):
        CHILD_TABLES.write_text(str(TABLE_ENTRIES))
