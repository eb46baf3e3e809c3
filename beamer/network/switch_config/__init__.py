"""How switches are told to queue by Beamer's codepoints: a module per maker, each registered here under its name.

`queue_map` says which DSCP has which queue, the same way for all; a maker's module has its queues and its syntax. Nothing here
was tried on a switch. What a maker's document does not say is said in the configuration.
"""

from collections.abc import Mapping
from types import MappingProxyType

from beamer.errors import InputError, nearest
from beamer.network.switch_config.aos_cx import AOS_CX
from beamer.network.switch_config.cumulus import CUMULUS
from beamer.network.switch_config.eos import EOS
from beamer.network.switch_config.junos import JUNOS
from beamer.network.switch_config.nxos import NXOS
from beamer.network.switch_config.queue_map import queue_map
from beamer.network.switch_config.sonic import SONIC
from beamer.network.switch_config.vendor import SwitchVendor, rendered

SWITCH_VENDORS: Mapping[str, SwitchVendor] = MappingProxyType(
    {
        "aos-cx": AOS_CX,
        "cumulus": CUMULUS,
        "eos": EOS,
        "junos": JUNOS,
        "nxos": NXOS,
        "sonic": SONIC,
    }
)
"""The makers by name."""


def switch_config(vendor: str, profile: str, ports: str | None = None) -> str:
    """Return the configuration by which a maker's switch keeps the order of a profile.

    ports: as the switch names them, the maker's example by default. Raises `InputError` for a maker or a profile that is not
    known, for no ports, and for ports where the configuration names none.
    """
    if vendor not in SWITCH_VENDORS:
        raise InputError("--vendor", vendor, nearest(vendor, SWITCH_VENDORS))
    maker = SWITCH_VENDORS[vendor]
    if ports is not None and not maker.ports:
        raise InputError("--ports", ports, f"none for {vendor}, whose configuration is for all ports")
    if ports is not None and not ports.strip():
        raise InputError("--ports", ports, f"ports as the switch names them, such as {maker.ports}")
    return rendered(maker, queue_map(profile, maker.port), maker.ports if ports is None else ports)
