"""`beamer fabric discover`: a network's file from what its switches and agents show."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.discovery import discovered
from beamer.output_files import check_outputs
from beamer.ports import HTTP_PORT
from beamer.terminal_text import one_line
from beamer.units import parse_rate
from controller.address import listen, parse_address
from controller.commands.fabric import put_out
from controller.commands.serve import log_to_stderr
from controller.discovery import DiscoveryOptions
from controller.discovery import discover as find
from controller.http.connections import connections_within, raise_descriptor_limit
from controller.identity.credentials import check_encrypted, read_credentials
from controller.limits import Limits

SWITCHES = 256  # For so many, and as many agents, descriptors are kept.
_TLS = "PEM, as beamer-controller has it."


def discover(
    http: Annotated[str, typer.Option(help="Address that agents connect to.")] = f"127.0.0.1:{HTTP_PORT}",
    openflow: Annotated[str, typer.Option(help="Address that switches connect to.")] = "127.0.0.1:6653",
    name: Annotated[str, typer.Option(help="Of the network.")] = "network",
    rate: Annotated[str, typer.Option(help="Of every cable, such as 25gbit.  [default: as switches say of their ports]")] = "",
    quiet: Annotated[float, typer.Option(help="End once nothing more was found for so many seconds.")] = 10.0,
    longest: Annotated[float, typer.Option(help="End after so many seconds in any case.")] = 600.0,
    output: Annotated[Path | None, typer.Option(help="Write the file here.  [default: print it]")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help=f"The controller's certificate, {_TLS}")] = None,
    tls_key: Annotated[Path | None, typer.Option(help=f"The certificate's key, {_TLS}")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help=f"The authority of agents' and switches' certificates, {_TLS}")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on other addresses than loopback without certificates.")
    ] = False,
) -> None:
    """Find a network by its switches and agents, which connect as to a controller, and print its file.

    Switches send LLDP and ARP meanwhile. What was seen and is not in the file is named on stderr. Ends with 1 where --longest
    has ended it.
    """
    switches = parse_address(openflow, "--openflow")
    rate_bps = parse_rate(rate, "--rate") if rate else None
    for option, seconds in (("--quiet", quiet), ("--longest", longest)):
        if not 0 < seconds <= 86_400:
            raise InputError(option, seconds, "seconds above 0, a day at most")
    check_outputs({"--output": output})
    credentials = read_credentials(tls_cert, tls_key, tls_ca, None)
    if not insecure:
        check_encrypted(http, openflow, credentials)
    connections = connections_within(raise_descriptor_limit(), Limits(), SWITCHES)
    with listen(http) as listener:
        log_to_stderr()
        try:
            search = asyncio.run(find(DiscoveryOptions(switches, quiet, longest, connections, credentials), listener))
        except asyncio.CancelledError:
            sys.exit(128 + signal.SIGTERM)
    found = discovered(search.seen, name, rate_bps)
    for text in found.left_out:
        print(f"left out: {one_line(text)}", file=sys.stderr)
    put_out(found.fabric, output)
    if not search.complete:
        print(f"ended by --longest {longest:g}, before nothing more was found: the file may lack something", file=sys.stderr)
        sys.exit(1)
