"""A private Open vSwitch: its own database and daemon in the run's namespace and directory, the machine's own left alone."""

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from hostagent.marks.socket_marks import borrow, socket_descriptors
from topologies.emulation.priority import SWITCHES_NICE, prefer_session
from topologies.emulation.tools import run

CONNECTED_PATIENCE_S = 60
BUFFER_BYTES = 512 * 2**20
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

# For every read of a port the daemon takes 32 packet buffers and gives the unused ones back. That is cheap if they are kept at
# hand. Given back to the kernel each time, they would cost more in page faults than the forwarding does.
_ALLOCATOR = {
    "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=268435456:glibc.malloc.tcache_max=16384:glibc.malloc.tcache_count=256"
}


def environment(directory: Path) -> dict[str, str]:
    """Return the variables that point every Open vSwitch tool at the instance in `directory`."""
    return {key: str(directory) for key in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")}


def start(directory: Path) -> int:
    """Start the database and the switch daemon in the current network namespace; return the daemon's process id."""
    directory.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **environment(directory), **_ALLOCATOR}
    database, socket = directory / "conf.db", f"{directory}/db.sock"
    quiet = ["--detach", "--no-chdir", "--log-file", "--pidfile", "-vconsole:off"]
    for command in (
        ["ovsdb-tool", "create", str(database), str(SCHEMA)],
        ["ovsdb-server", str(database), f"--remote=punix:{socket}", *quiet],
        ["ovs-vsctl", "--no-wait", "init"],
        ["ovs-vswitchd", f"unix:{socket}", *quiet],
    ):
        run(*command, env=env)
    pid = int((directory / "ovs-vswitchd.pid").read_text())
    # A switch has hardware of its own; this one must not wait for the processes of the hosts that it connects.
    os.setpriority(os.PRIO_PROCESS, pid, SWITCHES_NICE)
    prefer_session(pid, SWITCHES_NICE)
    return pid


def set_controllers(switch: str, targets: Sequence[str]) -> list[str]:
    """Return the command that points a switch at controllers."""
    # A switch's name stands for its controller's row only where it has a single one, hence the labels.
    rows = [f"@c{number}" for number in range(len(targets))]
    command = ["ovs-vsctl"]
    for row, target in zip(rows, targets, strict=True):
        command += ["--", f"--id={row}", "create", "controller", f'target="{target}"', "connection-mode=out-of-band"]
    return [*command, "--", "set", "bridge", switch, f"controller={','.join(rows)}"]


def shorten_pauses(switch: str) -> None:
    """Have a switch pause for a second at most before it tries a lost controller again, instead of up to 8 s.

    Waits until it is connected to all of them: Open vSwitch 3.1 takes `max_backoff` over for connections that exist, and keeps
    it for those that follow. Raises `EmulationError`.
    """
    for row in re.findall(r"[0-9a-f-]{36}", run("ovs-vsctl", "get", "bridge", switch, "controller")):
        wait = ("ovs-vsctl", "-t", f"{CONNECTED_PATIENCE_S}", "wait-until", "controller", row, "is_connected=true")
        run(*wait, "--", "set", "controller", row, "max_backoff=1000")


def enlarge_buffers(pid: int) -> int:
    """Enlarge the buffers of the switch daemon's packet sockets to what its ports' queues may hold; return how many there are.

    It sends through one socket for all ports, whose default send buffer is full when a dozen packets wait in any queues: the
    next one, of whatever class, would be lost before its queue and not counted. The receive buffers of its ports
    overflow when its thread is away for 40 ms. The defaults are the machine's and read-only in a namespace, so the sockets
    are set from outside.
    """
    sockets = 0
    for inode, descriptor in socket_descriptors(pid).items():
        borrowed = borrow(pid, descriptor, inode)
        if borrowed is None:
            continue
        with borrowed:
            if borrowed.family == socket.AF_PACKET:
                borrowed.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, BUFFER_BYTES)
                borrowed.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
                sockets += 1
    return sockets
