"""Check at start what the kernel lacks, in a network namespace of its own that is removed before anything else begins."""

import ctypes
import os
import threading

from beamer.errors import BeamerError, PlatformError
from beamer.network.protocol import Port
from hostagent.htb import Queues
from hostagent.tree import port_tree

_CLONE_NEWNET = 0x40000000


def check_platform() -> None:
    """Raise `PlatformError` naming what is missing: network namespaces, HTB or u32."""
    found: list[BeamerError] = []

    def probe() -> None:  # in a thread, which alone enters the new namespace and takes it along when it ends
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            found.append(PlatformError(f"no network namespace ({os.strerror(ctypes.get_errno())})", "run with CAP_SYS_ADMIN"))
            return
        queues = Queues()
        try:
            queues.reconcile("lo", port_tree(Port(interface="lo", rate_bps=10**9, classify="dscp"), 1, 0.1, {}))
        except BeamerError as error:
            found.append(error)
        finally:
            queues.close()

    thread = threading.Thread(target=probe)
    thread.start()
    thread.join()
    if found:
        raise found[0]
