"""A private Open vSwitch: its own database and daemon in the run's namespace and directory, the machine's own left alone."""

import os
import subprocess
from pathlib import Path

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

# For every read of a port the daemon takes 32 packet buffers and gives the unused ones back: kept at hand, that is cheap; given
# back to the kernel each time, the page faults cost more than the forwarding.
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
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return int((directory / "ovs-vswitchd.pid").read_text())
