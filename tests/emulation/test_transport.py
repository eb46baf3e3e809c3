"""What a scenario says of TCP and queues is what hosts and ports have."""

import re
import time
from pathlib import Path

import pytest

from beamer.network.fabric import Host
from beamer.workloads.scenario import Scenario
from tests.emulation.conftest import SMALL, running
from topologies.emulation.supervisor import EmulatedRun

pytestmark = [pytest.mark.emulation, pytest.mark.alone]

MAX_BYTES = 65535  # the largest window of at most 100 kB that is kept
KEYS = "congestion_control: cubic\nqueue_packets: 50\nwindow: 100kB\nrto_min: 0.5\n"


def test_connections_queues_and_routes_are_as_the_scenario_says(small: Scenario, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SMALL.read_text() + KEYS)
    with running(scenario) as run:
        for link in small.fabric.links:
            host = link.src if link.src in small.fabric.host else None
            queues = run.execute("tc", "qdisc", "show", "dev", link.interface, "invisible", host=host)
            assert set(re.findall(r"qdisc pfifo .* limit (\S+)", queues)) == {"50p"}
            if host is not None:
                assert run.execute("sysctl", "-n", "net.ipv4.tcp_timestamps", host=host) == "1\n"
                assert "rto_min lock 500ms" in run.execute("ip", "route", "show", "dev", link.interface, host=host)
        run.start_studies()
        seen: list[tuple[str, int]] = []
        until = time.monotonic() + 5  # windows grow meanwhile
        while time.monotonic() < until:
            seen += [found for host in small.fabric.hosts for found in _connections(run, host)]
            time.sleep(0.1)
        assert {control for control, _ in seen} == {"cubic"}
        assert max(window for _, window in seen) == MAX_BYTES
        run.finish_studies(120)


def _connections(run: EmulatedRun, host: Host) -> list[tuple[str, int]]:
    """Return the congestion control and the window, offered by its peer, of each of a host's connections."""
    listed = run.execute("ss", "-tinHO", "state", "established", "src", host.ip, host=host.name)
    found = [re.search(r" (\w+) wscale:.* snd_wnd:(\d+)", line) for line in listed.splitlines()]
    return [(one[1], int(one[2])) for one in found if one]
