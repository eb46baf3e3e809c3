"""`beamer-controller`: checks the options, and runs a controller until it is stopped."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer

from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES
from beamer.gpu.policy_settings import gpu_policy_of
from beamer.joint.parts import LIVE, check_live
from beamer.joint.wrapping import network_aware
from beamer.network.allocation import Classes, check_pair
from beamer.network.codepoints import DEFAULT_PROFILE, FOREIGN_PROFILE, PROFILES
from beamer.network.fabric_file import read_fabric
from beamer.network.plan import check_queues
from beamer.network.plan_modes import DEFAULT_MODE, PLAN_MODES, plan_mode
from beamer.network.policies import network_policy
from beamer.ports import HTTP_PORT
from beamer.scenario_options import parse_joint_parts
from beamer.studies.journal.location import check_no_secret
from controller.address import listen, parse_address
from controller.http.connections import connections_within, raise_descriptor_limit
from controller.identity.credentials import check_databases, check_exposure, read_credentials
from controller.limits import Limits, read_limits
from controller.liveness.watch import GRACE_S, SILENCE_S, WatchOptions
from controller.service import NO_OPENFLOW, Service, serve_until_stopped
from controller.settings import ControllerSettings


def serve(
    fabric: Annotated[Path, typer.Option(help="The network, as written by Fabric.to_dict in JSON or YAML.")],
    journal: Annotated[str, typer.Option(help="Where events are stored: sqlite:////PATH or a PostgreSQL URL.")],
    policy: Annotated[str, typer.Option(help="The network policy.")] = "beamer",
    queues: Annotated[
        int | None, typer.Option(help="Managed classes per port.  [default: as many as have a codepoint, 8 at most]")
    ] = None,
    codepoints: Annotated[
        str,
        typer.Option(
            help=f"By which DSCPs hosts and switches tell classes apart: {', '.join(PROFILES)}.  "
            f"[default: {DEFAULT_PROFILE}; with --openflow none: {FOREIGN_PROFILE}]"
        ),
    ] = "",
    mode: Annotated[str, typer.Option(help=f"How the order is kept: {', '.join(PLAN_MODES)}.")] = DEFAULT_MODE,
    http: Annotated[str, typer.Option(help="Address of the HTTP API and of the agents' WebSocket.")] = f"127.0.0.1:{HTTP_PORT}",
    openflow: Annotated[
        str,
        typer.Option(help="Address that switches connect to; none: no switch speaks OpenFlow, agents alone keep the order."),
    ] = "127.0.0.1:6653",
    gpu_policy: Annotated[
        str,
        typer.Option(help=f"Decide which trials have which GPUs by this policy: {', '.join(GPU_POLICIES)}.  [default: none]"),
    ] = "",
    gpu_settings: Annotated[
        list[str], typer.Option("--gpu-set", help="A parameter of that policy, NAME=VALUE; repeatable.")
    ] = [],  # noqa: B006
    joint: Annotated[
        str, typer.Option(help=f"What each level is told of the other, comma-separated: {', '.join(LIVE)}.  [default: nothing]")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of policies that draw random numbers.")] = 0,
    grace: Annotated[
        float, typer.Option(help="Seconds, above 0, that a worker's process may be gone before its attempt ends.")
    ] = GRACE_S,
    silence: Annotated[
        float, typer.Option(help="Seconds without news of a study, stage or trial before it is left out of account; 0: never.")
    ] = SILENCE_S,
    limits: Annotated[
        Path | None, typer.Option(help="What the controller takes on: a YAML or JSON mapping, see docs/operate.md.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="This controller's certificate, PEM, for HTTP and OpenFlow.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="The authority of agents' and switches' certificates, PEM.")] = None,
    token_key: Annotated[
        Path | None, typer.Option(help="The key of the tokens that HTTP requests need: see beamer token.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Listen on other addresses than loopback without credentials: whoever reaches them may do all."
        ),
    ] = False,
) -> None:
    """Run the controller until it is stopped; what it has installed stays installed."""
    check_no_secret(journal, "--journal")
    network = read_fabric(fabric)
    chosen = network_policy(policy)
    carried_out = plan_mode(mode)
    codepoints = codepoints or (FOREIGN_PROFILE if openflow == NO_OPENFLOW else DEFAULT_PROFILE)
    if codepoints not in PROFILES:
        raise InputError("--codepoints", codepoints, nearest(codepoints, PROFILES))
    profile = PROFILES[codepoints]
    classes = check_queues(len(profile.classes) if queues is None else queues)
    profile.check(classes)
    check_pair(chosen, Classes(queues=classes, plan_mode=carried_out))
    switch_address = None if openflow == NO_OPENFLOW else parse_address(openflow, "--openflow")
    if gpu_policy:
        GPU_POLICIES.choose("--gpu-policy", gpu_policy)
    if gpu_settings and not gpu_policy:
        raise InputError("--gpu-set", gpu_settings[0], "--gpu-policy beside it")
    if joint and not gpu_policy:
        raise InputError("--joint", joint, "--gpu-policy beside it")
    parts = check_live("--joint", parse_joint_parts(joint or None))
    decides = gpu_policy_of(gpu_policy, gpu_settings, "--gpu-set") if gpu_policy else None
    if decides is not None:
        decides = network_aware(decides, network, parts)
    most = Limits() if limits is None else read_limits(limits)
    watch = WatchOptions(grace, silence)
    settings = ControllerSettings(network, chosen, classes, carried_out, decides, seed, watch, most, profile)
    credentials = read_credentials(tls_cert, tls_key, tls_ca, token_key)
    check_databases(network, None if switch_address is None else openflow, credentials, insecure)
    if not insecure:
        check_exposure(http, None if switch_address is None else openflow, credentials)
    elements = len(network.switches) + len(network.agents) + len(network.with_databases)
    connections = connections_within(raise_descriptor_limit(), most, elements)
    service = Service(settings, journal, switch_address, connections, credentials)
    with listen(http) as listener:
        log_to_stderr()
        asyncio.run(serve_until_stopped(service, listener))


def log_to_stderr() -> None:
    """Have everything logged to stderr, a line each."""
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
