"""`beamer doctor switch`: what would keep Open vSwitch, and the agent that owns its ports, from serving Beamer."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from beamer.doctor.agent_socket import AgentSocket, Namespaces, judge_agent, judge_network_namespace, own_namespaces, read_agent
from beamer.doctor.certificates import CertificateFile, judge_certificates, read_certificates
from beamer.doctor.findings import Check, CheckVerdict, Finding, Unseen, examine, fault, not_checked, observe, ok, seen, warning
from beamer.doctor.report import report
from beamer.errors import InputError, nearest
from beamer.inspect.options import JsonFlag
from hostagent.command import DEFAULT_ATTACH
from hostagent.doctor.interfaces import (
    InterfaceFacts,
    judge_equal_mtu,
    judge_lengths,
    judge_port_offloads,
    judge_roots,
    read_interfaces,
)
from hostagent.doctor.kernel import KernelFacts, judge_capabilities, judge_classifier, judge_queues, judge_release, read_kernel
from hostagent.doctor.open_vswitch import (
    BridgeFacts,
    PacketBuffers,
    SwitchDatabase,
    daemon_version,
    packet_buffers,
    read_database,
    version,
)
from hostagent.doctor.options import AttachOption

TESTED = (3, 1)  # The version of Open vSwitch that Beamer's tests run on.
BUFFER_BYTES = 33_554_432
"""What docs/switches/open-vswitch.md has the buffers of a userspace datapath enlarged to."""
USERSPACE = "netdev"
_PROTOCOL = "OpenFlow13"
_TLS = "ssl:"
_START = "systemctl start openvswitch-switch"
_NO_DATABASE = Unseen("ovsdb-server does not answer")

BridgeOption = Annotated[list[str] | None, typer.Option(help="A bridge that serves Beamer; repeatable.  [default: every one]")]


@dataclass(frozen=True)
class SwitchFacts:
    """What was observed on a machine with switches. interfaces: the bridges' ports. now: Unix time."""

    version: str | Unseen
    daemon: str | Unseen
    database: SwitchDatabase | Unseen
    buffers: PacketBuffers | Unseen
    interfaces: Mapping[str, InterfaceFacts] | Unseen
    certificates: tuple[CertificateFile, ...]
    kernel: KernelFacts
    agent: AgentSocket
    own: Namespaces
    now: float

    @property
    def bridges(self) -> tuple[BridgeFacts, ...]:
        """The bridges. Raises `UnseenError` where the database is not served."""
        return seen(self.database if isinstance(self.database, SwitchDatabase) else _NO_DATABASE).bridges

    def ports(self, bridge: BridgeFacts) -> list[InterfaceFacts]:
        """Return what is known of a bridge's ports. Raises `UnseenError`."""
        return [one for name, one in seen(self.interfaces).items() if name in bridge.ports]


def switch(
    bridge: BridgeOption = None,
    attach: AttachOption = DEFAULT_ATTACH,
    as_json: JsonFlag = False,
) -> None:
    """Examine a machine with Open vSwitch: daemons, bridges, controllers, buffers, ports and agent.

    Ends with 1 where there is a fault, and with 2 where nothing could be examined.
    """
    report("switch", examine(CHECKS, gather(bridge or [], str(attach))), as_json)


def gather(bridges: list[str], attach: str) -> SwitchFacts:
    """Observe this machine. Raises `InputError` for a bridge that there is not."""
    database, agent = observe(read_database), read_agent(attach, "--attach")
    if not isinstance(database, Unseen) and bridges:
        known = {one.name: one for one in database.bridges}
        for name in bridges:
            if name not in known:
                raise InputError("--bridge", name, nearest(name, known) if known else "no bridge, as there is none")
        database = replace(database, bridges=tuple(known[name] for name in dict.fromkeys(bridges)))
    return SwitchFacts(
        observe(version),
        observe(daemon_version),
        database,
        packet_buffers(),
        observe(lambda: {one.name: one for one in read_interfaces(_ports(seen(database)))}),
        () if isinstance(database, Unseen) else _certificates(database),
        read_kernel(agent),
        agent,
        own_namespaces(),
        time.time(),
    )


def judge_version(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether Open vSwitch is there, in a version that was tested."""
    if isinstance(facts.version, Unseen):
        yield fault(facts.version.reason, "apt-get install openvswitch-switch")
        return
    match = re.match(r"(\d+)\.(\d+)", facts.version)
    if match and (int(match[1]), int(match[2])) < TESTED:
        yield warning(f"Open vSwitch {facts.version} is older than what was tested", "take Open vSwitch 3.1 or newer")
    else:
        yield ok(f"Open vSwitch {facts.version}")


def judge_daemons(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether the database is served and the switch's daemon runs."""
    if isinstance(facts.database, Unseen):
        yield fault(f"ovsdb-server does not answer ({facts.database.reason})", _START)
    if isinstance(facts.daemon, Unseen):
        yield fault(f"ovs-vswitchd does not answer ({facts.daemon.reason})", _START)
    else:
        yield ok(f"{facts.daemon} runs")


def judge_bridges(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether there are bridges, with ports that work."""
    if not facts.bridges:
        yield fault("there is no bridge", "make one: docs/switches/open-vswitch.md, Connect a bridge")
    for one in facts.bridges:
        for port, why in one.broken:
            fix = f"fix that, or take it off: ovs-vsctl del-port {one.name} {port}"
            yield fault(f"port {port} of {one.name} does not work: {why}", fix)
        if not one.ports:
            yield fault(
                f"{one.name} has no ports",
                f"ovs-vsctl add-port {one.name} INTERFACE -- set interface INTERFACE ofport_request=N",
            )
        else:
            yield ok(f"{one.name} has {len(one.ports)} ports")


def judge_datapath_ids(one: BridgeFacts) -> Finding:
    """Return whether a bridge's datapath id stays as it is."""
    fix = f"ovs-vsctl set bridge {one.name} other-config:datapath-id=ID, with the 16 digits of the network's file"
    if not one.is_id_set:
        return warning(f"{one.name} has the datapath id {one.datapath_id} of its Ethernet address, which may change", fix)
    return ok(f"{one.name} has {one.datapath_id}; compare it with the network's file")


def judge_datapath(one: BridgeFacts) -> Finding:
    """Return whether a bridge has the datapath that was tested."""
    if one.datapath_type == USERSPACE:
        return ok(f"{one.name} has the userspace datapath")
    found = f"{one.name} has the datapath {one.datapath_type or 'system'!r}, which was not tried with Beamer"
    return warning(found, f"ovs-vsctl set bridge {one.name} datapath_type={USERSPACE}, for the one that was tested")


def judge_fail_mode(one: BridgeFacts) -> Finding:
    """Return whether a bridge forwards by Beamer's rules alone."""
    if one.fail_mode == "secure":
        return ok(f"{one.name} is secure")
    found = f"{one.name} is {one.fail_mode or 'standalone'}: without a controller it forwards as a learning switch, in loops"
    return fault(found, f"ovs-vsctl set-fail-mode {one.name} secure")


def judge_protocols(one: BridgeFacts) -> Finding:
    """Return whether a bridge speaks OpenFlow 1.3."""
    if one.protocols and _PROTOCOL not in one.protocols:
        found = f"{one.name} speaks {', '.join(sorted(one.protocols))} only"
        return fault(found, f"ovs-vsctl set bridge {one.name} protocols={_PROTOCOL}")
    return ok(f"{one.name} speaks {_PROTOCOL}{'' if one.protocols else ', as by default'}")


def judge_controllers(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether each bridge is connected to its controllers."""
    for one in facts.bridges:
        if not one.controllers:
            out_of_band = f"set controller {one.name} connection-mode=out-of-band"
            fix = f"ovs-vsctl set-controller {one.name} ssl:CONTROLLER:6653 -- {out_of_band}"
            yield fault(f"{one.name} has no controller", fix)
        for target in one.controllers:
            if target.is_connected:
                yield ok(f"{one.name} is connected to {target.target}")
            else:
                fix = f"start beamer-controller there, or correct it: ovs-vsctl set-controller {one.name} ssl:CONTROLLER:6653"
                problem = f" ({target.problem})" if target.problem else ""
                yield fault(f"{one.name} is not connected to {target.target}{problem}; the controller's log may say why", fix)
            if target.mode != "out-of-band":
                found = f"{one.name} reaches {target.target} in-band: rules of Open vSwitch's own stand before Beamer's"
                yield warning(found, f"ovs-vsctl set controller {one.name} connection-mode=out-of-band")


def judge_tls(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether the certificate of TLS is set, valid, and for one bridge."""
    secured = [one.name for one in facts.bridges if any(each.target.startswith(_TLS) for each in one.controllers)]
    if not secured:
        yield ok("no bridge uses TLS")
        return
    if seen(facts.database).certificate is None:
        fix = "ovs-vsctl set-ssl switch-NAME-key.pem switch-NAME.pem ca.pem, with the files of beamer certs"
        yield fault(f"{', '.join(secured)} use TLS, and no certificate is set", fix)
    if len(secured) > 1:
        fix = "run one Open vSwitch per bridge, or use tcp: on a network that nobody else reaches"
        yield fault(f"{', '.join(secured)} show one certificate, which is for one datapath id", fix)
    yield from judge_certificates(facts.certificates, datetime.fromtimestamp(facts.now, UTC))


def judge_buffers(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether a userspace datapath can hold what waits in queues."""
    if not any(one.datapath_type == USERSPACE for one in facts.bridges):
        yield ok("no bridge has a userspace datapath")
        return
    buffers = seen(facts.buffers)
    least = min(buffers.send, buffers.receive)
    if least < BUFFER_BYTES:
        found = f"ovs-vswitchd sends through buffers of {least} bytes: packets of every class are lost before their queues"
        sysctl = f"sysctl -w net.core.wmem_default={BUFFER_BYTES} net.core.rmem_default={BUFFER_BYTES}"
        yield fault(found, f"{sysctl} && systemctl restart openvswitch-switch")
    else:
        yield ok(f"ovs-vswitchd has buffers of {least} bytes")


def judge_switch_agent(facts: SwitchFacts) -> Iterator[Finding]:
    """Yield whether an agent makes the queues of the ports."""
    for one in judge_agent(facts.agent):
        if one.verdict is CheckVerdict.FAULT:
            fix = f"{one.fix}; leave it where the network's file has no agent for this switch"
            yield warning(f"{one.found}, so that no agent makes queues here", fix)
        else:
            yield one
    if not facts.agent.failure:
        yield from judge_network_namespace(facts.agent, facts.own, is_host_here=False)


def _each(judge: Callable[[BridgeFacts], Finding]) -> Check[SwitchFacts]:
    return lambda facts: [judge(one) for one in facts.bridges]


def _of_ports(judge: Check[list[InterfaceFacts]], only_userspace: bool = False) -> Check[SwitchFacts]:
    def judged(facts: SwitchFacts) -> Iterator[Finding]:
        chosen = [one for one in facts.bridges if not only_userspace or one.datapath_type == USERSPACE]
        if not any(one.ports for one in chosen):
            yield not_checked("no bridge has ports that it could be seen at")
        for one in chosen:
            yield from judge(facts.ports(one))

    return judged


CHECKS: Mapping[str, Check[SwitchFacts]] = {
    "Open vSwitch": judge_version,
    "daemons": judge_daemons,
    "bridges": judge_bridges,
    "datapath id": _each(judge_datapath_ids),
    "datapath": _each(judge_datapath),
    "fail mode": _each(judge_fail_mode),
    "protocols": _each(judge_protocols),
    "controllers": judge_controllers,
    "TLS": judge_tls,
    "buffers": judge_buffers,
    "MTU": _of_ports(judge_equal_mtu),
    "root qdisc": _of_ports(judge_roots),
    "offloads": _of_ports(judge_port_offloads, only_userspace=True),
    "queue length": _of_ports(judge_lengths),
    "kernel": lambda facts: judge_release(facts.kernel),
    "queues": lambda facts: judge_queues(facts.kernel),
    "classifier": lambda facts: judge_classifier(facts.kernel),
    "capabilities": lambda facts: judge_capabilities(facts.kernel),
    "agent": judge_switch_agent,
}
"""What is examined on a machine with switches, by the name that its findings have."""


def _ports(database: SwitchDatabase) -> list[str]:
    return [port for bridge in database.bridges for port in bridge.ports]


def _certificates(database: SwitchDatabase) -> tuple[CertificateFile, ...]:
    return (
        *read_certificates("set-ssl", database.certificate),
        *read_certificates("set-ssl", database.authority, signs=True),
    )
