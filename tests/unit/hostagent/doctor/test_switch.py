"""What is said of Open vSwitch's bridges, as they should be and otherwise."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from beamer.doctor.agent_socket import AgentSocket, Namespaces
from beamer.doctor.certificates import CertificateFile, Validity
from beamer.doctor.findings import CheckVerdict, Finding, Unseen, examine
from hostagent.doctor.interfaces import InterfaceFacts
from hostagent.doctor.kernel import KernelFacts
from hostagent.doctor.open_vswitch import BridgeController, BridgeFacts, PacketBuffers, SwitchDatabase
from hostagent.doctor.switch import BUFFER_BYTES, CHECKS, SwitchFacts

BRIDGE = BridgeFacts(
    "l1",
    "0000000000000010",
    datapath_type="netdev",
    fail_mode="secure",
    protocols=frozenset({"OpenFlow13"}),
    controllers=(BridgeController("tcp:10.0.0.1:6653", True, "out-of-band"),),
    ports=("l1-eth1", "l1-eth2"),
)
GOOD = SwitchFacts(
    version="3.1.0",
    daemon="ovs-vswitchd (Open vSwitch) 3.1.0",
    database=SwitchDatabase((BRIDGE,)),
    buffers=PacketBuffers(BUFFER_BYTES, BUFFER_BYTES),
    interfaces={name: InterfaceFacts(name, mtu=1500, tx_queue=1000) for name in BRIDGE.ports},
    certificates=(),
    kernel=KernelFacts("6.18.1", None, True, "nftables v1.0.6", None, 1 << 19 | 1 << 2, "this process"),
    agent=AgentSocket("/run/agent.sock", pid=7, pid_namespace=1, network_namespace=2),
    own=Namespaces(1, 2),
    now=0.0,
)
ABSENT = AgentSocket("/run/agent.sock", "there is no such socket", "start it")
SECURE = BridgeController("ssl:10.0.0.1:6653", True, "out-of-band")
OLD = Validity(datetime(1960, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC))


def with_bridge(**changes: object) -> SwitchFacts:
    return replace(GOOD, database=SwitchDatabase((replace(BRIDGE, **changes),)))  # type: ignore[arg-type]


def wrong(facts: SwitchFacts) -> dict[str, Finding]:
    """Return what is not as it should be; of a check its last finding."""
    return {name: one for name, one in examine(CHECKS, facts) if one.verdict is not CheckVerdict.OK}


def test_a_switch_that_is_as_it_should_be_has_no_finding() -> None:
    assert wrong(GOOD) == {}


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "fix"),
    [
        (
            replace(GOOD, version=Unseen("ovs-vsctl: No such file")),
            "Open vSwitch",
            CheckVerdict.FAULT,
            "apt-get install openvswitch-sw",
        ),
        (replace(GOOD, version="2.17.9"), "Open vSwitch", CheckVerdict.WARNING, "3.1 or newer"),
        (replace(GOOD, daemon=Unseen("cannot connect")), "daemons", CheckVerdict.FAULT, "systemctl start openvswitch-switch"),
        (replace(GOOD, database=SwitchDatabase(())), "bridges", CheckVerdict.FAULT, "Connect a bridge"),
        (with_bridge(broken=(("l1-eth1", "gone"),)), "bridges", CheckVerdict.FAULT, "ovs-vsctl del-port l1 l1-eth1"),
        (with_bridge(is_id_set=False), "datapath id", CheckVerdict.WARNING, "other-config:datapath-id="),
        (with_bridge(datapath_type=""), "datapath", CheckVerdict.WARNING, "datapath_type=netdev"),
        (with_bridge(fail_mode=""), "fail mode", CheckVerdict.FAULT, "ovs-vsctl set-fail-mode l1 secure"),
        (with_bridge(protocols=frozenset({"OpenFlow10"})), "protocols", CheckVerdict.FAULT, "protocols=OpenFlow13"),
        (with_bridge(controllers=()), "controllers", CheckVerdict.FAULT, "ovs-vsctl set-controller l1 ssl:"),
        (
            with_bridge(controllers=(BridgeController("tcp:c1:1", False, "out-of-band", "Connection refused"),)),
            "controllers",
            CheckVerdict.FAULT,
            "start beamer-controller there",
        ),
        (
            with_bridge(controllers=(BridgeController("tcp:c1:1", True, ""),)),
            "controllers",
            CheckVerdict.WARNING,
            "connection-mode=out-of-band",
        ),
        (with_bridge(controllers=(SECURE,)), "TLS", CheckVerdict.FAULT, "ovs-vsctl set-ssl"),
        (
            replace(GOOD, buffers=PacketBuffers(212_992, BUFFER_BYTES)),
            "buffers",
            CheckVerdict.FAULT,
            "sysctl -w net.core.wmem_default=",
        ),
        (replace(GOOD, buffers=Unseen("not allowed")), "buffers", CheckVerdict.NOT_CHECKED, ""),
        (
            replace(GOOD, interfaces={n: InterfaceFacts(n, mtu=1500 + i, tx_queue=1000) for i, n in enumerate(BRIDGE.ports)}),
            "MTU",
            CheckVerdict.FAULT,
            "ip link set l1-eth1 mtu 1501",
        ),
        (
            replace(GOOD, interfaces={"l1-eth1": InterfaceFacts("l1-eth1", "prio 1:")}),
            "root qdisc",
            CheckVerdict.FAULT,
            "tc qdisc del",
        ),
        (replace(GOOD, kernel=replace(GOOD.kernel, u32=False)), "classifier", CheckVerdict.FAULT, "modprobe cls_u32"),
        (replace(GOOD, agent=ABSENT), "agent", CheckVerdict.WARNING, "where the network's file has no agent for this switch"),
        (replace(GOOD, own=Namespaces(1, 9)), "agent", CheckVerdict.FAULT, "run an agent in this network namespace"),
    ],
)
def test_each_fault_has_its_fix(facts: SwitchFacts, check: str, verdict: CheckVerdict, fix: str) -> None:
    found = wrong(facts)[check]
    assert found.verdict is verdict
    assert fix in found.fix


def test_without_a_database_what_depends_on_it_is_not_checked() -> None:
    found = wrong(replace(GOOD, database=Unseen("connection failed"), interfaces=Unseen("connection failed")))
    assert found.pop("daemons").fix == "systemctl start openvswitch-switch"
    assert {one.verdict for one in found.values()} == {CheckVerdict.NOT_CHECKED}
    assert set(found) >= {"bridges", "fail mode", "controllers", "buffers", "MTU"}


def test_one_certificate_is_for_one_bridge_and_has_its_dates() -> None:
    bridges = tuple(replace(BRIDGE, name=name, controllers=(SECURE,)) for name in ("l1", "l2"))
    one = replace(GOOD, database=SwitchDatabase(bridges[:1], "/c.pem", "/ca.pem"))
    assert wrong(one) == {}
    two = replace(GOOD, database=SwitchDatabase(bridges, "/c.pem", "/ca.pem"))
    assert "which is for one datapath id" in wrong(two)["TLS"].found
    expired = replace(one, certificates=(CertificateFile("set-ssl", "/c.pem", (OLD,)),))
    assert "has expired" in wrong(expired)["TLS"].found


def test_a_kernel_datapath_needs_no_buffers_of_its_own() -> None:
    facts = replace(with_bridge(datapath_type="system"), buffers=PacketBuffers(1, 1))
    assert "buffers" not in wrong(facts)
    assert wrong(facts)["offloads"].verdict is CheckVerdict.NOT_CHECKED
