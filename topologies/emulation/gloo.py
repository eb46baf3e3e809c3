"""What gloo, PyTorch's collectives over TCP, must be told in an emulated host, and how a process that used it ends."""

import fcntl
import os
import socket
import struct
import sys
from typing import NoReturn

_SIOCGIFADDR = 0x8915  # netdevice(7)


def interface_towards(address: str) -> str:
    """Return the name of the interface from whose address this host reaches another, or itself. Raises `OSError`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # This sends nothing.
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # The interface has no address.
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    raise OSError(f"no interface has the address {own}, from which {address} is reached")


def group_rank(rank: int, world: int) -> int:
    """Return a rank's number in the process group, in which rank 0 is the first and the others count backwards.

    gloo's ring sends to the rank before; the rings of `beamer.network.collectives` send to the next one.
    """
    return -rank % world


def leave() -> NoReturn:
    """End this process without finalizing the interpreter, for trainers that use PyTorch's DDP.

    DDP never lets go of the process group (PyTorch 2.13), so that its threads still run when the interpreter is finalized. One
    that then releases its last result asks for the interpreter's lock, and the process is aborted although its work is done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
