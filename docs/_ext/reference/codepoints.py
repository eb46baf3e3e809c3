"""The codepoints of classes, of each profile."""

from beamer.network.codepoints import PROFILES, Codepoints
from beamer.network.switch_defaults import SWITCH_DEFAULTS, default_order
from reference.tables import table


def page() -> str:
    """Return the page of codepoints."""
    sections = "\n".join(f"## {name}\n\n{_table(profile)}" for name, profile in PROFILES.items())
    return f"""# Codepoints

Host agents mark packets with the DSCP of their class. Switches queue packets by it. Class 0 is served first. All
codepoints are of the pool xxxx11, which RFC 2474 leaves to local use. `beamer-controller --codepoints` takes one of
these profiles: `local` is the default, and needs switches that are configured for it; the others are in the order in
which a switch ranks that goes by the upper three bits. `precedence-roce` leaves precedence 3 to RoCEv2.

Acknowledgements without data have a codepoint of their own between a host and its first switch. One that Beamer controls gives
them class 0.

{sections}
## What switches do by default

By their makers' documents, once they trust DSCP; no switch was tried. A last class of DSCP 7 has the rank of packets without
one. Where the order is not kept, configure the switch.

{table(("switch", *PROFILES, "documented in"), _defaults())}"""


def _defaults() -> list[tuple[str, ...]]:
    found = []
    for default in SWITCH_DEFAULTS:
        verdicts = (default_order(default, profile) for profile in PROFILES.values())
        words = (f"in order, {one.ranks} ranks" if one.keeps_order else f"no: {one.reason}" for one in verdicts)
        found.append((default.name, *words, default.source))
    return found


def _table(profile: Codepoints) -> str:
    rows = [(str(k), str(dscp), f"{dscp:06b}", f"0x{dscp << 2:02x}") for k, dscp in enumerate(profile.classes)]
    own = profile.acknowledgement
    rows.append(("acknowledgements", str(own), f"{own:06b}", f"0x{own << 2:02x}"))
    rows.append(("unregistered traffic", "any other", "", ""))
    return table(("class", "DSCP", "bits", "TOS byte"), rows)
