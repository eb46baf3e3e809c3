"""What is made of what switches and agents show: any network is found as it is, and what does not fit is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.network.discovery import SeenNetwork, SeenSwitch, discovered, probed_addresses
from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import PortState
from beamer.network.protocol import Interface, InterfaceMember
from topologies import fat_tree, leaf_spine, single

RATE = 10**9


def mac(fabric: Fabric, node: str, port: int) -> str:
    """Return the Ethernet address of a port: a host's own, another one for each port of a switch."""
    return fabric.host[node].mac if node in fabric.host else f"02:0a:00:00:{fabric.switch[node].dpid:02x}:{port:02x}"


def ipv6(fabric: Fabric, host: str) -> str:
    return f"fd00::{fabric.position_at[fabric.host[host].ip] + 1:x}"


def seen_of(fabric: Fabric, agents_of_switches: bool = True) -> SeenNetwork:
    """Return what the switches and agents of a network show of it."""
    end = {
        (link.src, link.dst): (fabric.switch[link.src].dpid, link.port) for link in fabric.links if link.src in fabric.switch
    }
    ports = {
        switch.name: {
            link.port: PortState(link.interface, True, link.rate_bps, mac(fabric, link.src, link.port))
            for link in fabric.links
            if link.src == switch.name
        }
        for switch in fabric.switches
    }
    agents = {
        link.src: (
            Interface(name="eth9", mac="02:99:00:00:00:01", addresses=("192.0.2.7",), mtu=1500),
            Interface(
                name=link.interface,
                mac=fabric.host[link.src].mac,
                addresses=(fabric.host[link.src].ip, ipv6(fabric, link.src)),
                mtu=9000,
            ),
        )
        for link in fabric.links
        if link.src in fabric.host
    }
    if agents_of_switches:
        agents |= {
            f"on-{name}": tuple(Interface(name=one.name, mac=one.mac, mtu=9000) for one in found.values())
            for name, found in ports.items()
        }
    return SeenNetwork(
        {switch.dpid: SeenSwitch(switch.name, ports[switch.name]) for switch in fabric.switches},
        {end[a, b]: end[b, a] for a, b in end if b in fabric.switch},
        {end[edge, host]: {fabric.host[host].ip: fabric.host[host].mac} for host, edge in fabric.edge_of.items()},
        agents,
    )


FABRIC = leaf_spine.build(leaves=2, spines=2, hosts_per_leaf=2, rate=RATE)
SEEN = seen_of(FABRIC)
L1, L2 = FABRIC.switch["l1"].dpid, FABRIC.switch["l2"].dpid


@pytest.mark.parametrize(
    "fabric", [single.build(hosts=3), FABRIC, fat_tree.build(k=4), leaf_spine.build(leaves=12, spines=3, hosts_per_leaf=1)]
)
def test_a_network_is_found_as_it_is(fabric: Fabric) -> None:
    found = discovered(seen_of(fabric), fabric.name)
    assert found.left_out == ()
    assert set(found.fabric.links) == set(fabric.links)
    assert found.fabric.hosts == tuple(
        replace(host, agent=host.name, addresses=(ipv6(fabric, host.name),)) for host in fabric.hosts
    )
    switches = {switch.name: replace(switch, agent=f"on-{switch.name}") for switch in fabric.switches}
    assert found.fabric.switch == switches
    assert (found.fabric.planes, found.fabric.mtu) == (fabric.planes, 9000)
    assert {found.fabric.path(a.name, b.name, 1) for a in fabric.hosts for b in fabric.hosts}


def test_hosts_that_have_ipv6_alone_are_found_by_that_and_others_by_ipv4() -> None:
    alone = {host.name: f"fd00:2::{i:x}" for i, host in enumerate(FABRIC.hosts[1:], 1)}
    agents = dict(SEEN.agents)
    for name, ip in alone.items():
        management, data = agents[name]
        agents[name] = management, data.model_copy(update={"addresses": (ip, "fd00:1::7", "fe80::1")})
        assert probed_addresses(agents[name][1]) == (ip, "fd00:1::7")
    assert probed_addresses(agents[FABRIC.hosts[0].name][1]) == (FABRIC.hosts[0].ip,)
    answers = {end: {alone.get(at, FABRIC.host[at].ip): FABRIC.host[at].mac} for at, end in HOSTS.items()}
    found = discovered(replace(SEEN, agents=agents, answers=answers), "n")
    assert all("fd00:1::7, and so has another host" in text for text in found.left_out)
    first = FABRIC.hosts[0]
    assert {host.name: host.ip for host in found.fabric.hosts} == {first.name: first.ip, **alone}
    shared = {host.name: host.addresses for host in found.fabric.hosts}
    assert shared[FABRIC.hosts[1].name] == (), "fd00:1::7 is of several hosts"


HOSTS = {host: end for host in FABRIC.host for end, found in SEEN.answers.items() if FABRIC.host[host].ip in found}


def test_switches_whose_ports_no_agent_has_have_none() -> None:
    assert discovered(seen_of(FABRIC, False), "n").fabric.agents == FABRIC.host.keys()


def test_a_rate_is_the_slower_ends_or_as_given() -> None:
    state = SEEN.switches[L1].ports[1]
    slower = replace(
        SEEN, switches=SEEN.switches | {L1: SeenSwitch("l1", SEEN.switches[L1].ports | {1: replace(state, bps=7)})}
    )
    (there, back) = next(pair for pair in FABRIC.cables if ("l1", 1) in {(one.src, one.port) for one in pair})
    links = {(link.src, link.dst): link.rate_bps for link in discovered(slower, "n").fabric.links}
    assert links[there.src, there.dst] == links[back.src, back.dst] == 7
    assert set(links.values()) == {7, RATE}
    assert {link.rate_bps for link in discovered(slower, "n", 5).fabric.links} == {5}


def test_switches_of_one_name_are_told_apart_by_their_datapath_ids() -> None:
    same = {dpid: replace(switch, bridge="br0") for dpid, switch in SEEN.switches.items()}
    assert set(discovered(replace(SEEN, switches=same), "n").fabric.switch) == {f"br0-{dpid:x}" for dpid in SEEN.switches}
    as_host = SEEN.switches | {L1: replace(SEEN.switches[L1], bridge="h1")}
    assert f"h1-{L1:x}" in discovered(replace(SEEN, switches=as_host), "n").fabric.switch


def end_of(host: str) -> tuple[int, int]:
    link = FABRIC.links[FABRIC.link_index[FABRIC.edge_of[host], host]]
    return FABRIC.switch[link.src].dpid, link.port


def said(end: tuple[int, int]) -> str:
    return f"{SEEN.switches[end[0]].bridge} port {end[1]}"


def trunk(a: str, b: str) -> tuple[tuple[int, int], tuple[int, int]]:
    there, back = (FABRIC.links[FABRIC.link_index[pair]] for pair in ((a, b), (b, a)))
    return (FABRIC.switch[a].dpid, there.port), (FABRIC.switch[b].dpid, back.port)


def answering(more: dict[tuple[int, int], dict[str, str]]) -> SeenNetwork:
    return replace(SEEN, answers=SEEN.answers | more)


def machine(name: str, *more: Interface) -> SeenNetwork:
    return replace(SEEN, agents=SEEN.agents | {name: more})


SECOND = Interface(name="ens2", mac="02:77:00:00:00:01", addresses=("10.99.0.1",), mtu=9000)
FREE = (L2, 9)
NINTH = Interface(name="swp9", mac="02:77:00:00:00:99", mtu=9000)
WITH_FREE_PORT = replace(
    SEEN,
    agents=SEEN.agents | {"h1": (*SEEN.agents["h1"], SECOND), "on-l2": (*SEEN.agents["on-l2"], NINTH)},
    switches=SEEN.switches | {L2: SeenSwitch("l2", SEEN.switches[L2].ports | {9: PortState("swp9", True, RATE, NINTH.mac)})},
    answers=SEEN.answers | {FREE: {"10.99.0.1": SECOND.mac}},
)
UNKNOWN = "02:66:00:00:00:06"
A, B = trunk("l1", "s1")


def with_addresses(host: str, *addresses: str) -> SeenNetwork:
    """Return the network with other addresses on a host's interface beside its first one."""
    interface = SEEN.agents[host][1].model_copy(update={"addresses": (FABRIC.host[host].ip, *addresses)})
    return replace(SEEN, agents=SEEN.agents | {host: (interface,)})


LEFT_OUT: dict[str, tuple[Callable[[], SeenNetwork], str]] = {
    "an agent no address of whose answers": (
        lambda: machine("h9", SECOND),
        "agent h9: no address of its machine answers at a port of a switch",
    ),
    "a host without an agent": (
        lambda: answering({end_of("h1"): {**SEEN.answers[end_of("h1")], "10.50.9.9": UNKNOWN}}),
        f"10.50.9.9 ({UNKNOWN}) answers at {said(end_of('h1'))}, and no agent has that interface: start one there",
    ),
    "a second interface of a host": (
        lambda: WITH_FREE_PORT,
        "h1 is at l2 port 9 as well (ens2): one interface of a host is used",
    ),
    "an address that another host has as well": (
        lambda: with_addresses("h1", ipv6(FABRIC, "h2")),
        "h1 has fd00::2, and so has another host: no host has it in the file",
    ),
    "a cable that carries one direction": (
        lambda: replace(SEEN, leads_to={a: b for a, b in SEEN.leads_to.items() if a != B}),
        f"what {said(A)} sends arrives at {said(B)}, and nothing the other way",
    ),
    "a cable that leads back": (
        lambda: replace(SEEN, leads_to=dict(SEEN.leads_to) | {(L1, 20): (L1, 21), (L1, 21): (L1, 20)}),
        "a cable leads from l1 port 20 to l1 port 21, which is the same switch",
    ),
    "a second cable between two switches": (
        lambda: replace(SEEN, leads_to=dict(SEEN.leads_to) | {(A[0], 20): (B[0], 21), (B[0], 21): (A[0], 20)}),
        f"a second cable beside {said(A)}: l1 port 20 to s1 port 21; one is used",
    ),
    "several MTUs": (
        lambda: replace(SEEN, agents=SEEN.agents | {"h1": (SEEN.agents["h1"][1].model_copy(update={"mtu": 1500}),)}),
        "MTUs differ, 1500",
    ),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_does_not_fit_is_left_out_and_named(what: str) -> None:
    make, text = LEFT_OUT[what]
    found = discovered(make(), "n")
    others = ["h2" + text[2:]] if "another host" in what else []
    assert [one[: len(text)] for one in found.left_out] == [text, *others]
    assert set(found.fabric.host) == set(FABRIC.host)
    missing = {frozenset(("l1", "s1"))} if "direction" in what else set()
    cables = {frozenset((a.src, a.dst)) for a, _ in found.fabric.cables}
    assert cables == {frozenset((a.src, a.dst)) for a, _ in FABRIC.cables} - missing
    assert found.fabric.mtu == (1500 if what == "several MTUs" else 9000)


def test_further_addresses_are_those_that_answer_and_those_of_ipv6_that_hold_beyond_the_link() -> None:
    more = ("10.99.0.9", "10.99.0.10", "FD00:0::0a", "fe80::1", "::ffff:10.1.1.1")
    answers = {**SEEN.answers[end_of("h1")], "10.99.0.9": FABRIC.host["h1"].mac}
    found = discovered(replace(with_addresses("h1", *more), answers=SEEN.answers | {end_of("h1"): answers}), "n")
    assert found.left_out == ()
    assert found.fabric.host["h1"].addresses == ("10.99.0.9", "fd00::a")


def test_an_agent_that_has_some_of_a_switchs_ports_makes_no_queues_there() -> None:
    found = discovered(replace(SEEN, agents=SEEN.agents | {"on-l2": SEEN.agents["on-l2"][:-1]}), "n")
    number = max(SEEN.switches[L2].ports)
    text = f"agent on-l2 has ports of l2 but for {number}, and so does not make its queues: run an agent where all are"
    assert found.left_out == (text, "agent on-l2: no address of its machine answers at a port of a switch")
    assert found.fabric.switch["l2"].agent is None


def test_ports_at_which_nothing_is_seen_need_no_agent() -> None:
    unused = PortState("patch-1", True, 0, "02:55:00:00:00:01")
    switches = SEEN.switches | {L2: SeenSwitch("l2", SEEN.switches[L2].ports | {30: unused})}
    found = discovered(replace(SEEN, switches=switches), "n")
    assert (found.left_out, found.fabric.switch["l2"].agent) == ((), "on-l2")


BELOW = Interface(name="ens7", mac=FABRIC.host["h1"].mac, mtu=9000)


def test_of_interfaces_with_one_ethernet_address_the_one_with_the_address_is_the_hosts() -> None:
    for several in ((*SEEN.agents["h1"], BELOW), (BELOW, *SEEN.agents["h1"])):
        found = discovered(replace(SEEN, agents=SEEN.agents | {"h1": several}), "n")
        assert found == discovered(SEEN, "n")


def test_two_agents_with_one_ethernet_address_are_named() -> None:
    copied = SEEN.agents["h1"][1]
    found = discovered(replace(SEEN, agents=SEEN.agents | {"h9": (copied,)}), "n")
    assert found.left_out == (f"agents h1, h9 have one Ethernet address, {copied.mac}: one of them is used",)
    assert set(found.fabric.host) == set(FABRIC.host)


def test_two_hosts_behind_a_port_or_with_an_address_are_named_and_one_is_left_out() -> None:
    second = {**SEEN.answers[end_of("h1")], "10.99.0.1": SECOND.mac}
    found = discovered(replace(answering({end_of("h1"): second}), agents=SEEN.agents | {"h9": (SECOND,)}), "n")
    assert found.left_out == (f"h9 is at {said(end_of('h1'))} behind which h1 is: one host has a port to itself",)
    same = Interface(name="ens1", mac=SECOND.mac, addresses=(FABRIC.host["h1"].ip,), mtu=9000)
    twice = replace(
        WITH_FREE_PORT,
        agents=WITH_FREE_PORT.agents | {"h1": SEEN.agents["h1"], "h9": (same,)},
        answers=SEEN.answers | {FREE: {FABRIC.host["h1"].ip: SECOND.mac}},
    )
    found = discovered(twice, "n")
    assert found.left_out == (f"h9 has the address {FABRIC.host['h1'].ip} of h1: give it another one",)
    assert set(found.fabric.host) == set(FABRIC.host)


def test_hosts_that_no_cable_connects_with_most_are_left_out() -> None:
    cut = {a: b for a, b in SEEN.leads_to.items() if L2 not in (a[0], b[0])}
    found = discovered(replace(SEEN, leads_to=cut, answers={e: a for e, a in SEEN.answers.items() if e != end_of("h4")}), "n")
    assert set(found.fabric.host) == {"h1", "h2"}
    assert f"h3 at {said(end_of('h3'))}: no cable is seen that leads to h1, h2" in found.left_out


def test_what_was_left_out_is_said_where_there_is_no_network_either() -> None:
    with pytest.raises(InputError, match="left out: agent h1: no address of its machine answers"):
        discovered(replace(SEEN, answers={}), "n")


def test_a_host_that_answers_for_others_alone_is_left_out() -> None:
    found = discovered(answering({end_of("h1"): {"192.0.2.9": FABRIC.host["h1"].mac}}), "n")
    assert set(found.fabric.host) == set(FABRIC.host) - {"h1"}
    assert f"answers at {said(end_of('h1'))} for others' addresses alone" in found.left_out[0]


def test_what_the_machine_of_a_switch_answers_between_switches_counts_for_nothing() -> None:
    port = SEEN.switches[A[0]].ports[A[1]]
    assert discovered(answering({B: {"192.0.2.9": port.mac}}), "n").left_out == ()


@pytest.mark.parametrize(
    ("seen", "field", "expected"),
    [
        (SeenNetwork(), "switches", "a switch that has this address as its controller"),
        (replace(SEEN, answers={}), "hosts", "agent h1: no address of its machine answers"),
        (replace(SEEN, answers={}, agents={}), "hosts", "no agent has connected"),
        (
            replace(
                SEEN,
                switches=SEEN.switches
                | {L1: SeenSwitch("l1", {n: replace(p, bps=0) for n, p in SEEN.switches[L1].ports.items()})},
            ),
            "--rate",
            "does not say its own",
        ),
    ],
)
def test_what_is_no_network_yet_is_refused(seen: SeenNetwork, field: str, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        discovered(seen, "n")
    assert refused.value.field == field
    assert expected in str(refused.value)


def composed(host: str, *below: Interface, **of: Any) -> SeenNetwork:
    """Return the network with a host whose interface with the address is made of others. of: what that one is."""
    made = SEEN.agents[host][1].model_copy(update=of)
    return replace(SEEN, agents=SEEN.agents | {host: (made, *below)})


def member(name: str, carries: bool = True) -> InterfaceMember:
    return InterfaceMember(name=name, mac=FABRIC.host["h1"].mac, carries=carries)


def bond(mode: str, *members: InterfaceMember) -> SeenNetwork:
    below = (Interface(name=one.name, mac=one.mac, mtu=9000) for one in members)
    return composed("h1", *below, name="bond0", kind="bond", mode=mode, members=members)


def at_another_port(seen: SeenNetwork) -> SeenNetwork:
    """Return the network with a port at which the first host answers as well."""
    switches = seen.switches | WITH_FREE_PORT.switches
    agents = {**seen.agents, "on-l2": WITH_FREE_PORT.agents["on-l2"]}
    return replace(seen, switches=switches, agents=agents, answers=seen.answers | {FREE: SEEN.answers[end_of("h1")]})


@pytest.mark.parametrize("mode", ["802.3ad", "balance-rr", "balance-xor", "balance-alb", "broadcast", ""])
@pytest.mark.parametrize("several", [False, True])
def test_a_bond_whose_members_may_all_carry_is_no_hosts_even_where_it_answers_at_one_port(mode: str, several: bool) -> None:
    seen = bond(mode, member("eth1"), member("eth2"))
    found = discovered(at_another_port(seen) if several else seen, "n")
    assert set(found.fabric.host) == set(FABRIC.host) - {"h1"}
    at = f"{said(end_of('h1'))} and l2 port 9" if several else said(end_of("h1"))
    (text,) = found.left_out
    what = f"bond0, a bond ({mode or 'of unknown mode'}) of eth1, eth2: each member may carry packets"
    assert text.startswith(f"h1, which answers at {at}, is not used: {what}")


def test_a_bond_of_which_one_member_carries_is_a_hosts_and_the_member_is_named() -> None:
    seen = bond("active-backup", member("eth1", False), member("eth2"))
    found = discovered(seen, "n")
    assert found.fabric.host == discovered(SEEN, "n").fabric.host
    assert {link.interface for link in found.fabric.links if link.src == "h1"} == {"bond0"}
    where = f"h1 at {said(end_of('h1'))}: bond0, a bond (active-backup) of eth1, eth2"
    cut_off = "where eth1 takes over, the host is cut off until the network's file names that port"
    assert found.left_out == (f"{where}: the port of eth2 is used; {cut_off}",)
    moved = discovered(at_another_port(seen), "n")
    assert set(moved.fabric.host) == set(FABRIC.host) - {"h1"}
    assert moved.left_out[0].startswith(f"h1, which answers at {said(end_of('h1'))} and l2 port 9, is not used: bond0, a bond")


def test_a_bond_of_one_member_is_a_hosts_whatever_its_mode_and_one_that_carries_nothing_is_none() -> None:
    found = discovered(bond("802.3ad", member("eth1")), "n")
    assert (set(found.fabric.host), found.left_out) == (set(FABRIC.host), ())
    idle = discovered(bond("active-backup", member("eth1", False), member("eth2", False)), "n")
    assert set(idle.fabric.host) == set(FABRIC.host) - {"h1"}
    assert idle.left_out[0].endswith("one member has to carry packets, and 0 do: see that one has a link and is active")


TAGGED: dict[str, Any] = {"name": "eth1.10", "kind": "vlan", "vlan_id": 10, "vlan_protocol": "802.1Q", "parent": "eth1"}
PARENT = Interface(name="eth1", mac=FABRIC.host["h1"].mac, mtu=9000)


@pytest.mark.parametrize("own_mac", [False, True])
def test_a_vlan_interface_is_no_hosts_and_neither_is_what_it_is_on(own_mac: bool) -> None:
    more = {"mac": "02:77:00:00:00:10"} if own_mac else dict[str, str]()
    found = discovered(composed("h1", PARENT, **TAGGED, **more), "n")
    assert set(found.fabric.host) == set(FABRIC.host) - {"h1"}
    (text,) = found.left_out
    where = f"h1, which answers at {said(end_of('h1'))}, is not used"
    assert text.startswith(
        f"{where}: eth1.10, a VLAN interface (802.1Q, id 10) on eth1: switches forward its packets with their tag"
    )
    assert text.endswith("give the address to the interface below it, and have the switch's port take its packets untagged")


def test_an_address_of_its_own_of_what_a_vlan_interface_is_on_is_the_hosts() -> None:
    parent = SEEN.agents["h1"][1].model_copy(update={"name": "eth1"})
    tagged = Interface(mac=parent.mac, addresses=("10.99.0.1",), mtu=9000, **TAGGED)
    answers = {**SEEN.answers[end_of("h1")], "10.99.0.1": parent.mac}
    for order in ((parent, tagged), (tagged, parent)):
        seen = replace(SEEN, agents=SEEN.agents | {"h1": order}, answers=SEEN.answers | {end_of("h1"): answers})
        found = discovered(seen, "n")
        assert found.left_out == ()
        assert {link.interface for link in found.fabric.links if link.src == "h1"} == {"eth1"}
        assert "10.99.0.1" not in found.fabric.host["h1"].every_address


def test_a_bridge_over_a_vlan_interface_is_no_hosts() -> None:
    tagged = Interface(mac=PARENT.mac, mtu=9000, **TAGGED)
    found = discovered(composed("h1", tagged, PARENT, name="br10", kind="bridge", members=(member("eth1.10"),)), "n")
    assert set(found.fabric.host) == set(FABRIC.host) - {"h1"}
    assert "br10, a bridge of eth1.10: eth1.10, a VLAN interface (802.1Q, id 10) on eth1" in found.left_out[0]
