"""Finds a network: it listens for switches and agents, sends probes, and ends once nothing more is found. It leads nothing."""

import asyncio
import signal
import socket
import time
from dataclasses import dataclass

import structlog

from beamer.network.discovery import SeenNetwork, probed_addresses
from controller.agents.finder import AgentFinder
from controller.http.authorization import Authorization
from controller.http.discovery import discovery_app
from controller.http.server import http_server
from controller.identity.credentials import Credentials
from controller.limits import Limits
from controller.openflow.finder import SwitchFinder

ROUND_S = 0.5  # Probes are sent so often.
SWEEPS = 2  # So often every address is asked for at every port, as a packet may be lost.

log = structlog.get_logger("beamer-discovery")


@dataclass(frozen=True)
class DiscoveryOptions:
    """How a network is found."""

    switches: tuple[str, int]
    """Where switches connect."""
    quiet_s: float
    """It ends once nothing more was found for so many seconds."""
    longest_s: float
    """It ends after so many seconds in any case."""
    connections: int
    """The most agents that are connected at once."""
    credentials: Credentials
    """The certificates with which agents and switches are let in."""


@dataclass(frozen=True)
class DiscoverySearch:
    """What was seen of a network. complete: whether nothing more was found for long, and each address was asked for."""

    seen: SeenNetwork
    complete: bool


async def discover(options: DiscoveryOptions, listener: socket.socket) -> DiscoverySearch:
    """Look for a network. listener: where agents connect. Raises `PlatformError` if it cannot listen."""
    searching = asyncio.current_task()
    assert searching is not None
    # Ctrl-C cancels it as well: switches lose their rules either way.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, searching.cancel)
    limits = Limits()
    switches = SwitchFinder(*options.switches, options.credentials.switches)
    agents = AgentFinder(limits)
    await switches.start()
    authorization = Authorization(None, options.credentials.http is not None, time.time)
    server = http_server(discovery_app(agents, authorization), limits, options.connections, options.credentials.http)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        addresses = ["{}:{}".format(*one[:2]) for one in (listener.getsockname(), switches.address)]
        log.info("waiting for agents and switches", http=addresses[0], openflow=addresses[1])
        return await _until_quiet(switches, agents, options)
    finally:
        await switches.stop()
        server.stop()
        await serving


async def _until_quiet(switches: SwitchFinder, agents: AgentFinder, options: DiscoveryOptions) -> DiscoverySearch:
    """Probe until nothing more is found."""
    loop = asyncio.get_running_loop()
    seen, changed_at, ends_at = SeenNetwork(), loop.time(), loop.time() + options.longest_s
    while True:
        addresses = {ip for found in agents.interfaces.values() for one in found for ip in probed_addresses(one)}
        await switches.probe(addresses)
        await asyncio.sleep(ROUND_S)
        answers = {end: dict(found) for end, found in switches.answers.items()}
        before, seen = seen, SeenNetwork(switches.switches, dict(switches.leads_to), answers, dict(agents.interfaces))
        if seen != before:
            changed_at = loop.time()
            counts = {"switches": len(seen.switches), "agents": len(seen.agents), "answering_ports": len(seen.answers)}
            log.info("found", **counts, cables=len(seen.leads_to) // 2)
        asked = switches.sweeps >= SWEEPS or not addresses
        complete = asked and loop.time() - changed_at >= options.quiet_s
        if complete or loop.time() >= ends_at:
            return DiscoverySearch(seen, complete)
