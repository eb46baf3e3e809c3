"""What is said of interfaces: their root queueing discipline, offloads, queues and MTU."""

from collections.abc import Iterable

import pytest

from beamer.doctor.findings import CheckVerdict, Finding
from beamer.errors import PlatformError
from hostagent.doctor.interfaces import (
    AGENTS,
    InterfaceFacts,
    interfaces_with,
    judge_equal_mtu,
    judge_host_offloads,
    judge_lengths,
    judge_port_offloads,
    judge_roots,
    read_interfaces,
)


def briefly(found: Iterable[Finding]) -> list[tuple[CheckVerdict, str]]:
    return [(one.verdict, one.fix.partition(",")[0]) for one in found]


def test_another_programs_root_is_a_fault_and_the_agents_own_is_not() -> None:
    found = [InterfaceFacts("a"), InterfaceFacts("b", AGENTS), InterfaceFacts("c", "prio 1:"), InterfaceFacts("d", "")]
    assert briefly(judge_roots(found)) == [
        (CheckVerdict.OK, ""),
        (CheckVerdict.OK, ""),
        (CheckVerdict.FAULT, "tc qdisc del dev c root"),
        (CheckVerdict.FAULT, "name it as `ip link` shows it"),
    ]


@pytest.mark.parametrize(
    ("driver", "features", "verdict", "said"),
    [
        ("veth", {"tx"}, CheckVerdict.WARNING, "transmit checksum offload is on at a, and no card computes checksums"),
        ("veth", set(), CheckVerdict.OK, "transmit checksum offload is off at a: the kernel computes checksums"),
        ("mlx5_core", {"tx", "gro", "lro"}, CheckVerdict.OK, "transmit checksum offload is on at a: its card computes"),
    ],
)
def test_checksums_are_left_to_real_cards_alone(driver: str, features: set[str], verdict: CheckVerdict, said: str) -> None:
    one = InterfaceFacts("a", driver=driver, left_to_card=frozenset(features))
    (found,) = judge_host_offloads([one, InterfaceFacts("absent", "")])
    assert found.found.startswith(said)
    fix = "ethtool -K a tx off" if verdict is CheckVerdict.WARNING else ""
    assert (found.verdict, found.fix.partition(",")[0]) == (verdict, fix)


def test_ports_of_a_userspace_datapath_do_not_join_packets() -> None:
    joining, plain = InterfaceFacts("a", left_to_card=frozenset({"tx", "gro", "lro"})), InterfaceFacts("b")
    assert briefly(judge_port_offloads([joining, plain])) == [
        (CheckVerdict.WARNING, "ethtool -K a gro off lro off"),
        (CheckVerdict.OK, ""),
    ]


@pytest.mark.parametrize(("packets", "verdict"), [(0, CheckVerdict.FAULT), (99, CheckVerdict.WARNING), (1000, CheckVerdict.OK)])
def test_queues_hold_as_much_as_the_interfaces_queue(packets: int, verdict: CheckVerdict) -> None:
    ((found, fix),) = briefly(judge_lengths([InterfaceFacts("a", tx_queue=packets)]))
    assert found is verdict
    assert fix == ("" if verdict is CheckVerdict.OK else "ip link set a txqueuelen 1000")


def test_ports_of_one_switch_carry_packets_of_one_size() -> None:
    ports = [InterfaceFacts("a", mtu=1500), InterfaceFacts("b", mtu=9000), InterfaceFacts("c", mtu=1500)]
    assert briefly(judge_equal_mtu(ports)) == [(CheckVerdict.FAULT, "ip link set a mtu 9000; ip link set c mtu 9000")]
    assert briefly(judge_equal_mtu(ports[::2])) == [(CheckVerdict.OK, "")]
    assert briefly(judge_equal_mtu([])) == []


def test_interfaces_are_read_from_the_kernel() -> None:
    try:
        loopback, absent = read_interfaces(["lo", "absent", "lo"])
    except PlatformError:
        pytest.skip("this process may not ask the kernel")
    assert (loopback.name, loopback.root, absent.root) == ("lo", "the kernel's default", "")
    assert loopback.mtu > 1000
    assert loopback.tx_queue > 0
    assert interfaces_with(()) == ()
