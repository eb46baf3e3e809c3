"""The GPUs of this machine for a search: whether those that are declared are there, and what its trials hold on them."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from beamer.engines.local import LocalNode
from beamer.engines.local.supervisor.devices import uses_gpu
from beamer.gpu.engine import Observed
from beamer.nvidia.declared import NO_GPU, check_declared, names_uuid
from beamer.nvidia.inventory import Lack, NoGpus
from beamer.nvidia.nvml import Nvml, open_nvml
from beamer.process_stat import own_namespace, process_stat

INTERVAL_S = 1.0
"""The least time between two looks at what trials hold."""
MAX_SHARE = 0.05
"""Of the time may be spent on looks, as trials wait for decisions meanwhile."""
INITIAL_NAMESPACE = 0xEFFFFFFC
"""Inode number of the machine's own namespace of process ids (PROC_PID_INIT_INO of Linux), which drivers count in."""


@dataclass
class MachineGpus:
    """What is known of this machine's GPUs; by default nothing, as on a machine without any. To be closed."""

    remark: str = ""
    """Why declared GPUs are not checked; "": they are, or nothing says that GPUs of NVIDIA's are meant."""
    nvml: Nvml | None = None
    nodes: Collection[str] = field(default=())
    """The names of the nodes that are of this machine."""

    def held_bytes(self, seen: Mapping[str, Observed]) -> dict[str, int]:
        """Return the bytes that jobs hold on GPUs of this machine, if they hold any. seen: as the engine reports them."""
        if self.nvml is None:
            return {}
        namespace = own_namespace()
        roots = {
            (process.pid, process.start): key
            for key, one in seen.items()
            for node, process in (one.processes or {}).items()
            if node in self.nodes and process.namespace in (0, namespace)
        }
        held: dict[str, int] = {}
        for pid, by_device in self.nvml.held_bytes().items() if roots else ():
            # In a container the driver's id may be another process's there, which has no GPU open.
            if (key := _job_of(pid, roots)) is not None and (namespace == INITIAL_NAMESPACE or uses_gpu([pid])):
                held[key] = held.get(key, 0) + sum(by_device.values())
        return {key: count for key, count in held.items() if count}

    def close(self) -> None:
        """Release the driver."""
        if self.nvml is not None:
            self.nvml.close()
            self.nvml = None


class HeldMemory:
    """The GPU memory that a search's trials hold, as it is seen from time to time."""

    def __init__(self, gpus: MachineGpus) -> None:
        self.most: dict[str, int] = {}
        """The most bytes that each trial was seen to hold, by its key; only trials that held any."""
        self.last: dict[str, int] = {}
        """The bytes that trials held when they were looked at last, by their keys."""
        self._gpus = gpus
        self._due_s = -math.inf

    def look(self, seen: Mapping[str, Observed], clock: Callable[[], float]) -> None:
        """Take in what trials hold, unless that was done just before. seen: as the engine reports them."""
        begun_s = clock()
        if begun_s < self._due_s:
            return
        self.last = self._gpus.held_bytes(seen)
        ended_s = clock()
        self._due_s = ended_s + max(INTERVAL_S, (ended_s - begun_s) / MAX_SHARE)
        for key, count in self.last.items():
            self.most[key] = max(self.most.get(key, 0), count)


def find_gpus(nodes: Sequence[LocalNode], widest: int) -> MachineGpus:
    """Check that the GPUs of nodes that are of this machine are there; where none is known, check nothing.

    widest: the most GPUs that a trial may have. Raises `InputError` for the first node that cannot be served as it is declared.
    """
    here = {index: node for index, node in enumerate(nodes) if node.launcher.direct and _means_gpus(node)}
    nvml = open_nvml() if here else None
    if nvml is None:
        return MachineGpus()
    if isinstance(nvml, NoGpus):
        return _unchecked(nvml, here.values())
    with ExitStack() as stack:
        stack.enter_context(nvml)
        found = nvml.inventory()
        if isinstance(found, NoGpus):
            return _unchecked(found, here.values())
        for index, node in here.items():
            check_declared(f"nodes[{index}]", node.gpus, node.devices, found, widest)
        stack.pop_all()
    return MachineGpus("", nvml, {node.name for node in here.values()})


def _means_gpus(node: LocalNode) -> bool:
    """Return whether a node may have GPUs: all of its slots may be declared to be without one."""
    return node.gpus > 0 and (not node.devices or any(device != NO_GPU for device in node.devices))


def _unchecked(missing: NoGpus, nodes: Collection[LocalNode]) -> MachineGpus:
    """Return that nothing is known, and say so where the nodes or the machine show that GPUs of NVIDIA's are meant."""
    # A machine that lacks these has slots, unless somebody says otherwise.
    slots: tuple[Lack, ...] = (Lack.PACKAGE, Lack.LIBRARY)
    if any(names_uuid(device) for node in nodes for device in node.devices):
        slots = ()
    elif any(node.devices for node in nodes):
        slots = (Lack.PACKAGE,)
    return MachineGpus("" if missing.lack in slots else f"the GPUs of nodes are not checked: {missing.reason}")


def _job_of(pid: int, roots: Mapping[tuple[int, int], str]) -> str | None:
    """Return the job below whose process another one is, None if it is below none."""
    below: set[int] = set()
    while pid > 0 and pid not in below:
        below.add(pid)
        process = process_stat(f"/proc/{pid}/stat")
        if process is None:
            return None
        if (key := roots.get((pid, process.started)) or roots.get((pid, 0))) is not None:
            return key
        pid = process.parent
    return None
