"""The frames by which hosts are asked for over IPv6, and which answers are read."""

import pytest
from os_ken.lib.packet import ethernet, icmpv6, ipv6, packet

from controller.openflow.probes import host_answer, host_probe
from controller.openflow.rules import ICMPV6, IPV6, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, PROBE_MAC

MAC, TARGET = "02:00:00:00:00:07", "fd00::12:3456"
CONTROLLER = "fe80::be:ff:fe01:0"


def advertisement(
    *, kind: int = NEIGHBOUR_ADVERTISEMENT, to: str = PROBE_MAC, hops: int = 255, option: bool = True, sender: str = MAC
) -> bytes:
    made = packet.Packet()
    made.add_protocol(ethernet.ethernet(to, sender, IPV6))
    made.add_protocol(ipv6.ipv6(src=TARGET, dst=CONTROLLER, nxt=ICMPV6, hop_limit=hops))
    said = icmpv6.nd_neighbor(dst=TARGET, option=icmpv6.nd_option_tla(hw_src=MAC) if option else None)
    made.add_protocol(icmpv6.icmpv6(kind, data=said))
    made.serialize()
    return bytes(made.data)


def test_a_host_is_asked_as_its_neighbours_ask() -> None:
    frame = packet.Packet(host_probe(TARGET))
    head, network, asked = (frame.get_protocol(kind) for kind in (ethernet.ethernet, ipv6.ipv6, icmpv6.icmpv6))
    assert (head.dst, head.src) == ("33:33:ff:12:34:56", PROBE_MAC)
    assert (network.src, network.dst, network.hop_limit) == (CONTROLLER, "ff02::1:ff12:3456", 255)
    assert (asked.type_, asked.data.dst, asked.data.option.hw_src) == (NEIGHBOUR_SOLICITATION, TARGET, PROBE_MAC)


@pytest.mark.parametrize("option", [True, False])
def test_an_answer_is_read(option: bool) -> None:
    sender = "02:00:00:00:00:08" if option else MAC  # What the answer says counts more than who has sent it.
    assert host_answer(advertisement(option=option, sender=sender)) == (TARGET, MAC)


def test_what_is_no_answer_is_not_read() -> None:
    for frame in (
        advertisement(kind=NEIGHBOUR_SOLICITATION),
        advertisement(to="02:00:00:00:00:09"),
        advertisement(hops=64),
        *(advertisement()[:size] for size in (0, 13, 42, 60, 77)),
    ):
        assert host_answer(frame) is None
