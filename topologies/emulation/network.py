"""Builds a fabric in Mininet: hosts in namespaces of their own, switches on Open vSwitch, an unshaped management bridge.

Emulated links are veth pairs without a rate of their own: the host agents' queues give them one, under every policy alike.
"""

import os
import subprocess
from ipaddress import IPv4Network

from mininet.net import Mininet
from mininet.node import OVSSwitch

from beamer.fabric import Fabric
from topologies.cabling import DATA_NETWORK

MANAGEMENT_NETWORK = IPv4Network("10.78.0.0/16")
CONTROLLER_ADDRESS = str(MANAGEMENT_NETWORK[1])
MANAGEMENT_BRIDGE = "mgmt"
LEAF_QUEUE_PACKETS = 100


class EmulatedNetwork:
    """A fabric as Mininet hosts and switches in the current network namespace."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        # Mininet would raise machine-wide limits by sysctl; a run changes nothing outside its own namespaces.
        Mininet.inited = True
        self._net = Mininet(topo=None, controller=None, build=False)

    def start(self) -> None:
        """Make the management bridge, hosts, switches and links; switches forward nothing until a controller tells them."""
        _run("ip", "link", "set", "lo", "up")
        _sysctl("net.ipv6.conf.all.disable_ipv6", "1")
        _sysctl("net.ipv6.conf.default.disable_ipv6", "1")
        _run("ip", "link", "add", MANAGEMENT_BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{CONTROLLER_ADDRESS}/{MANAGEMENT_NETWORK.prefixlen}", "dev", MANAGEMENT_BRIDGE)
        _run("ip", "link", "set", MANAGEMENT_BRIDGE, "up")
        for host in self.fabric.hosts:
            self._net.addHost(host.name, ip=f"{host.ip}/{DATA_NETWORK.prefixlen}", mac=host.mac)
        for switch in self.fabric.switches:
            self._net.addSwitch(
                switch.name,
                cls=OVSSwitch,
                dpid=f"{switch.dpid:016x}",
                datapath="user",
                failMode="secure",
                protocols="OpenFlow13",
            )
        self._quieten_hosts()
        self._connect()
        self._net.build()
        for number, host in enumerate(self.fabric.hosts):
            self._manage(host.name, str(MANAGEMENT_NETWORK[number + 2]))
        self._net.start()

    def point_at_controller(self, openflow_port: int) -> None:
        """Tell every switch where its controller listens."""
        for switch in self.fabric.switches:
            _run("ovs-vsctl", "set-controller", switch.name, f"tcp:{CONTROLLER_ADDRESS}:{openflow_port}")
            _run("ovs-vsctl", "set", "controller", switch.name, "connection-mode=out-of-band", "max_backoff=1000")

    def shell_pid(self, host: str) -> int:
        """Return the process whose network namespace is `host`'s."""
        pid: int = self._net.get(host).pid
        return pid

    def enter(self, host: str | None) -> list[str]:
        """Return the command prefix that runs a program in `host`'s network namespace (None: in the switches')."""
        return [] if host is None else ["mnexec", "-a", str(self.shell_pid(host))]

    def _quieten_hosts(self) -> None:
        for host in self.fabric.hosts:
            node = self._net.get(host.name)
            node.cmd("ip link set lo up")
            for key, value in (
                ("net.ipv6.conf.all.disable_ipv6", 1),
                ("net.ipv6.conf.default.disable_ipv6", 1),
                ("net.ipv4.tcp_slow_start_after_idle", 0),
            ):
                node.cmd(f"sysctl -q -w {key}={value}")

    def _connect(self) -> None:
        ends = {(link.src, link.dst): link for link in self.fabric.links}
        for (a, b), link in ends.items():
            back = ends[b, a]
            if (a, b) > (b, a):
                continue
            port_a = link.port - 1 if a in self.fabric.host else link.port
            port_b = back.port - 1 if b in self.fabric.host else back.port
            self._net.addLink(a, b, port1=port_a, port2=port_b)
            for node, interface in ((a, link.interface), (b, back.interface)):
                # Checksums left to hardware that a veth does not have would stall TCP across the userspace datapath.
                self._net.get(node).cmd(f"ethtool -K {interface} tx off")
                self._net.get(node).cmd(f"ip link set dev {interface} txqueuelen {LEAF_QUEUE_PACKETS} mtu {self.fabric.mtu}")

    def _manage(self, host: str, address: str) -> None:
        outside, inside = f"{host}-m", f"{host}-mgmt"
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", str(self.shell_pid(host)))
        _run("ip", "link", "set", outside, "master", MANAGEMENT_BRIDGE, "up")
        node = self._net.get(host)
        node.cmd(f"ip address add {address}/{MANAGEMENT_NETWORK.prefixlen} dev {inside}")
        node.cmd(f"ip link set {inside} up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env=os.environ)


def _sysctl(key: str, value: str) -> None:
    _run("sysctl", "-q", "-w", f"{key}={value}")
