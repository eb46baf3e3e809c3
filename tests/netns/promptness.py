"""Scenarios on real switches that are repeated where packets were dropped as a program did not get the processor in time."""

import re
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import mkdtemp

from tests.emulation.repetition import until_valid
from tests.netns.lab import FABRIC, Lab, switches
from tests.netns.segments import counted

LATE_COUNTERS = (("snmp", "Udp", "RcvbufErrors"), ("netstat", "TcpExt", "TCPBacklogDrop"), ("netstat", "TcpExt", "TCPRcvQDrop"))


class TooLate(AssertionError):
    """A program that watches did not get the processor in time."""


def until_prompt(directory: Path, scenario: Callable[[Lab], Coroutine[None, None, None]]) -> None:
    """Run a scenario on switches of its own, again where it fails and packets were dropped for lack of time."""

    def run() -> tuple[None, list[str]]:
        with switches(Path(mkdtemp(dir=directory))) as lab:
            before = dropped_late(lab)
            try:
                lab.drive(lambda: scenario(lab))
            except TooLate as error:
                return None, [str(error)]
            except AssertionError:
                if late := dropped_late(lab) - before:  # no rule has to do with that
                    return None, [f"{where} {count}" for where, count in late.items()]
                raise
        return None, []

    until_valid(run)


def dropped_late(lab: Lab) -> Counter[str]:
    """Return how many packets have been dropped for lack of time, by where."""
    dropped = Counter[str]()
    left, right = (host.name for host in FABRIC.hosts)
    for name, of in (("Open vSwitch", ""), ("the left host", left), ("the right host", right)):
        sockets = re.findall(r"\bd(\d+)\)", lab.run("ss", "-0mnH", of=of))
        dropped[f"packets dropped by packet sockets of {name}:"] = sum(map(int, sockets))
        for file, protocol, counter in LATE_COUNTERS:
            count = counted(protocol, counter, lab.run("cat", f"/proc/net/{file}", of=of))
            dropped[f"{counter} of {name}:"] = count
    sending = lab.run("ovs-vsctl", "--columns=statistics", "--bare", "list", "interface")
    dropped["packets that Open vSwitch could not send:"] = sum(map(int, re.findall(r"\btx_dropped=(\d+)", sending)))
    backlogs = Path("/proc/net/softnet_stat").read_text().splitlines()  # of each processor of the machine
    dropped["packets dropped by processors' backlogs of received ones:"] = sum(int(line.split()[1], 16) for line in backlogs)
    return dropped
