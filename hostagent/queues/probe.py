"""Check at start that queues can be managed here: allowed, and known to the kernel. Nothing is changed to find out.

The u32 classifier, which ports classified by DSCP need, cannot be asked for without a tree to put it in: where it is missing,
the first such port's assignment is answered with that.
"""

from hostagent.queues.htb import Queues


def check_platform() -> None:
    """Raise `PlatformError` naming what is missing: CAP_NET_ADMIN in this network namespace, or HTB."""
    queues = Queues()
    try:
        queues.check()
    finally:
        queues.close()
