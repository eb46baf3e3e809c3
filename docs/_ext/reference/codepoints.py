"""The codepoints of classes."""

from beamer.network.codepoints import ACKNOWLEDGEMENT, CODEPOINTS
from reference.tables import table


def page() -> str:
    """Return the page of codepoints."""
    rows = [(str(k), str(dscp), f"{dscp:06b}", f"0x{dscp << 2:02x}") for k, dscp in enumerate(CODEPOINTS)]
    rows.append(("acknowledgements", str(ACKNOWLEDGEMENT), f"{ACKNOWLEDGEMENT:06b}", f"0x{ACKNOWLEDGEMENT << 2:02x}"))
    rows.append(("unregistered traffic", "any other", "", ""))
    return f"""# Codepoints

Host agents mark packets with the DSCP of their class. Switches queue packets by it. Class 0 is served first. All
codepoints are of the pool xxxx11, which RFC 2474 leaves to local use.

{table(("class", "DSCP", "bits", "TOS byte"), rows)}
Acknowledgements without data have a codepoint of their own between a host and its first switch, which gives them class 0.
"""
