"""Bytes travel in the class they were given: read with `tc -s` and `ovs-ofctl`, not with the project's own code."""

import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from beamer.network.fabric import Fabric
from beamer.workloads.scenario import Scenario
from tests.emulation.conftest import SMALL, running
from tests.emulation.repetition import until_valid
from topologies.emulation.supervisor import EmulatedRun

pytestmark = [pytest.mark.emulation, pytest.mark.alone]

FLOW = re.compile(r"cookie=(0x[0-9a-f]+), .*?table=1, .*?n_bytes=(\d+), .*?metadata=(0x[0-9a-f]+)")
REMOVED = re.compile(r"OFPT_FLOW_REMOVED .*?metadata=(0x[0-9a-f]+).*?table_id=1 cookie:(0x[0-9a-f]+) .*?bytes(\d+)")
CLASS = re.compile(r"class htb 1:([0-9a-f]+) .*?\n Sent (\d+) bytes \d+ pkt \(dropped (\d+),", re.DOTALL)

PairClass = tuple[int, int]  # (metadata, class): job, source and destination host are in the metadata
Rule = tuple[int, int, int]  # (band, metadata, class)
MARKED_BAND = 12
MIN_FRAME, MAX_FRAME = 66, 9014
NEGLIGIBLE_SHARE = 0.05  # of a port's bytes: a queue of fewer is too little for a meaningful ratio


@contextmanager
def _snooping(run: EmulatedRun, switches: list[str], directory: Path) -> Iterator[None]:
    """Record what each switch sends to its controller, by `ovs-ofctl snoop`."""
    with ExitStack() as stack:
        for switch in switches:
            output = stack.enter_context((directory / f"{switch}.snoop").open("w"))
            process = subprocess.Popen(
                ["ovs-ofctl", "-O", "OpenFlow13", "snoop", switch],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OVS_RUNDIR": str(run.run.directory / "ovs")},
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield


def _edge_counts(run: EmulatedRun, switches: list[str], directory: Path) -> Counter[Rule]:
    """Sum, per rule band, pair and class, the rules that stand and the final counts of those that were removed."""
    counts: Counter[Rule] = Counter()
    for switch in switches:
        for cookie, sent, metadata in FLOW.findall(run.execute("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch)):
            counts[int(cookie, 16) >> 40 & 0xFF, int(metadata, 16), int(cookie, 16) >> 32 & 0xFF] += int(sent)
        # A record of several lines: the message, then its match and counters.
        text = re.sub(r"\n(?=\S*\s)", " ", (directory / f"{switch}.snoop").read_text())
        for metadata, cookie, sent in REMOVED.findall(text):
            counts[int(cookie, 16) >> 40 & 0xFF, int(metadata, 16), int(cookie, 16) >> 32 & 0xFF] += int(sent)
    return counts


def _queues(run: EmulatedRun, interface: str, host: str | None) -> dict[int, tuple[int, int]]:
    """Return by class the bytes that left `interface` and the packets dropped there, by `tc -s`; class -1 is unregistered."""
    text = run.execute("tc", "-s", "class", "show", "dev", interface, host=host)
    found = {int(minor, 16): (int(sent), int(dropped)) for minor, sent, dropped in CLASS.findall(text)}
    return {minor - 0x10 if minor >= 0x10 else -1: counts for minor, counts in found.items() if minor != 1}


def _expected(fabric: Fabric, edge: Counter[PairClass], planes: dict[int, int]) -> dict[str, Counter[int]]:
    hosts = [h.name for h in fabric.hosts]
    expected: dict[str, Counter[int]] = {link.interface: Counter() for link in fabric.links}
    for (metadata, klass), sent in edge.items():
        job, src, dst = metadata >> 32, hosts[metadata >> 16 & 0xFFFF], hosts[metadata & 0xFFFF]
        for hop in fabric.path(src, dst, planes[job]):
            expected[fabric.links[hop].interface][klass] += sent
    return expected


def _upstream(fabric: Fabric, edge: Counter[PairClass], planes: dict[int, int]) -> defaultdict[str, set[str]]:
    """Return by switch port the switch ports that its pairs pass before it."""
    hosts = [h.name for h in fabric.hosts]
    ahead: defaultdict[str, set[str]] = defaultdict(set)
    for metadata, _ in edge:
        path = fabric.path(hosts[metadata >> 16 & 0xFFFF], hosts[metadata & 0xFFFF], planes[metadata >> 32])
        ports = [fabric.links[hop].interface for hop in path[1:]]
        for i, port in enumerate(ports):
            ahead[port].update(ports[:i])
    return ahead


def _apart(edge: Counter[Rule]) -> tuple[Counter[PairClass], Counter[PairClass]]:
    """Return the counts of packets that their host had marked with their class, and of those in a window after a change."""
    marked, window = Counter[PairClass](), Counter[PairClass]()
    for (band, metadata, klass), sent in edge.items():
        (marked if band == MARKED_BAND else window)[metadata, klass] += sent
    return marked, window


@dataclass(frozen=True)
class _Counts:
    """What one run counted: by rule at the edge, and by interface and class in the queues."""

    edge: Counter[Rule]
    queues: dict[str, dict[int, tuple[int, int]]]


def _run(scenario: Scenario, directory: Path) -> tuple[_Counts, tuple[str, ...]]:
    """Run the scenario to its end; return its counts and what makes the run invalid."""
    fabric = scenario.fabric
    edges = sorted(set(fabric.edge_of.values()))
    with running(SMALL) as run, _snooping(run, edges, directory):
        run.start_studies()
        measured = run.finish_studies(120)
        time.sleep(2.0)
        queues = {
            link.interface: _queues(run, link.interface, link.src if link.src in fabric.host else None) for link in fabric.links
        }
        return _Counts(_edge_counts(run, edges, directory), queues), measured.health.findings()


def test_every_hops_queues_carry_what_the_edge_counted(small: Scenario, tmp_path: Path) -> None:
    fabric = small.fabric
    counts = until_valid(lambda: _run(small, tmp_path))
    queues = counts.queues
    marked, window = _apart(counts.edge)
    jobs = sum(len(stage.jobs) for study in small.studies for stage in study.stages)
    assert len({metadata >> 32 for metadata, _ in marked}) == jobs
    assert len({klass for _, klass in marked}) > 1
    planes = {seq: (seq - 1) % fabric.planes for seq in range(1, jobs + 1)}
    expected, windows = _expected(fabric, marked, planes), _expected(fabric, window, planes)
    ahead = _upstream(fabric, marked, planes)
    at_switches = {link.interface for link in fabric.links if link.src in fabric.switch}
    for interface in queues:
        due, in_windows = expected[interface], sum(windows[interface].values())
        for klass in range(small.queues):
            sent, dropped = queues[interface][klass]
            if max(due[klass], sent) < NEGLIGIBLE_SHARE * sum(due.values()):
                continue
            # The kernel counts dropped packets, whose size is a frame's. The edge counted what was dropped between it and
            # this port; what a host dropped it never saw.
            before = sum(queues[other][klass][1] for other in ahead[interface])
            own = dropped if interface in at_switches else 0
            assert sent + MAX_FRAME * (own + before) >= 0.99 * due[klass], (interface, klass)
            assert sent + MIN_FRAME * own <= 1.01 * due[klass] + in_windows, (interface, klass)
    unmarked = misclassified = total = 0
    for link in fabric.links:
        if link.src in fabric.host:
            # What left a host in another class than the edge counted left it in a window after a connect or a plan change.
            unmarked += queues[link.interface][-1][0]
            misclassified += sum(
                max(queues[link.interface][k][0] - expected[link.interface][k], 0) for k in range(small.queues)
            )
            total += sum(sent for sent, _ in queues[link.interface].values())
    excluded = (unmarked + misclassified) / total
    print(f"excluded share: {excluded:.2%}")
    assert excluded <= 0.02
