"""`beamer-controller`: one process that takes registrations in, decides, and controls switches and host agents."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
import yaml

from beamer.clock import SteadyClock
from beamer.errors import InputError
from beamer.network.allocation import Classes, check_pair
from beamer.network.fabric import Fabric
from beamer.network.plan import QUEUES, check_queues
from beamer.network.plan_modes import DEFAULT_MODE, PLAN_MODES, PlanMode, plan_mode
from beamer.network.policies import NetworkPolicy, network_policy
from beamer.studies.journal.store import Journal
from controller.address import listen, parse_address
from controller.api import create_app
from controller.http_server import connections_within, http_server, raise_descriptor_limit
from controller.limits import Limits, read_limits
from controller.openflow.driver import SwitchDriver
from controller.openflow.reports import SwitchEvent
from controller.runtime import Runtime
from controller.watch import GRACE_S, SILENCE_S, WatchOptions

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
) -> None:
    """Run the controller until it is stopped; what it has installed stays installed."""
    network = read_fabric(fabric)
    chosen = network_policy(policy)
    carried_out = plan_mode(mode)
    check_pair(chosen, Classes(queues=check_queues(queues), plan_mode=carried_out))
    switch_address = parse_address(openflow, "openflow")
    watch = WatchOptions(grace, silence)
    most = Limits() if limits is None else read_limits(limits)
    connections = connections_within(raise_descriptor_limit(), most, len(network.switches) + len(network.agents))
    with listen(http) as listener:
        opened = Journal(journal)
        _log_to_stderr()
        asyncio.run(
            _serve(network, opened, chosen, queues, carried_out, listener, switch_address, seed, watch, most, connections)
        )


def read_fabric(path: Path) -> Fabric:
    """Read a fabric from a JSON or YAML file. Raises `InputError`."""
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("fabric", str(path), f"a readable file ({error})") from error
    except yaml.YAMLError as error:
        raise InputError("fabric", str(path), f"valid JSON or YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise InputError("fabric", str(path), "a mapping with name, hosts, switches and links")
    return Fabric.from_dict(data)


async def _serve(
    fabric: Fabric,
    journal: Journal,
    policy: NetworkPolicy[Any],
    queues: int,
    mode: PlanMode,
    listener: socket.socket,
    switch_address: tuple[str, int],
    seed: int,
    watch: WatchOptions,
    limits: Limits,
    connections: int,
) -> None:
    def drive(on_event: Callable[[SwitchEvent], None]) -> SwitchDriver:
        return SwitchDriver(fabric, *switch_address, on_event)

    runtime = Runtime(fabric, journal, policy, queues, drive, seed, SteadyClock(), watch, mode, limits)
    server = http_server(create_app(runtime), limits, connections)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    try:
        await runtime.start()
        log.info("serving", http="{}:{}".format(*listener.getsockname()[:2]), openflow="{}:{}".format(*switch_address))
        await server.serve([listener])
    finally:
        await runtime.stop()
    log.info("stopped, rules and queues stay")


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
