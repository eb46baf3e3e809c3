"""Networks as Mininet topologies: with what is given, and with what Mininet would assign."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mininet")
from mininet.net import Mininet
from mininet.topo import LinearTopo, SingleSwitchTopo, Topo

from beamer.errors import InputError
from beamer.network.fabric import Fabric, Host, Link, Switch
from topologies import fat_tree, leaf_spine
from topologies.emulation.mininet_tables import from_mininet

FABRICS = [leaf_spine.build(leaves=3, spines=2, rate="25gbit", uplink_rate="100gbit", mtu=9000), fat_tree.build(k=4)]


def topology_of(fabric: Fabric) -> Any:
    """Return a topology with all that a fabric says."""
    topo = Topo()
    for host in fabric.hosts:
        topo.addHost(host.name, ip=f"{host.ip}/16", mac=host.mac, agent=host.agent)
    for switch in fabric.switches:
        topo.addSwitch(switch.name, dpid=f"{switch.dpid:016x}", agent=switch.agent)
    for there, back in fabric.cables:
        ports = {f"port{i}": link.port - (link.src in fabric.host) for i, link in ((1, there), (2, back))}
        topo.addLink(there.src, back.src, **ports, bw=there.rate_bps / 10**6)
    return topo


def sorted_links(fabric: Fabric) -> Fabric:
    """Return a fabric whose cables are in one order: a `Topo` has them by its nodes."""
    return replace(fabric, links=tuple(sorted(fabric.links, key=lambda link: (link.src, link.dst))))


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
def test_a_topology_of_a_fabric_is_that_fabric(fabric: Fabric) -> None:
    found = from_mininet(topology_of(fabric), name=fabric.name, planes=fabric.planes, mtu=fabric.mtu)
    assert sorted_links(found) == sorted_links(fabric)


def test_what_mininet_would_assign() -> None:
    found = from_mininet(LinearTopo(k=2, n=1), auto_macs=True, rate="100mbit")
    assert found.name == "LinearTopo"
    assert found.hosts == (Host("h1", "10.0.0.1", "00:00:00:00:00:01"), Host("h2", "10.0.0.2", "00:00:00:00:00:02"))
    assert found.switches == (Switch("s1", 1), Switch("s2", 2))
    assert set(found.links) == {
        Link("h1", "s1", 10**8, 1, "h1-eth0"),
        Link("s1", "h1", 10**8, 1, "s1-eth1"),
        Link("h2", "s2", 10**8, 1, "h2-eth0"),
        Link("s2", "h2", 10**8, 1, "s2-eth1"),
        Link("s1", "s2", 10**8, 2, "s1-eth2"),
        Link("s2", "s1", 10**8, 2, "s2-eth2"),
    }


def test_hosts_are_numbered_in_the_order_of_their_names_from_the_base() -> None:
    topo = SingleSwitchTopo(k=11)
    topo.setNodeInfo("h3", {"ip": "192.168.0.7/24"})
    found = from_mininet(topo, auto_macs=True, ip_base="10.1.0.4/16", rate="1gbit")
    addresses = {host.name: (host.ip, host.mac) for host in found.hosts}
    assert addresses["h1"] == ("10.1.0.4", "00:00:00:00:00:04")
    assert addresses["h3"] == ("192.168.0.7", "00:00:00:00:00:06")
    assert addresses["h11"] == ("10.1.0.14", "00:00:00:00:00:0e")


def test_a_switch_has_the_number_in_its_name_or_what_it_is_given() -> None:
    for given, name, number in ((None, "leaf16", 16), ("16", "s1", 0x16), ("00:00:00:00:00:00:00:1f", "s1", 0x1F)):
        topo = pair(switch=name, **({} if given is None else {"dpid": given}))
        assert from_mininet(topo).switches[0].dpid == number


def pair(switch: str = "s1", link: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return two hosts at a switch; link: options of the second one's link; options: of the switch."""
    topo = Topo()
    topo.addSwitch(switch, **options)
    for i in (1, 2):
        topo.addLink(topo.addHost(f"h{i}", mac=f"00:00:00:00:00:0{i}"), switch, **{"bw": 10, **(link or {} if i == 2 else {})})
    return topo


def test_names_addresses_and_rates_of_a_link() -> None:
    topo = pair(link={"intfName1": "ens1", "port2": 7, "addr1": "00:00:00:00:00:0c", "bw": 2.5})
    topo.nodeInfo("h2").pop("mac")
    found = from_mininet(topo)
    assert found.hosts[1].mac == "00:00:00:00:00:0c"
    assert {link for link in found.links if "h2" in (link.src, link.dst)} == {
        Link("h2", "s1", 2_500_000, 1, "ens1"),
        Link("s1", "h2", 2_500_000, 7, "s1-eth7"),
    }
    of_ends = pair(link={"bw": None, "params1": {"bw": 5}, "params2": {"bw": 5}})
    of_ends.linkInfo("h2", "s1").pop("bw")
    assert {link.rate_bps for link in from_mininet(of_ends).links} == {10**7, 5 * 10**6}


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        (lambda: SingleSwitchTopo(k=2), r"node h1: mac: got None, expected mac= of addHost; or say .*--auto-macs"),
        (lambda: pair(switch="leaf"), r"node leaf: dpid: got None, expected dpid= of addSwitch, as the name has no number"),
        (lambda: pair(dpid="x"), r"node s1: dpid: got 'x', expected up to 16 hexadecimal digits"),
        (lambda: pair(dpid="0"), r"node s1: dpid: got '0x0', expected greater than or equal to 1"),
        (lambda: pair(link={"bw": None}), r"link h2-s1: bw: got None, expected bw= of addLink, or --rate"),
        (lambda: pair(link={"bw": "fast"}), r"link h2-s1: bw: got 'fast', expected a number of Mbit/s above 0"),
        (lambda: pair(link={"bw": 0}), r"link h2-s1: bw: got 0, expected a number of Mbit/s above 0"),
        (lambda: pair(link={"port2": 1}), r"link h2-s1: b_port: got \('s1', 1\), expected one that is not taken"),
        (lambda: with_one_more(), r"link h1-s1: b_node: got 's1', expected another node: link h1-s1 connects both already"),
        (
            lambda: SimpleNamespace(),
            r"topology: got 'SimpleNamespace', expected a mininet\.topo\.Topo, or a mininet\.net\.Mininet",
        ),
    ],
)
def test_what_a_topology_lacks_is_said_of_its_node_or_link(topology: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_mininet(topology())


def test_a_link_of_two_bandwidths_is_refused() -> None:
    topo = pair(link={"params1": {"bw": 5}, "params2": {"bw": 6}})
    topo.linkInfo("h2", "s1").pop("bw")
    with pytest.raises(InputError, match=r"link h2-s1: bw: got 6, expected the bandwidth at the other end, 5"):
        from_mininet(topo)


def with_one_more() -> Any:
    topo = pair()
    topo.addLink("h1", "s1", bw=10)
    return topo


class BuiltNetwork(Mininet):  # type: ignore[misc]
    """A network as Mininet has it after `build`, without namespaces, which need root."""

    def __init__(self) -> None:
        self.hosts, self.switches, self.links = [], [], []


class Interface:
    """An interface as a node of Mininet has it after `build`."""

    def __init__(self, name: str, node: Any) -> None:
        self.name, self.node, self.params = name, node, {"bw": 50}


class BuiltNode:
    """A host or a switch after `build`."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.dpid, self.params = name, f"{number:016x}", dict[str, Any]()
        self.ports: dict[Interface, int] = {}
        self._number = number

    def intfList(self) -> list[Interface]:
        return [*self.ports]

    def IP(self) -> str:
        return f"10.9.0.{self._number}"

    def MAC(self) -> str:
        return f"02:00:00:00:00:0{self._number}"


def test_a_network_that_has_been_built_has_what_it_was_given() -> None:
    net, switch = BuiltNetwork(), BuiltNode("s1", 0x1F)
    net.switches.append(switch)
    for number in (1, 2):
        host = BuiltNode(f"h{number}", number)
        net.hosts.append(host)
        here, there = (Interface(f"{node.name}-x{number}", node) for node in (host, switch))
        host.ports[here], switch.ports[there] = 0, number
        net.links.append(SimpleNamespace(intf1=here, intf2=there))
    found = from_mininet(net)
    assert found.name == "BuiltNetwork"
    assert found.hosts == (Host("h1", "10.9.0.1", "02:00:00:00:00:01"), Host("h2", "10.9.0.2", "02:00:00:00:00:02"))
    assert found.switches == (Switch("s1", 0x1F),)
    assert found.links[2:] == (Link("h2", "s1", 5 * 10**7, 1, "h2-x2"), Link("s1", "h2", 5 * 10**7, 2, "s1-x2"))
    net.hosts.append(BuiltNode("h3", 3))
    with pytest.raises(InputError, match=r"node h3: ip: got None, expected the address"):
        from_mininet(net)
