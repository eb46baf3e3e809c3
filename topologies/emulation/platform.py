"""What the machine must have before anything is made: root and the programs that an emulated network needs.

Run as a program it prints the Debian packages that are missing.
"""

import os
import shutil
import subprocess
from pathlib import Path

from beamer.errors import InputError, PlatformError

_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

PROGRAMS = {
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-common",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-common",
    "ovs-appctl": "openvswitch-common",
    "mnexec": "mininet",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "ethtool": "ethtool",
    "sysctl": "procps",
    "nsenter": "util-linux",
}


def require_root() -> None:
    """Return if this process may make and remove network namespaces. Raises `PlatformError`."""
    if os.geteuid() != 0:
        raise PlatformError("emulation needs root", "run it with sudo, or use `beamer simulate` with the same scenario")


def require() -> None:
    """Return if an emulation can run here. Raises `PlatformError` naming what is missing."""
    require_root()
    if missing := _missing():
        raise PlatformError(f"not found: {', '.join(missing)}", f"install them with `apt-get install {_packages(missing)}`")
    listed = subprocess.run(("nft", "list", "tables"), capture_output=True, text=True)
    if listed.returncode:
        raise PlatformError(
            f"nft lists no tables ({listed.stderr.strip()})",
            "load nf_tables, by which host agents tell acknowledgements from data",
        )


def require_congestion_control(name: str) -> None:
    """Return if this kernel has a congestion control. Raises `InputError`."""
    available = _AVAILABLE.read_text().split()
    if name not in available:
        raise InputError("congestion_control", name, f"one that this kernel has: {', '.join(available)}")


def _missing() -> dict[str, str]:
    return {program: package for program, package in PROGRAMS.items() if shutil.which(program) is None}


def _packages(missing: dict[str, str]) -> str:
    return " ".join(sorted(set(missing.values())))


if __name__ == "__main__":
    print(_packages(_missing()))
