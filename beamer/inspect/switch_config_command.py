"""`beamer fabric switch-config`: what to tell a switch of a maker, so that it queues by Beamer's codepoints."""

from typing import Annotated

import typer

from beamer.network.codepoints import FOREIGN_PROFILE, PROFILES
from beamer.network.switch_config import SWITCH_VENDORS, switch_config


def switch_config_command(
    vendor: Annotated[str, typer.Option(help=f"What runs on the switch: {', '.join(SWITCH_VENDORS)}.")],
    codepoints: Annotated[
        str, typer.Option(help=f"The profile that beamer-controller is given: {', '.join(PROFILES)}.")
    ] = FOREIGN_PROFILE,
    ports: Annotated[
        str | None,
        typer.Option(help="The switch's ports in its own words, where they are named.  [default: an example of the maker's]"),
    ] = None,
) -> None:
    """Print the configuration by which a switch queues by Beamer's codepoints, for those that speak no OpenFlow.

    No configuration was tried on a switch: each begins with what is not known, and with the documents that it is from.
    """
    print(switch_config(vendor, codepoints, ports), end="")
