"""What a run leaves on the machine, found without the project's own clean-up code."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAMESPACES = Path("/run/netns")
RUNS = Path("/run/beamer")


@dataclass(frozen=True)
class Leftovers:
    """Everything of one run: files by path, network namespaces by inode, processes by id."""

    files: frozenset[str]
    namespaces: frozenset[str]
    processes: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.files or self.processes)


def leftovers(name: str, namespaces: frozenset[str] = frozenset()) -> Leftovers:
    """Find what exists of the run called `name`, and every process in `namespaces`, those that it had, not only its own."""
    own = os.readlink("/proc/self/ns/net")
    marked: set[int] = set()
    inside: dict[int, str] = {}
    for pid in _processes():
        try:
            inside[pid] = os.readlink(f"/proc/{pid}/ns/net")
            if f"BEAMER_RUN={name}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                marked.add(pid)
        except OSError:
            continue
    # A process that has only just been started still is in the machine's own namespace, which is not the run's.
    namespaces |= {inside[pid] for pid in marked} - {own}
    files = {str(path) for path in (RUNS / name, RUNS / f"{name}.json", NAMESPACES / f"beamer-{name}") if path.exists()}
    processes = marked | {pid for pid, namespace in inside.items() if namespace in namespaces}
    return Leftovers(frozenset(files), namespaces, frozenset(processes))


def interfaces() -> set[str]:
    """Return the interfaces of the machine's own namespace."""
    return set(os.listdir("/sys/class/net"))


def launched(name: str) -> int:
    """Return how many launchers and trainers run."""
    count = 0
    for pid in leftovers(name).processes:
        try:
            count += b"topologies.emulation.launcher" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
    return count


def _processes() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
