"""A testbed without Beamer: four hosts, two leaves, a spine and a controller's machine, each in a namespace of its own.

Every switch has an Open vSwitch of its own, as only one bridge of an Open vSwitch can have a certificate. All machines are on a
network for management beside the fabric.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from beamer.network.addresses import is_ipv6
from tests.support.namespaces import add_namespace, namespace_prefix, remove_abandoned_namespaces

HOSTS, SWITCHES = ("h1", "h2", "h3", "h4"), ("l1", "l2", "s1")
CONTROLLER, CONTROLLER_IP = "ctl", "10.78.9.1"
ADDRESSES: Mapping[str, tuple[str, ...]] = {host: (f"10.50.0.{number}/24",) for number, host in enumerate(HOSTS, 1)}
CABLES = (
    ("h1", "ens1", "l1", "swp1"),
    ("h2", "ens1", "l1", "swp2"),
    ("h3", "ens1", "l2", "swp1"),
    ("h4", "ens1", "l2", "swp2"),
    ("l1", "swp3", "s1", "swp1"),
    ("l2", "swp3", "s1", "swp2"),
)
_PATIENCE_S = 180


@dataclass
class Testbed:
    """The machines, by name. directory: of everything that they write."""

    __test__ = False  # It is no test, whatever its name begins with.

    prefix: str
    directory: Path
    stack: ExitStack

    def env(self, machine: str) -> dict[str, str]:
        """Return the environment of a machine, whose Open vSwitch is its own."""
        return {**os.environ, **dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"), str(self.directory / machine))}

    def run(self, machine: str, *command: str) -> str:
        """Return what a command prints on a machine. Raises `CalledProcessError`."""
        return subprocess.run(
            self._inside(machine, command),
            check=True,
            env=self.env(machine),
            text=True,
            capture_output=True,
            timeout=_PATIENCE_S,
        ).stdout

    def start(self, machine: str, log: str, *command: str) -> "subprocess.Popen[bytes]":
        """Start a program on a machine, which ends with the testbed."""
        output = self.stack.enter_context((self.directory / log).open("ab"))
        process = subprocess.Popen(
            self._inside(machine, command), env=self.env(machine), stdout=output, stderr=output, start_new_session=True
        )
        self.stack.enter_context(process)
        self.stack.callback(process.kill)
        return process

    def log(self, name: str) -> str:
        """Return what a program has written."""
        return (self.directory / name).read_text()

    def _inside(self, machine: str, command: tuple[str, ...]) -> list[str]:
        return ["ip", "netns", "exec", self.prefix + machine, *command]


@contextmanager
def cabled_testbed(directory: Path, addresses: Mapping[str, tuple[str, ...]] = ADDRESSES) -> Iterator[Testbed]:
    """Bring the machines up, cabled, each switch with a bridge of its name and ports, and everything down at the end.

    addresses: of each host's interface, with their prefixes.
    """
    remove_abandoned_namespaces()
    with ExitStack() as stack:
        bed = Testbed(namespace_prefix(), directory, stack)
        for machine in (CONTROLLER, *HOSTS, *SWITCHES):
            add_namespace(bed.prefix + machine)
            stack.callback(_remove, bed.prefix + machine)
            bed.run(machine, "ip", "link", "set", "lo", "up")
        _connect(bed, addresses)
        for switch in SWITCHES:
            _start_open_vswitch(bed, switch)
        yield bed


def _connect(bed: Testbed, addresses: Mapping[str, tuple[str, ...]]) -> None:
    bed.run(CONTROLLER, "ip", "link", "add", "mgmt", "type", "bridge")
    bed.run(CONTROLLER, "ip", "address", "add", f"{CONTROLLER_IP}/24", "dev", "mgmt")
    bed.run(CONTROLLER, "ip", "link", "set", "mgmt", "up")
    for number, machine in enumerate((*HOSTS, *SWITCHES), 10):
        peer = ("type", "veth", "peer", "name", "m0", "netns", bed.prefix + machine)
        bed.run(CONTROLLER, "ip", "link", "add", f"to-{machine}", *peer)
        bed.run(CONTROLLER, "ip", "link", "set", f"to-{machine}", "master", "mgmt", "up")
        bed.run(machine, "ip", "address", "add", f"10.78.9.{number}/24", "dev", "m0")
        bed.run(machine, "ip", "link", "set", "m0", "up")
    for a, here, b, there in CABLES:
        bed.run(a, "ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", bed.prefix + b)
        for machine, interface in ((a, here), (b, there)):
            bed.run(machine, "ethtool", "-K", interface, "tx", "off")
            bed.run(machine, "ip", "link", "set", interface, "up")
    for host, address in ((host, one) for host, of_host in addresses.items() for one in of_host):
        # Duplicate address detection would keep an address of IPv6 from being used for a second.
        bed.run(host, "ip", "address", "add", address, "dev", "ens1", *(("nodad",) if is_ipv6(address) else ()))


def _start_open_vswitch(bed: Testbed, switch: str) -> None:
    own = bed.directory / switch
    own.mkdir()
    quiet = ["--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off"]
    bed.run(switch, "ovsdb-tool", "create", f"{own}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
    for name, command in (
        ("ovsdb-server", ["ovsdb-server", f"{own}/conf.db", f"--remote=punix:{own}/db.sock"]),
        ("ovs-vswitchd", ["ovs-vswitchd", f"unix:{own}/db.sock"]),
    ):
        bed.run(switch, *command, *quiet)
        bed.stack.callback(bed.run, switch, "ovs-appctl", "-t", name, "exit")
    bed.run(switch, "ovs-vsctl", "-t", "20", "add-br", switch, "--", "set", "bridge", switch, "datapath_type=netdev")
    for a, here, b, there in CABLES:
        for machine, port in ((a, here), (b, there)):
            if machine == switch:
                bed.run(switch, "ovs-vsctl", "-t", "20", "add-port", switch, port)


def _remove(namespace: str) -> None:
    """Remove a namespace and end what is left in it: an agent's guard outlives the agent."""
    inside = subprocess.run(["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True).stdout
    for pid in inside.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
