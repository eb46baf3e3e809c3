"""Builds a fabric in Mininet: hosts in namespaces of their own, switches on Open vSwitch, an unshaped management bridge.

Emulated links are veth pairs without a rate of their own: the host agents' queues give them one, under every policy alike.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network

from mininet.net import Mininet
from mininet.node import OVSSwitch

from beamer.network.fabric import Fabric
from beamer.workloads.scenario import TransportSettings
from topologies.cabling import DATA_NETWORK
from topologies.emulation import vswitch
from topologies.emulation.collectives import largest_window
from topologies.emulation.socket_tables import give_children_tables
from topologies.emulation.tools import run

MANAGEMENT_NETWORK = IPv4Network("10.78.0.0/16")
CONTROLLER_ADDRESS = str(MANAGEMENT_NETWORK[1])
MANAGEMENT_BRIDGE = "mgmt"


class EmulatedNetwork:
    """A fabric as Mininet hosts and switches in the current network namespace."""

    def __init__(self, fabric: Fabric, transport: TransportSettings) -> None:
        self.fabric = fabric
        self._transport = transport
        # Mininet would raise machine-wide limits by sysctl; a run changes nothing outside its own namespaces.
        Mininet.inited = True
        self._net = Mininet(topo=None, controller=None, build=False)

    def start(self) -> None:
        """Make the management bridge, hosts, switches and links; switches forward nothing until a controller installs rules."""
        give_children_tables()
        run("ip", "link", "set", "lo", "up")
        _sysctl("net.ipv6.conf.all.disable_ipv6", "1")
        _sysctl("net.ipv6.conf.default.disable_ipv6", "1")
        run("ip", "link", "add", MANAGEMENT_BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{CONTROLLER_ADDRESS}/{MANAGEMENT_NETWORK.prefixlen}", "dev", MANAGEMENT_BRIDGE)
        run("ip", "link", "set", MANAGEMENT_BRIDGE, "up")
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
        self._configure_hosts()
        self._connect()
        self._net.build()
        for number, host in enumerate(self.fabric.hosts):
            self._manage(host.name, str(MANAGEMENT_NETWORK[number + 2]))
            uplink = self.fabric.links[self.fabric.link_index[host.name, self.fabric.edge_of[host.name]]].interface
            route = (str(DATA_NETWORK), "dev", uplink, "src", host.ip, "scope", "link", "proto", "kernel")
            metrics = route_metrics(self._transport)
            run("ip", "route", "change", *route, *metrics, enter=self.enter(host.name))
        self._net.start()

    def point_at_controllers(self, targets: Sequence[str]) -> None:
        """Set the controllers of every switch, which connects to all of them."""
        for switch in self.fabric.switches:
            run(*vswitch.set_controllers(switch.name, targets))

    def shorten_pauses(self) -> None:
        """Have every switch try a lost controller again soon, once it is connected to all of them."""
        for switch in self.fabric.switches:
            vswitch.shorten_pauses(switch.name)

    def shell_pid(self, host: str) -> int:
        """Return the process whose network namespace is `host`'s."""
        pid: int = self._net.get(host).pid
        return pid

    def enter(self, host: str | None) -> list[str]:
        """Return the command prefix that runs a program in `host`'s network namespace (None: in the switches')."""
        return [] if host is None else ["mnexec", "-a", str(self.shell_pid(host))]

    def _configure_hosts(self) -> None:
        for host in self.fabric.hosts:
            inside = self.enter(host.name)
            run("ip", "link", "set", "lo", "up", enter=inside)
            for key, value in (
                ("net.ipv6.conf.all.disable_ipv6", 1),
                ("net.ipv6.conf.default.disable_ipv6", 1),
                ("net.ipv4.tcp_slow_start_after_idle", 0),
            ):
                run("sysctl", "-q", "-w", f"{key}={value}", enter=inside)

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
                inside = self.enter(node if node in self.fabric.host else None)
                run("ethtool", "-K", interface, "tx", "off", enter=inside)
                limits = ("txqueuelen", str(self._transport.queue_packets), "mtu", str(self.fabric.mtu))
                run("ip", "link", "set", "dev", interface, *limits, enter=inside)

    def _manage(self, host: str, address: str) -> None:
        outside, inside = f"{host}-m", f"{host}-mgmt"
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", str(self.shell_pid(host)))
        run("ip", "link", "set", outside, "master", MANAGEMENT_BRIDGE, "up")
        network = f"{address}/{MANAGEMENT_NETWORK.prefixlen}"
        run("ip", "address", "add", network, "dev", inside, enter=self.enter(host))
        run("ip", "link", "set", inside, "up", enter=self.enter(host))


def route_metrics(transport: TransportSettings) -> tuple[str, ...]:
    """Return what a host's route says of connections over it, those included whose sockets nobody prepares.

    A program such as one of gloo's sets neither congestion control nor window. `net.ipv4.tcp_congestion_control` of a network
    namespace takes what the machine lets unprivileged users have, which may leave out cubic; a route takes any.
    """
    window_bytes = largest_window(transport.window_bytes)
    return (
        *("rto_min", f"{1000 * transport.rto_min_s:.0f}ms"),
        *("congctl", transport.congestion_control),
        *("window", str(window_bytes)),
    )


def _sysctl(key: str, value: str) -> None:
    run("sysctl", "-q", "-w", f"{key}={value}")
