"""What `ss -tin` and the kernel's counters show of segments that were sent again, lost or overtaken."""

import re


def sent_again(shown: str) -> int:
    """Return how many segments were sent again."""
    return int(found[1]) if (found := re.search(r"retrans:\d+/(\d+)", shown)) else 0


def lost(shown: str) -> int:
    """Return how many segments that were sent again had not arrived: a receiver reports the others as duplicates."""
    return sent_again(shown) - (int(found[1]) if (found := re.search(r"dsack_dups:(\d+)", shown)) else 0)


def overtaken(netstat: str) -> int:
    """Return how many segments arrived before earlier ones, from the `/proc/net/netstat` of the receiver's namespace."""
    return counted("TcpExt", "TCPOFOQueue", netstat)


def counted(protocol: str, name: str, shown: str) -> int:
    """Return one counter of a protocol from the text of `/proc/net/netstat` or `/proc/net/snmp`."""
    names, values = (line.split() for line in shown.splitlines() if line.startswith(f"{protocol}:"))
    return int(values[names.index(name)])
