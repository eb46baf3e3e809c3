"""What the switches and hosts of a run hold, as their own tools say: rules with their ages, roles, changes of queues."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from beamer.errors import EmulationError
from topologies.emulation import vswitch
from topologies.emulation.runfile import RUN_VARIABLE
from topologies.emulation.supervisor import EmulatedRun

# So much is sent of a packet that no rule matches; any number above 0 has Open vSwitch tell of removed rules, too.
_MISS_BYTES = 128
PATIENCE_S = 20.0  # A monitor has so long to see a change.
_STATISTICS = re.compile(r" ?(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*,?")
_AGE = re.compile(r"duration=([0-9.]+)s")
_RULE = re.compile(r"table=(\d+).* (priority=\S+)")
_UNUSED = re.compile(r"OFPT_FLOW_REMOVED .*(priority=\S+) reason=idle table_id=(\d+)")


Rule = tuple[str, str]
"""A switch, and a rule of it as text without counts."""
Match = tuple[str, str, str]
"""A switch, a table's number, and a rule's priority with what it matches."""


@dataclass(frozen=True)
class RuleReading:
    """The rules that switches had. began_s, ended_s: monotonic. ages: in seconds, since each was added, not changed."""

    began_s: float
    ended_s: float
    ages: Mapping[Rule, float]

    def disturbed(self, later: "RuleReading", unused: Collection[Match] = ()) -> list[Rule]:
        """Return the rules that are gone in a later reading or were added anew since this one.

        unused: that timed out meanwhile because no packet met them, which are left out. Of the rules that were added while this
        reading was made some may be among what is returned.
        """
        since_s = later.ended_s - self.began_s
        return [
            (switch, rule)
            for switch, rule in self.ages
            if later.ages.get((switch, rule), 0.0) < since_s and _match(switch, rule) not in unused
        ]


def environment(run: EmulatedRun) -> dict[str, str]:
    """Return the variables of a process that belongs to a run, and ends with it at the latest."""
    return {**os.environ, **vswitch.environment(run.run.directory / "ovs"), RUN_VARIABLE: run.run.id}


def read_rules(run: EmulatedRun, switches: Collection[str]) -> RuleReading:
    """Return the rules on some switches."""
    began_s = time.monotonic()
    ages = {
        (switch, _STATISTICS.sub("", line).strip()): float(age[1])
        for switch in switches
        for line in run.execute("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch).splitlines()
        if (age := _AGE.search(line))
    }
    return RuleReading(began_s, time.monotonic(), ages)


def roles(run: EmulatedRun) -> dict[str, str]:
    """Return the role of each controller that a switch is connected to by its address, as Open vSwitch has it in its database.

    It writes them there every 5 s.
    """
    columns = "target,role,is_connected"
    printed = run.execute("ovs-vsctl", "--format=json", f"--columns={columns}", "list", "controller")
    return {target: role for target, role, connected in json.loads(printed)["data"] if connected and isinstance(role, str)}


def _match(switch: str, rule: str) -> Match | None:
    found = _RULE.search(rule)
    return (switch, found[1], found[2]) if found else None


@contextmanager
def unused_rules(run: EmulatedRun, switch: str, output: Path) -> Iterator[Callable[[], set[Match]]]:
    """Watch what rules of a switch time out for want of packets; yield what returns those since the call before.

    Open vSwitch tells everybody who is connected of the rules that ask for it, as those with time-outs do.
    """
    command = ["ovs-ofctl", "-O", "OpenFlow13", "monitor", switch, str(_MISS_BYTES)]
    with output.open("w") as file:
        monitor = subprocess.Popen(command, stdout=file, stderr=file, env=environment(run))
    read = 0

    def since() -> set[Match]:
        nonlocal read
        if monitor.poll() is not None:
            raise EmulationError(f"`{' '.join(command)}` ended: {output.read_text()}")
        lines = output.read_text().splitlines(keepends=True)
        whole = len(lines) - (bool(lines) and not lines[-1].endswith("\n"))
        seen, read = lines[read:whole], whole
        return {(switch, found[2], found[1]) for line in seen if (found := _UNUSED.search(line))}

    try:
        yield since
    finally:
        monitor.kill()
        monitor.wait()


@contextmanager
def queue_changes(run: EmulatedRun, host: str | None, output: Path) -> Iterator[Callable[[], list[str]]]:
    """Watch every queue of a host, or of the switches (None), by `tc monitor`; yield what returns the changes seen so far."""
    with output.open("w") as file:
        monitor = subprocess.Popen([*run.enter(host), "tc", "monitor"], stdout=file, env=environment(run))
    limits = count(1)

    def is_watching() -> bool:
        limit = str(next(limits))
        run.execute("tc", "qdisc", "replace", "dev", "lo", "root", "handle", "77:", "pfifo", "limit", limit, host=host)
        time.sleep(0.1)
        return f"limit {limit}p" in output.read_text()

    def changes() -> list[str]:
        # A change of our own that was seen shows that the monitor watches and has seen all that came before.
        deadline = time.monotonic() + PATIENCE_S
        while not is_watching():
            if monitor.poll() is not None or time.monotonic() > deadline:
                raise EmulationError(f"`tc monitor` sees no change on {host or 'the switches'}")
        return [line for line in output.read_text().splitlines() if " dev lo " not in line]

    try:
        changes()
        yield changes
    finally:
        monitor.kill()
        monitor.wait()
