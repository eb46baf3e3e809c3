"""`beamer doctor host`: what would keep an agent from working on a host."""

import os
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from beamer.client.credentials import CA_VARIABLE
from beamer.client.urls import URL, URL_VARIABLE
from beamer.doctor.agent_socket import (
    AgentSocket,
    Namespaces,
    judge_agent,
    judge_network_namespace,
    judge_pid_namespace,
    own_namespaces,
    read_agent,
)
from beamer.doctor.certificates import CertificateFile, judge_certificates, read_certificates
from beamer.doctor.contact import ANY_STUDY, Contact, ask_leader, judge_clock, judge_reach, known_hosts, make_contact
from beamer.doctor.findings import Check, Finding, Unseen, examine, fault, observe, ok, seen
from beamer.doctor.report import report
from beamer.errors import InputError
from beamer.inspect.options import JsonFlag, UrlOption
from beamer.network.addresses import is_ipv6
from beamer.studies.model import check_identifier
from hostagent.command import DEFAULT_ATTACH, DEFAULT_STATE
from hostagent.doctor.composition import CompositionFacts, judge_composition, read_composition
from hostagent.doctor.interfaces import (
    InterfaceFacts,
    interfaces_with,
    judge_host_offloads,
    judge_lengths,
    judge_roots,
    read_interfaces,
)
from hostagent.doctor.joining import Joining, judge_joining, try_to_join
from hostagent.doctor.kernel import (
    KernelFacts,
    judge_capabilities,
    judge_nftables,
    judge_queues,
    judge_release,
    read_kernel,
)
from hostagent.doctor.options import AttachOption
from hostagent.doctor.path_mtu import PathMtu, judge_path, measure
from hostagent.link.tls import client_context

NameOption = Annotated[str | None, typer.Option(help="The agent's name, as beamer-hostagent is given it.")]
StateOption = Annotated[Path, typer.Option(help="Where agents record what is theirs.")]
CaOption = Annotated[Path | None, typer.Option(help=f"As beamer-hostagent is given it.  [default: {CA_VARIABLE}]")]
CertOption = Annotated[Path | None, typer.Option(help="The agent's certificate, PEM.")]
KeyOption = Annotated[Path | None, typer.Option(help="The certificate's key, PEM, unless it is in the same file.")]
InterfaceOption = Annotated[
    list[str] | None,
    typer.Option(help="Whose queues the agent makes.  [default: the agent's, or those with an address of a host]"),
]
PeerOption = Annotated[
    str | None, typer.Option(help="The data address of another host, to which packets are sent.  [default: one of the network]")
]


@dataclass(frozen=True)
class Identity:
    """Who an agent says that it is. refused: why its files cannot be used, None where they can."""

    name: str | None
    files: tuple[CertificateFile, ...]
    refused: InputError | None
    tls: ssl.SSLContext | None


@dataclass(frozen=True)
class HostFacts:
    """What was observed on a host. now: Unix time."""

    agent: AgentSocket
    own: Namespaces
    kernel: KernelFacts
    interfaces: tuple[InterfaceFacts, ...] | Unseen
    composition: CompositionFacts | Unseen
    path: PathMtu | Unseen
    contact: Contact
    joining: Joining | Unseen
    identity: Identity
    now: float


def host(
    name: NameOption = None,
    url: UrlOption = None,
    interface: InterfaceOption = None,
    peer: PeerOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    attach: AttachOption = DEFAULT_ATTACH,
    state_dir: StateOption = DEFAULT_STATE,
    as_json: JsonFlag = False,
) -> None:
    """Examine a host: kernel, interfaces, path to other hosts, agent, certificates and controller.

    Give it the options of its beamer-hostagent. Ends with 1 where there is a fault, with 2 where nothing could be examined.
    """
    if name is not None:
        check_identifier(name, "--name")
    identity = read_identity(name, ca, cert, key, os.environ)
    facts = gather(identity, url, interface or (), peer, ca, str(attach), state_dir, os.environ)
    report("host", examine(CHECKS, facts), as_json)


def read_identity(
    name: str | None, ca: Path | None, cert: Path | None, key: Path | None, environment: Mapping[str, str]
) -> Identity:
    """Return who an agent is by the files that it is given."""
    authority = ca or (Path(named) if (named := environment.get(CA_VARIABLE)) else None)
    files = (*read_certificates("--ca", authority, signs=True), *read_certificates("--cert", cert))
    try:
        return Identity(name, files, None, client_context(authority, cert, key))
    except InputError as error:
        return Identity(name, files, error, None)


def gather(
    identity: Identity,
    url: str | None,
    interfaces: Sequence[str],
    peer: str | None,
    ca: Path | None,
    attach: str,
    state_dir: Path,
    environment: Mapping[str, str],
) -> HostFacts:
    """Observe this machine and what it reaches."""
    agent = read_agent(attach, "--attach")
    contact = make_contact(_http(url or environment.get(URL_VARIABLE) or URL), environment, None if ca is None else str(ca))
    hosts = _hosts(contact)
    names = observe(lambda: interfaces or _recorded(state_dir, identity.name) or _of_network(hosts))
    found = names if isinstance(names, Unseen) else observe(lambda: read_interfaces(names))
    return HostFacts(
        agent,
        own_namespaces(),
        read_kernel(agent),
        found,
        names if isinstance(names, Unseen) else observe(lambda: read_composition(names, _addresses(hosts))),
        found if isinstance(found, Unseen) else _measured(found, peer, hosts),
        contact,
        _joined(identity, contact),
        identity,
        time.time(),
    )


def judge_identity(facts: HostFacts) -> Iterator[Finding]:
    """Yield whether the agent's certificate, its key and the authority can be used, and for how long."""
    if facts.identity.refused is not None:
        error = facts.identity.refused
        yield fault(f"{error.field}: got {error.value!r}", f"give {error.expected}")
    yield from judge_certificates(facts.identity.files, datetime.fromtimestamp(facts.now, UTC))
    if not facts.identity.files:
        yield ok("none is given: the system's authorities are trusted, and the agent shows no certificate")


CHECKS: Mapping[str, Check[HostFacts]] = {
    "kernel": lambda facts: judge_release(facts.kernel),
    "queues": lambda facts: judge_queues(facts.kernel),
    "nftables": lambda facts: judge_nftables(facts.kernel),
    "capabilities": lambda facts: judge_capabilities(facts.kernel),
    "composition": lambda facts: judge_composition(facts.composition),
    "root qdisc": lambda facts: judge_roots(seen(facts.interfaces)),
    "offloads": lambda facts: judge_host_offloads(seen(facts.interfaces)),
    "queue length": lambda facts: judge_lengths(seen(facts.interfaces)),
    "path": lambda facts: judge_path(seen(facts.path)),
    "controller": lambda facts: judge_reach(facts.contact),
    "clock": lambda facts: judge_clock(facts.contact),
    "certificates": judge_identity,
    "name": lambda facts: judge_joining(seen(facts.joining)),
    "agent": lambda facts: judge_agent(facts.agent),
    "process namespace": lambda facts: judge_pid_namespace(facts.agent, facts.own),
    "network namespace": lambda facts: judge_network_namespace(facts.agent, facts.own, is_host_here=False),
}
"""What is examined on a host, by the name that its findings have."""


def _http(urls: str) -> str:
    """Return controllers' URLs as the HTTP API has them, also where they are given as an agent has them."""
    schemes = {"ws": "http", "wss": "https"}
    parts = [one.strip().partition("://") for one in urls.split(",")]
    return ",".join(f"{schemes.get(scheme, scheme)}{mark}{rest}" for scheme, mark, rest in parts)


def _hosts(contact: Contact) -> Mapping[str, str] | Unseen:
    answer = ask_leader(contact, f"/v1/studies/{ANY_STUDY}/hosts")
    return answer if isinstance(answer, Unseen) else known_hosts(answer)


def _addresses(hosts: Mapping[str, str] | Unseen) -> tuple[str, ...]:
    return () if isinstance(hosts, Unseen) else tuple(hosts.values())


def _recorded(state_dir: Path, name: str | None) -> tuple[str, ...]:
    """Return the interfaces that an agent has recorded as its own."""
    try:
        return () if name is None else tuple((state_dir / name / "interfaces").read_text().split())
    except OSError:
        return ()


def _of_network(hosts: Mapping[str, str] | Unseen) -> tuple[str, ...]:
    """Return the interfaces that have an address of one of the network's hosts. Raises `InputError` where none has."""
    if isinstance(hosts, Unseen):
        raise InputError("--interface", None, f"the name of the data interface, as it cannot be found ({hosts.reason})")
    if not (found := interfaces_with(tuple(hosts.values()))):
        raise InputError("--interface", None, "the name of the data interface, as none has an address of the network's hosts")
    return found


def _measured(found: Sequence[InterfaceFacts], peer: str | None, hosts: Mapping[str, str] | Unseen) -> PathMtu | Unseen:
    first = next((one for one in found if one.root), None)
    if first is None:
        return Unseen("there is no interface to send from")
    if peer is None:
        if isinstance(hosts, Unseen):
            return Unseen(f"no other host is known ({hosts.reason}); name one with --peer")
        own = [address for address in hosts.values() if first.name in interfaces_with((address,))]
        others = [address for address in hosts.values() if address not in own]
        if not others:
            return Unseen("the network has no other host; name one with --peer")
        peer = next((address for address in others if not is_ipv6(address)), others[0])
    if is_ipv6(peer):
        return Unseen(f"no path over IPv6 is measured, as to {peer}; name an IPv4 address with --peer, or compare the MTUs")
    chosen = peer
    return observe(lambda: measure(chosen, first.name, first.mtu))


def _joined(identity: Identity, contact: Contact) -> Joining | Unseen:
    leader = contact.leader
    if isinstance(leader, Unseen):
        return leader
    if identity.name is None:
        return Unseen("the agent's name is not given by --name")
    if identity.refused is not None:
        return Unseen("the agent's certificate cannot be used")
    return try_to_join(identity.name, leader.url, identity.tls)
