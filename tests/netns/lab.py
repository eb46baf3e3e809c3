"""A private Open vSwitch in a namespace, two leaves, two spines, a host on each leaf, and a driver that it connects to."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyroute2 import netns

from beamer.network.fabric import Fabric
from beamer.testing.fabrics import two_spines
from controller.openflow.reports import NetworkSeen, SwitchEvent, SwitchInstalled
from controller.openflow.rules import JobRules
from controller.openflow.terms import Terms
from tests.support.namespaces import add_namespace, namespace_prefix, remove_abandoned_namespaces
from tests.support.openflow_switch import FixedTerm, leading_driver

PORT = 16653
T = TypeVar("T")
FABRIC = two_spines(hosts_per_leaf=1)
NAMES = {switch.name for switch in FABRIC.switches}


@dataclass
class Lab:
    """The namespaces, and the Open vSwitch in the first of them."""

    prefix: str
    directory: Path

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, **dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"), str(self.directory))}

    def run(self, *command: str, of: str = "") -> str:
        whole = ["ip", "netns", "exec", self.prefix + of, *command]
        return subprocess.run(whole, check=True, env=self.env, text=True, capture_output=True, timeout=20).stdout

    def python(self, host: str, code: str, *args: str) -> "subprocess.Popen[str]":
        command = ["ip", "netns", "exec", self.prefix + host, sys.executable, "-c", code, *args]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def flows(self, switch: str) -> set[str]:
        """Return a switch's rules as text, without what changes by itself."""
        out = self.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch)
        lines = (re.sub(r"(duration|n_packets|n_bytes|idle_age)=[^,]*, ", "", line).strip() for line in out.splitlines())
        return {line for line in lines if line.startswith("cookie")}

    def drive(self, scenario: Callable[[], Coroutine[None, None, T]]) -> T:
        """Run a coroutine in the switches' namespace and return its result."""

        def inside() -> T:
            netns.setns(self.prefix)  # of this thread alone
            return asyncio.run(scenario())

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(inside).result()


@contextmanager
def switches(directory: Path) -> Iterator[Lab]:
    """Bring the switches up, and everything down at the end."""
    remove_abandoned_namespaces()
    lab = Lab(namespace_prefix(), directory)
    with ExitStack() as stack:
        for of in ("", *(host.name for host in FABRIC.hosts)):
            add_namespace(lab.prefix + of)
            stack.callback(subprocess.run, ["ip", "netns", "delete", lab.prefix + of], check=True)
            lab.run("ip", "link", "set", "lo", "up", of=of)
        socket = f"{directory}/db.sock"
        quiet = ["--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off"]
        lab.run("ovsdb-tool", "create", f"{directory}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        for name, command in (
            ("ovsdb-server", ["ovsdb-server", f"{directory}/conf.db", f"--remote=punix:{socket}"]),
            ("ovs-vswitchd", ["ovs-vswitchd", f"unix:{socket}"]),
        ):
            lab.run(*command, *quiet)
            stack.callback(lab.run, "ovs-appctl", "-t", name, "exit")
        _connect(lab, FABRIC)
        yield lab


def _connect(lab: Lab, fabric: Fabric) -> None:
    cables = {tuple(sorted((link.src, link.dst))) for link in fabric.links}
    link_of = {(link.src, link.dst): link for link in fabric.links}
    for a, b in cables:
        ends = [(link_of[a, b], a), (link_of[b, a], b)]
        lab.run("ip", "link", "add", ends[0][0].interface, "type", "veth", "peer", "name", ends[1][0].interface)
        for link, node in ends:
            of = ""
            if host := fabric.host.get(node):
                of = node
                lab.run("ip", "link", "set", link.interface, "netns", lab.prefix + of)
                lab.run("ip", "link", "set", link.interface, "address", host.mac, of=of)
                lab.run("ip", "address", "add", f"{host.ip}/24", "dev", link.interface, of=of)
                lab.run("ethtool", "-K", link.interface, "tx", "off", of=of)
            lab.run("ip", "link", "set", link.interface, "up", of=of)
    for switch in fabric.switches:
        settings = ["datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13"]
        lab.run(
            *("ovs-vsctl", "-t", "20", "add-br", switch.name, "--", "set", "bridge", switch.name, *settings),
            f"other-config:datapath-id={switch.dpid:016x}",
        )
        for link in fabric.links:
            if link.src == switch.name:
                port = ["set", "interface", link.interface, f"ofport_request={link.port}"]
                lab.run("ovs-vsctl", "-t", "20", "add-port", switch.name, link.interface, "--", *port)
        lab.run("ovs-vsctl", "set-controller", switch.name, f"tcp:127.0.0.1:{PORT}")
        lab.run("ovs-vsctl", "set", "controller", switch.name, "connection-mode=out-of-band", "max_backoff=1000")


class Listener:
    """A driver under observation. terms: as of `SwitchDriver.lead`. fabric: what its file says."""

    def __init__(
        self,
        terms: Terms = FixedTerm(),  # noqa: B008  # It has no state.
        fabric: Fabric = FABRIC,
        watches: bool = False,
    ) -> None:
        self.events: list[SwitchEvent] = []
        self.driver = leading_driver(fabric, self.events.append, PORT, terms, watches=watches)

    async def __aenter__(self) -> "Listener":
        await self.driver.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.driver.stop()

    async def install(self, generation: int, *jobs: JobRules) -> dict[str, SwitchInstalled]:
        """Return every switch's acknowledgement of `generation`."""
        self.driver.install(generation, jobs)
        async with asyncio.timeout(30):
            while len(found := self.installed(generation)) < len(NAMES):
                await asyncio.sleep(0.02)
        return found

    def seen(self) -> list[NetworkSeen]:
        return [event for event in self.events if isinstance(event, NetworkSeen)]

    def installed(self, generation: int) -> dict[str, SwitchInstalled]:
        return {e.switch: e for e in self.events if isinstance(e, SwitchInstalled) and e.generation == generation}
