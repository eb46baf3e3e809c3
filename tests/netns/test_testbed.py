"""A testbed from cables to an installed plan, by the commands of docs/operate.md as they stand there."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beamer.network.fabric_file import read_fabric
from tests.netns.testbed import CABLES, CONTROLLER, CONTROLLER_IP, HOSTS, SWITCHES, Testbed, cabled_testbed
from tests.support.checkout import ROOT
from tests.support.pages import blocks

pytestmark = pytest.mark.netns

SECTION = "From cables to an installed plan"
MOST_COMMANDS = 10
PATIENCE_S = 180.0
PROGRAMS = {
    "beamer": f"{sys.executable} -m beamer.cli",
    "beamer-controller": f"{sys.executable} -m controller.cli",
    "beamer-hostagent": f"{sys.executable} -m hostagent.cli --state-dir STATE --attach STATE/socket",
}
LASTING = ("beamer-hostagent", "beamer-controller")
MACHINES: dict[str, dict[str, dict[str, str]]] = {
    "on each switch": {switch: {"l1": switch} for switch in SWITCHES},
    "on each host": {host: {"h1": host} for host in HOSTS},
    "on each switch's machine": {switch: {"sw-l1": f"sw-{switch}"} for switch in SWITCHES},
    "": {CONTROLLER: {}},
}
"""Where a command runs, by the comment behind it, and which names it has there instead of those on the page."""


def commands() -> list[tuple[str, str]]:
    """Return the section's commands, each with the comment behind it."""
    text = (ROOT / "docs" / "operate.md").read_text("utf-8")
    (section,) = re.findall(rf"^## {SECTION}$(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks(section) if block.language == "sh"]
    lines = [line.partition("  # ") for line in block.code.replace("\\\n", " ").splitlines()]
    return [(" ".join(command.split()), where.strip()) for command, _, where in lines]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.2)


class Operator:
    """Whoever carries the commands out. datapath_ids: as the switches print them."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.datapath_ids: dict[str, str] = {}

    def carry_out(self, command: str, where: str) -> None:
        for machine, names in MACHINES[where].items():
            here = self._here(command, machine, names)
            if any(program in command for program in LASTING):
                self.bed.start(machine, f"{shlex.split(command)[0]}-{machine}.log", "bash", "-c", f"exec {here}")
            else:
                printed = self.bed.run(machine, "bash", "-c", here)
                if "datapath_id" in command:
                    self.datapath_ids[machine] = printed.strip().strip('"')

    def _here(self, command: str, machine: str, names: dict[str, str]) -> str:
        """Return a command with this machine's names, paths and programs."""
        for name, own in names.items():
            command = re.sub(rf"(?<![-\w]){name}(?![\w=])|(?<=agent-){name}\b|(?<=switch-){name}\b", own, command)
        for switch, dpid in self.datapath_ids.items():
            command = re.sub(rf"(?<={switch}=)[0-9a-f]{{16}}", dpid, command)
        for place in ("/etc/beamer", "/var/lib/beamer"):
            command = command.replace(place, str(self.bed.directory))
        command = command.replace("10.0.0.1", CONTROLLER_IP)
        state = str(self.bed.directory / f"state-{machine}")
        return " ".join(PROGRAMS.get(word, word) for word in command.split(" ")).replace("STATE", state)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Testbed]:
    with cabled_testbed(tmp_path) as made:
        yield made


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_commands_lead_from_cables_to_an_installed_plan(bed: Testbed) -> None:
    found = commands()
    assert len(found) <= MOST_COMMANDS
    operator = Operator(bed)
    for command, where in found:
        if "fabric discover" in command:
            until(lambda: all("no controller" in bed.log(f"beamer-hostagent-{name}.log") for name in (*HOSTS, *SWITCHES)))
            command += " --rate 50mbit"  # Ports of namespaces say that they have 10 Gbit/s.
        if "fabric check" in command:
            until(lambda: installed(bed))
            time.sleep(5)  # Cables that carry nothing would be known by then.
        operator.carry_out(command, where)  # It ends with 0, also the check that nothing differs.
    fabric = read_fabric(bed.directory / "fabric.yaml")
    assert {frozenset(((a.src, a.interface), (b.src, b.interface))) for a, b in fabric.cables} == {
        frozenset(((a, here), (b, there))) for a, here, b, there in CABLES
    }
    assert {host.name: host.ip for host in fabric.hosts} == {host: f"10.50.0.{i}" for i, host in enumerate(HOSTS, 1)}
    assert {switch.name: f"{switch.dpid:016x}" for switch in fabric.switches} == operator.datapath_ids
    assert {switch.agent for switch in fabric.switches} == {f"sw-{switch}" for switch in SWITCHES}
    assert installed(bed)
    for host in HOSTS[1:]:
        assert heard(bed, HOSTS[0], host, fabric.host[host].ip)


def installed(bed: Testbed) -> bool:
    ask = f"curl -s --cacert {bed.directory}/ca.pem https://{CONTROLLER_IP}:8657/v1/health || echo null"
    health = json.loads(bed.run(CONTROLLER, "bash", "-c", ask) or "null")
    return bool(health and health["installed_everywhere"] and health["switches"]["installed"] == len(SWITCHES))


LISTEN = (
    "import socket; s = socket.create_server(('', 7000)); s.settimeout(30); c, a = s.accept(); c.sendall(b'heard'); c.close()"
)
CALL = """
import socket, sys, time
for _ in range(100):
    try:
        with socket.create_connection((sys.argv[1], 7000), 10) as made:
            print(made.recv(100).decode())
            break
    except ConnectionRefusedError:
        time.sleep(0.1)
"""


def heard(bed: Testbed, caller: str, callee: str, ip: str) -> bool:
    """Say whether a connection between two hosts carries something."""
    listening = bed.start(callee, f"listen-{callee}", sys.executable, "-c", LISTEN)
    answer = bed.run(caller, sys.executable, "-c", CALL, ip)
    try:
        listening.wait(30)
    except subprocess.TimeoutExpired:
        return False
    return answer.strip() == "heard"
