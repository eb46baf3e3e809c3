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
from topologies.emulation.runfile import RUN_VARIABLE
from topologies.emulation.supervisor import EmulatedRun

PATIENCE_S = 20.0  # for a monitor to see a change
_STATISTICS = re.compile(r" ?(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*,?")
_AGE = re.compile(r"duration=([0-9.]+)s")


Rule = tuple[str, str]
"""A switch, and a rule of it as text without counts."""


@dataclass(frozen=True)
class RuleReading:
    """The rules that switches had. began_s, ended_s: monotonic. ages: in seconds, since each was added, not changed."""

    began_s: float
    ended_s: float
    ages: Mapping[Rule, float]

    def disturbed(self, later: "RuleReading") -> list[Rule]:
        """Return the rules that are gone in a later reading or were added anew since this one.

        Of those that were added while this one was read some may be among them.
        """
        since_s = later.ended_s - self.began_s
        return [rule for rule in self.ages if rule not in later.ages or later.ages[rule] < since_s]


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


@contextmanager
def queue_changes(run: EmulatedRun, host: str | None, output: Path) -> Iterator[Callable[[], list[str]]]:
    """Watch every queue of a host, or of the switches (None), by `tc monitor`; yield what returns the changes seen so far."""
    environment = {**os.environ, RUN_VARIABLE: run.run.id}
    with output.open("w") as file:
        monitor = subprocess.Popen([*run.enter(host), "tc", "monitor"], stdout=file, env=environment)
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
