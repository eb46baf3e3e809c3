"""The GPUs of this machine for a search: whether those that are declared are there, and what its trials hold on them."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from beamer.engines.local import LocalNode
from beamer.engines.local.eviction import DeviceMemory
from beamer.engines.local.supervisor.devices import uses_gpu
from beamer.errors import InputError
from beamer.gpu.engine import Observed
from beamer.nvidia.declared import NO_GPU, check_declared, named, names_uuid
from beamer.nvidia.inventory import UNNAMED, Gpu, Inventory, Lack, NoGpus
from beamer.nvidia.nvml import Nvml, open_nvml
from beamer.nvidia.readings import DriverReading, DriverReadings
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
    driver: "_Driver | None" = None
    nodes: Collection[str] = field(default=())
    """The names of the nodes that are of this machine."""
    devices: Collection[str] = field(default=())
    """What their GPUs are called."""

    def held_bytes(self, seen: Mapping[str, Observed]) -> dict[str, int]:
        """Return the bytes that jobs hold on GPUs of this machine, if they hold any. seen: as the engine reports them."""
        if (reading := self._reading()) is None:
            return {}
        namespace = own_namespace()
        roots = {
            (process.pid, process.start): key
            for key, one in seen.items()
            for node, process in (one.processes or {}).items()
            if node in self.nodes and process.namespace in (0, namespace)
        }
        held: dict[str, int] = {}
        for pid, by_device in reading.held.items() if roots else ():
            if (key := _job_of(pid, roots)) is not None and _is_of_here(pid):
                held[key] = held.get(key, 0) + sum(by_device.values())
        return {key: count for key, count in held.items() if count}

    def read(self) -> Mapping[str, DeviceMemory]:
        """Return the memory of every declared GPU that the driver answers for, by what CUDA_VISIBLE_DEVICES calls it."""
        reading = self._reading()
        if reading is None or isinstance(reading.inventory, NoGpus):
            return {}
        found = {}
        for device in self.devices:
            there = named(device, reading.inventory)
            if len(there) == 1 and there[0].total_bytes is not None and there[0].free_bytes is not None:
                of_device = {pid: held[there[0].uuid] for pid, held in reading.held.items() if there[0].uuid in held}
                held_here = {pid: count for pid, count in of_device.items() if _is_of_here(pid)}
                chip = there[0].name if isinstance(there[0], Gpu) and there[0].name != UNNAMED else ""
                found[device] = DeviceMemory(there[0].total_bytes, there[0].free_bytes, held_here, chip)
        return found

    def close(self) -> None:
        """Release the driver."""
        if self.driver is not None:
            self.driver.close()
            self.driver = None

    def _reading(self) -> DriverReading | None:
        return None if self.driver is None else self.driver.readings.fresh()


class _Driver:
    """A session of the driver that one thread asks, and ends."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.readings = DriverReadings(lambda: DriverReading(nvml.inventory(), nvml.held_bytes()))

    def close(self) -> None:
        """End it; one that hangs is left as it is."""
        if self.readings.close():
            self._nvml.close()


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
    found = _find(nodes, widest)
    for index, node in enumerate(nodes):
        known = node.name in found.nodes
        for name, value in (("gpu_memory", node.gpu_memory), ("host_memory", node.host_memory)):
            if value and not known:
                why = found.remark or "the node has no GPU of NVIDIA's, or is another machine"
                raise InputError(f"nodes[{index}].{name}", value, f"0, as what trials hold there is not known: {why}")
    return found


def _find(nodes: Sequence[LocalNode], widest: int) -> MachineGpus:
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
            _check_memory(f"nodes[{index}].gpu_memory", node, found)
        stack.pop_all()
    devices = {node.device(index) for node in here.values() for index in range(node.gpus)} - {NO_GPU}
    return MachineGpus("", _Driver(nvml), {node.name for node in here.values()}, devices)


def _check_memory(field: str, node: LocalNode, found: Inventory) -> None:
    """Check that a node's GPUs have the memory that trials may take. Raises `InputError`."""
    there = [one for index in range(node.gpus) for one in named(node.device(index), found)]
    least = min((one.total_bytes for one in there if one.total_bytes is not None), default=None)
    if node.gpu_memory and least is None:
        raise InputError(field, node.gpu_memory, "0, as the driver does not say what memory its GPUs have")
    if least is not None and node.gpu_memory > least:
        raise InputError(field, node.gpu_memory, f"at most {least}, what its GPU with the least has")


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


def _is_of_here(pid: int) -> bool:
    """Return whether the driver's process id is believed: in a container it may be another process's, with no GPU open."""
    return own_namespace() == INITIAL_NAMESPACE or uses_gpu([pid])


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
