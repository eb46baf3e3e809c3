"""The conformance suite of those who make a switch's queues: an agent by HTB, the controller by the switch's database."""

import pytest

from tests.netns.bench import eventually
from tests.netns.lab import FABRIC, Lab
from tests.netns.queue_makers import MAKERS, classes, restart, running, until_right
from tests.support.tiers import long

pytestmark = pytest.mark.netns
PORTS = tuple(link.interface for link in FABRIC.links if link.src in FABRIC.switch)
PORT = "l1-eth1"
QOS = f"$(ovs-vsctl get port {PORT} qos)"
FOREIGN = {
    "database": (
        f"ovs-vsctl set port {PORT} qos=@q -- --id=@q create qos type=linux-htb other-config:max-rate=1000000",
        f"ovs-vsctl clear port {PORT} qos",
    ),
    "agent": (f"tc qdisc replace dev {PORT} root handle 7: pfifo", f"tc qdisc del dev {PORT} root"),
}
"""How another program puts its own queues in the place of Beamer's, and takes away whatever is there, by maker."""
CHANGES = {
    "database": (
        f"ovs-vsctl set queue $(ovs-vsctl get qos {QOS} queues:2) other-config:max-rate=9000",
        f"ovs-vsctl set qos {QOS} other-config:max-rate=9000",
        f"ovs-vsctl remove qos {QOS} queues 2",
        f"ovs-vsctl clear port {PORT} qos -- destroy qos {QOS}",
        f"ovs-vsctl set port {PORT} qos=$(ovs-vsctl get port l2-eth2 qos)",
    ),
    "agent": (
        f"tc class change dev {PORT} parent 1:1 classid 1:10 htb rate 1kbit ceil 9kbit prio 5",
        f"tc filter del dev {PORT} && tc class del dev {PORT} classid 1:11",
    ),
}
"""How another program changes Beamer's queues, by maker: commands of a shell."""


@pytest.mark.parametrize("name", MAKERS)
def test_a_switch_has_the_same_classes_whoever_makes_them(name: str, lab: Lab) -> None:
    with running(name, lab) as maker:
        until_right(lab, maker, PORTS)
        for change in (FOREIGN[name][1], *CHANGES[name]):
            lab.run("sh", "-c", change)
            until_right(lab, maker, PORTS)
        restart(lab)
        until_right(lab, maker, PORTS)
        maker.stop()
        assert classes(lab, PORT, maker), "queues stay"
        maker.start()
        until_right(lab, maker, PORTS)


@pytest.mark.parametrize("name", ["database", *long("agent")])
def test_queues_of_another_program_are_left_and_named_and_replaced_when_they_are_gone(name: str, lab: Lab) -> None:
    others = tuple(one for one in PORTS if one != PORT)
    with running(name, lab) as maker:
        until_right(lab, maker, PORTS)
        foreign, gone = FOREIGN[name]
        lab.run("sh", "-c", foreign)
        eventually(lambda: maker.named(PORT))
        until_right(lab, maker, others)
        theirs = lab.run("tc", "qdisc", "show", "dev", PORT), lab.run("tc", "class", "show", "dev", PORT)
        assert "pfifo" in theirs[0] or "rate 1Mbit ceil 1Mbit" in theirs[1]
        lab.run("sh", "-c", gone)
        until_right(lab, maker, PORTS)
        if name == "database":
            assert not maker.named(PORT)
            rates = lab.run("ovs-vsctl", "--bare", "--columns=other_config", "list", "qos").splitlines()
            assert rates.count("max-rate=1000000") == 1, "their row stays"
