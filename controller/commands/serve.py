"""`beamer-controller`: one process that takes registrations in, decides, and controls switches and host agents."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from beamer.clock import SteadyClock
from beamer.network.allocation import Classes, check_pair
from beamer.network.fabric import Fabric
from beamer.network.plan import QUEUES, check_queues
from beamer.network.plan_modes import DEFAULT_MODE, PLAN_MODES, PlanMode, plan_mode
from beamer.network.policies import NetworkPolicy, network_policy
from controller.address import listen, parse_address
from controller.commands.fabric_file import read_fabric
from controller.garbage_collection import collect_rarely
from controller.http.api import create_app
from controller.http.server import connections_within, http_server, raise_descriptor_limit
from controller.http.standby import ReplaceableApplication, following
from controller.identity.credentials import Credentials, check_exposure, read_credentials
from controller.journal.leadership import lead
from controller.limits import Limits, read_limits
from controller.liveness.watch import GRACE_S, SILENCE_S, WatchOptions
from controller.openflow.driver import SwitchDriver
from controller.openflow.reports import SwitchEvent
from controller.runtime import Runtime

log = structlog.get_logger("beamer-controller")


def serve(
    fabric: Annotated[Path, typer.Option(help="The network, as written by Fabric.to_dict in JSON or YAML.")],
    journal: Annotated[str, typer.Option(help="Where events are stored: sqlite:////PATH or a PostgreSQL URL.")],
    policy: Annotated[str, typer.Option(help="The network policy.")] = "beamer",
    queues: Annotated[int, typer.Option(help="Managed classes per port.")] = QUEUES,
    mode: Annotated[str, typer.Option(help=f"How the order is kept: {', '.join(PLAN_MODES)}.")] = DEFAULT_MODE,
    http: Annotated[str, typer.Option(help="Address of the HTTP API and of the agents' WebSocket.")] = "127.0.0.1:8265",
    openflow: Annotated[str, typer.Option(help="Address that switches connect to.")] = "127.0.0.1:6653",
    seed: Annotated[int, typer.Option(help="Seed of policies that draw random numbers.")] = 0,
    grace: Annotated[
        float, typer.Option(help="Seconds, above 0, that a worker's process may be gone before its attempt ends.")
    ] = GRACE_S,
    silence: Annotated[
        float, typer.Option(help="Seconds without news of a study, stage or trial before it is left out of account; 0: never.")
    ] = SILENCE_S,
    limits: Annotated[
        Path | None, typer.Option(help="What the controller takes on: a YAML or JSON mapping, see docs/limits.md.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="This controller's certificate, PEM, for HTTP and OpenFlow.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="The authority of agents' and switches' certificates, PEM.")] = None,
    token_key: Annotated[
        Path | None, typer.Option(help="The key of the tokens that HTTP requests need: see beamer token.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on addresses other than loopback without credentials, too.")
    ] = False,
) -> None:
    """Run the controller until it is stopped; what it has installed stays installed."""
    network = read_fabric(fabric)
    chosen = network_policy(policy)
    carried_out = plan_mode(mode)
    check_pair(chosen, Classes(queues=check_queues(queues), plan_mode=carried_out))
    switch_address = parse_address(openflow, "--openflow")
    watch = WatchOptions(grace, silence)
    most = Limits() if limits is None else read_limits(limits)
    credentials = read_credentials(tls_cert, tls_key, tls_ca, token_key)
    if not insecure:
        check_exposure(http, openflow, credentials)
    connections = connections_within(raise_descriptor_limit(), most, len(network.switches) + len(network.agents))
    service = Service(
        network, journal, chosen, queues, carried_out, switch_address, seed, watch, most, connections, credentials
    )
    with listen(http) as listener:
        _log_to_stderr()
        asyncio.run(_serve(service, listener))


@dataclass(frozen=True)
class Service:
    """What a controller is asked to do. connections: of HTTP, at once. The others: as of `serve`."""

    fabric: Fabric
    journal: str
    policy: NetworkPolicy[Any]
    queues: int
    mode: PlanMode
    switch_address: tuple[str, int]
    seed: int
    watch: WatchOptions
    limits: Limits
    connections: int
    credentials: Credentials


async def _serve(service: Service, listener: socket.socket) -> None:
    """Serve until asked to stop: first as a follower where another controller leads.

    Raises `TakenError` where another one has begun to lead.
    """
    served = ReplaceableApplication()
    server = http_server(served, service.limits, service.connections, service.credentials.http)
    decided, stopping = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    leading = asyncio.create_task(_lead(service, served, listener, decided.set))
    await _first(leading, decided, stopping)
    if not (leading.done() or stopping.is_set()):
        serving = asyncio.create_task(server.serve([listener]))
        await _first(leading, stopping)
        server.stop()
        await serving
    leading.cancel()
    with suppress(asyncio.CancelledError):
        await leading
    log.info("stopped, rules and queues stay")


async def _first(task: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Return when a task is done or an event happens."""
    waiting = {asyncio.create_task(event.wait()) for event in events}
    await asyncio.wait({task, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()


async def _lead(service: Service, served: ReplaceableApplication, listener: socket.socket, decided: Callable[[], None]) -> None:
    """Lead as soon as it is possible, until cancelled. Raises `TakenError` where another controller has begun to lead.

    decided: called when it leads, or follows.
    """
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    grace_s, kept = service.watch.grace_s, service.limits.kept
    driver = SwitchDriver(service.fabric, *service.switch_address, tls=service.credentials.switches)
    await driver.start()  # so that switches are connected, and wait, when the journal has been read
    try:
        led = await lead(service.journal, service.fabric, grace_s, kept, decided)
    except BaseException:
        await driver.stop()
        raise

    def drive(on_event: Callable[[SwitchEvent], None]) -> SwitchDriver:
        driver.lead(on_event, led.journal.term)
        return driver

    runtime = Runtime(
        service.fabric,
        led.journal,
        service.policy,
        service.queues,
        drive,
        service.seed,
        SteadyClock(),
        service.watch,
        service.mode,
        service.limits,
        recovered=led.recovered,
        on_taken=lambda error: None if lost.done() else lost.set_exception(error),
    )
    try:
        collect_rarely()
        await runtime.start()
        served.application = create_app(runtime, service.credentials)
        address = "{}:{}".format(*listener.getsockname()[:2])
        log.info("serving", http=address, openflow="{}:{}".format(*service.switch_address), term=led.journal.term)
        decided()
        await lost
    finally:
        served.application = following
        await runtime.stop()


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
