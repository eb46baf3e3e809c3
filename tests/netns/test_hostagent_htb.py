"""Trees in a real kernel, checked with `tc`."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.network.protocol import Port
from hostagent.queues.class_counts import ClassCount
from hostagent.queues.htb import Queues
from hostagent.queues.tree import UNREGISTERED, Cap, Tree, class_id, port_tree
from tests.support.namespaces import Namespace, cabled_namespaces

pytestmark = pytest.mark.netns

NO_IPV6 = "/proc/sys/net/ipv6/conf/data/disable_ipv6"  # a new interface sends IPv6 packets by itself, which would be counted


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, ...]]:
    with cabled_namespaces("a", "b") as made:
        yield made


def with_queues(space: Namespace, use: Callable[[Queues], Any]) -> Any:
    def inside() -> Any:
        queues = Queues()
        try:
            return use(queues)
        finally:
            queues.close()

    return space.call(inside)


def tree(rate_bps: int = 20_000_000, queues: int = 8, classify: Any = "dscp", caps: dict[str, Cap] | None = None) -> Tree:
    return port_tree(Port(interface="data", rate_bps=rate_bps, classify=classify), queues, 0.1, caps or {})


def tc_classes(space: Namespace) -> dict[str, str]:
    shown = space.run("tc", "class", "show", "dev", "data")
    return {m[1]: m[2] for m in re.finditer(r"class htb (\S+) (.*)", shown)}


def test_the_tree_is_the_one_that_tc_shows(spaces: tuple[Namespace, ...]) -> None:
    assert with_queues(spaces[0], lambda q: q.reconcile("data", tree())) == 1 + 10 + 9
    (root,) = json.loads(spaces[0].run("tc", "-j", "qdisc", "show", "dev", "data", "root"))
    assert (root["kind"], root["handle"], root["options"]["default"]) == ("htb", "1:", "0x9")
    classes = tc_classes(spaces[0])
    assert set(classes) == {"1:1", "1:9", *(f"1:{0x10 + k:x}" for k in range(8))}
    assert "rate 20Mbit ceil 20Mbit" in classes["1:1"]
    assert "prio 7 rate 2Mbit ceil 20Mbit" in classes["1:9"]
    for k in range(8):
        assert f"prio {k} " in classes[f"1:{0x10 + k:x}"]
        assert "ceil 20Mbit" in classes[f"1:{0x10 + k:x}"]
    shown = spaces[0].run("tc", "filter", "show", "dev", "data")
    picked = re.findall(r"flowid (\S+) .*\n\s+match (\w+)/fc000000 at 1", shown)
    of_classes = [(f"1:{0x10 + k:x}", f"{(8 * k + 3) << 26:08x}") for k in range(8)]
    assert picked == [*of_classes, ("1:10", f"{7 << 26:08x}")]


@pytest.mark.parametrize("rate_bps", [20_000_000, 10**9, 10**10, 10**11])
def test_nothing_changes_the_second_time(spaces: tuple[Namespace, ...], rate_bps: int) -> None:
    wanted = tree(rate_bps)

    def twice(queues: Queues) -> tuple[int, int]:
        return queues.reconcile("data", wanted), queues.reconcile("data", wanted)

    assert with_queues(spaces[0], twice) == (20, 0)
    assert f"ceil {rate_bps // 10**6}Mbit" in tc_classes(spaces[0])["1:1"].replace("Gbit", "000Mbit")


def test_only_differences_are_written_and_counters_stay(spaces: tuple[Namespace, ...]) -> None:
    def steps(queues: Queues) -> tuple[int, int, int]:
        return (
            queues.reconcile("data", tree(classify="mark", queues=4)),
            queues.reconcile("data", tree(classify="mark", queues=5)),
            queues.reconcile("data", tree(classify="mark", queues=5, caps={"j": Cap(1, 10**6)})),
        )

    assert with_queues(spaces[0], steps) == (1 + 6, 1, 1)
    assert any("ceil 1Mbit" in shown and "prio 1 " in shown for shown in tc_classes(spaces[0]).values())
    assert with_queues(spaces[0], lambda q: q.reconcile("data", tree(classify="mark", queues=5))) == 1
    assert len(tc_classes(spaces[0])) == 7


def test_what_somebody_changed_is_repaired(spaces: tuple[Namespace, ...]) -> None:
    with_queues(spaces[0], lambda q: q.reconcile("data", tree()))
    spaces[0].run("tc", "filter", "del", "dev", "data", "parent", "1:", "prio", "3")
    spaces[0].run("tc", "class", "change", "dev", "data", "parent", "1:1", "classid", "1:14", "htb", "rate", "9Mbit")
    assert with_queues(spaces[0], lambda q: q.reconcile("data", tree())) == 2


def test_a_foreign_root_is_refused_and_left(spaces: tuple[Namespace, ...]) -> None:
    spaces[0].run("tc", "qdisc", "add", "dev", "data", "root", "handle", "7:", "pfifo")
    with pytest.raises(InputError, match=r"ports\[data\]: got 'pfifo 7:'"):
        with_queues(spaces[0], lambda q: q.reconcile("data", tree()))
    assert "pfifo 7:" in spaces[0].run("tc", "qdisc", "show", "dev", "data")


def test_an_unknown_interface_is_named(spaces: tuple[Namespace, ...]) -> None:
    with pytest.raises(InputError, match="nosuch"):
        with_queues(spaces[0], lambda q: q.reconcile("nosuch", tree()))


def test_dscp_picks_the_class_whatever_ecn_says(spaces: tuple[Namespace, ...]) -> None:
    wanted = tree()
    with_queues(spaces[0], lambda q: q.reconcile("data", wanted))
    for space, other in ((spaces[0], 1), (spaces[1], 0)):  # so that nothing but datagrams is counted below
        (link,) = json.loads(spaces[other].run("ip", "-j", "link", "show", "data"))
        space.run("ip", "neigh", "replace", f"10.77.0.{other + 1}", "lladdr", link["address"], "dev", "data")
        space.run("sh", "-c", f"[ ! -e {NO_IPV6} ] || echo 1 > {NO_IPV6}")

    def counts() -> dict[int, ClassCount]:
        found: dict[int, ClassCount] = with_queues(spaces[0], lambda q: q.counts("data"))
        return found

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for tos in [(8 * k + 3) << 2 | ecn for k in range(8) for ecn in range(4)] + [46 << 2, 0]:
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
                sender.sendto(b"x", ("10.77.0.2", 9))

    before = counts()
    spaces[0].call(send)
    after = counts()
    grown = {id_: after[id_].sent_packets - before[id_].sent_packets for id_ in after}
    assert {k: grown[class_id(k)] for k in range(8)} == dict.fromkeys(range(8), 4)
    assert grown[UNREGISTERED] == 2


def test_removal_gives_the_kernels_default_back(spaces: tuple[Namespace, ...]) -> None:
    assert with_queues(spaces[0], lambda q: (q.reconcile("data", tree()), q.reconcile("data", None))) == (20, 1)
    assert "noqueue 0:" in spaces[0].run("tc", "qdisc", "show", "dev", "data")
    assert with_queues(spaces[0], lambda q: q.reconcile("data", None)) == 0
