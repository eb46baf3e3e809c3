"""The frames by which a controller sees where cables lead: LLDP between switches, to hosts ARP or a neighbour solicitation.

Between switches a frame is known again as a whole, by a number of its port's own that only this controller and whoever is at
that port know, so that nobody else's frame is taken for it. LLDP has no codepoint: where unregistered traffic fills its queue,
it is dropped with that. A packet in class 0 tells such a cable from one that is dead. A host answers an ARP probe (RFC 5227),
which no table of its neighbours takes in: no program has to run there. A host that is known by an IPv6 address is asked as its
neighbours ask (RFC 4861, 7.2.2), from a link-local address of the controller's own: without one the question would be
that of duplicate address detection, at which a host that starts gives its address up (RFC 4862, 5.4.3). So the host keeps that
address as a neighbour's, and looks for it a few times, which is dropped.
"""

from collections.abc import Callable
from ipaddress import IPv6Address

from os_ken.lib.packet import arp, ethernet, icmpv6, ipv4, ipv6, lldp, packet
from os_ken.lib.packet.ether_types import ETH_TYPE_ARP, ETH_TYPE_IP, ETH_TYPE_IPV6, ETH_TYPE_LLDP

from beamer.network.addresses import is_ipv6
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import PATH_MACS, Fabric
from beamer.network.observed_fabric import PortKey
from controller.openflow.rules import ICMPV6, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, PROBE_MAC

_EXPERIMENTAL = 253  # A protocol number for experiments and testing (RFC 3692).
_SOURCE = f"{PATH_MACS}00:02:00:00"  # Some switches drop a frame whose source is its destination.
_ANY, _BROADCAST, _NO_MAC = "0.0.0.0", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"
_LIVES_S = 5
_HEADER, _ARP_BYTES = 14, 28
_LINK_LOCAL = "fe80::be:ff:fe01:0"  # of PROBE_MAC (RFC 4291, appendix A)
_HOP_LIMIT = 255  # A router would have lowered it (RFC 4861, section 7.1.2).
_NEXT_HEADER_AT, _HOP_LIMIT_AT = _HEADER + 6, _HEADER + 7
_ICMPV6_AT = _HEADER + 40
_TARGET_AT, _OPTION_AT, _OPTION_BYTES = _ICMPV6_AT + 8, _ICMPV6_AT + 24, 8
_TARGET_LINK_ADDRESS = b"\x02\x01"  # the type and the length of the option


def cable_probes(
    fabric: Fabric, secret: Callable[[], str], codepoints: Codepoints = LOCAL
) -> dict[PortKey, tuple[bytes, bytes]]:
    """Return the frames that are known to come from each port of each switch: LLDP, and a packet in class 0.

    secret: makes one for each port, as hosts receive those of theirs.
    """
    return {
        (link.src, link.port): _of_port(
            f"{fabric.switch[link.src].dpid:016x}", str(link.port), f"{link.src} {secret()}", codepoints.of(0)
        )
        for link in fabric.links
        if link.src in fabric.switch
    }


def port_probe(dpid: int, port: int, secret: str) -> bytes:
    """Return the LLDP frame that is known to come from a port of a switch of which no file says anything."""
    return _of_port(f"{dpid:016x}", str(port), secret, 0)[0]


def host_probe(ip: str) -> bytes:
    """Return the frame to which a host of an address answers."""
    if is_ipv6(ip):
        return _solicitation(ip)
    request = arp.arp(opcode=arp.ARP_REQUEST, src_mac=PROBE_MAC, src_ip=_ANY, dst_mac=_NO_MAC, dst_ip=ip)
    return _frame(ethernet.ethernet(_BROADCAST, PROBE_MAC, ETH_TYPE_ARP), request)


def host_answer(frame: bytes) -> tuple[str, str] | None:
    """Return the IP and the Ethernet address that answer a host's probe, None for any other frame."""
    if len(frame) < _HEADER + _ARP_BYTES:
        return None
    head, _, _ = ethernet.ethernet.parser(frame)
    if head.dst != PROBE_MAC:
        return None
    if head.ethertype == ETH_TYPE_IPV6:
        return _advertised(frame, head.src)
    if head.ethertype != ETH_TYPE_ARP:
        return None
    body, _, _ = arp.arp.parser(frame[_HEADER:])
    return (body.src_ip, body.src_mac) if body.opcode == arp.ARP_REPLY else None


def _solicitation(ip: str) -> bytes:
    low = IPv6Address(ip).packed[-3:]
    group = f"ff02::1:ff{low[0]:02x}:{low[1]:02x}{low[2]:02x}"
    source = icmpv6.nd_option_sla(hw_src=PROBE_MAC)
    asked = icmpv6.icmpv6(NEIGHBOUR_SOLICITATION, data=icmpv6.nd_neighbor(dst=ip, option=source))
    to_group = ipv6.ipv6(src=_LINK_LOCAL, dst=group, nxt=ICMPV6, hop_limit=_HOP_LIMIT)
    return _frame(ethernet.ethernet(f"33:33:ff:{low.hex(':')}", PROBE_MAC, ETH_TYPE_IPV6), to_group, asked)


def _advertised(frame: bytes, sender: str) -> tuple[str, str] | None:
    """Return as `host_answer` what a neighbour advertisement says. sender: the frame's, where it says no Ethernet address."""
    if len(frame) < _OPTION_AT or (frame[_NEXT_HEADER_AT], frame[_HOP_LIMIT_AT]) != (ICMPV6, _HOP_LIMIT):
        return None
    if frame[_ICMPV6_AT] != NEIGHBOUR_ADVERTISEMENT:
        return None
    option = frame[_OPTION_AT : _OPTION_AT + _OPTION_BYTES]
    says = len(option) == _OPTION_BYTES and option.startswith(_TARGET_LINK_ADDRESS)
    return str(IPv6Address(frame[_TARGET_AT:_OPTION_AT])), option[2:].hex(":") if says else sender


def _of_port(chassis: str, port: str, description: str, dscp: int) -> tuple[bytes, bytes]:
    parts = (
        lldp.ChassisID(subtype=lldp.ChassisID.SUB_LOCALLY_ASSIGNED, chassis_id=f"dpid:{chassis}".encode()),
        lldp.PortID(subtype=lldp.PortID.SUB_LOCALLY_ASSIGNED, port_id=port.encode()),
        lldp.TTL(ttl=_LIVES_S),
        lldp.SystemDescription(system_description=f"Beamer: {description}".encode()),
        lldp.End(),
    )
    body = lldp.lldp(parts)
    in_class_0 = ipv4.ipv4(tos=dscp << 2, ttl=1, proto=_EXPERIMENTAL, src=_ANY, dst="255.255.255.255")
    return (
        _frame(ethernet.ethernet(lldp.LLDP_MAC_NEAREST_BRIDGE, PROBE_MAC, ETH_TYPE_LLDP), body),
        _frame(ethernet.ethernet(PROBE_MAC, _SOURCE, ETH_TYPE_IP), in_class_0, body.serialize(None, None)),
    )


def _frame(*protocols: object) -> bytes:
    made = packet.Packet()
    for protocol in protocols:
        made.add_protocol(protocol)
    made.serialize()
    return bytes(made.data).ljust(60, b"\0")
