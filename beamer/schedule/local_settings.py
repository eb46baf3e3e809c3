"""The local engine in a search file: its nodes and how they are reached, and what its jobs may have left on them."""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from beamer.engines.local import Launcher, LocalCluster, LocalEngine, LocalNode, MininetHost, NetworkNamespace, Ssh, Subprocess
from beamer.engines.local.leftovers import LeftOnNode, left_of_jobs
from beamer.engines.local.memory_mode import MemoryMode
from beamer.engines.local.record import Record, load
from beamer.engines.local.retire import retire
from beamer.engines.local.supervisor.groups import KINDS
from beamer.errors import InputError, nearest
from beamer.file_numbers import SyncBytes
from beamer.schedule.engine_settings import POLL_INTERVAL_S, EngineSettings, Launch, Left, NodeSettings
from beamer.schedule.machine_gpus import MachineGpus, find_gpus
from beamer.validation import build

REMOTE_POLL_INTERVAL_S = 1.0  # A poll of another machine is an ssh command.
LAUNCHERS: dict[str, type[Launcher]] = {
    "subprocess": Subprocess,
    "mininet": MininetHost,
    "namespace": NetworkNamespace,
    "ssh": Ssh,
}


class _Node(NodeSettings):
    devices: list[str] = Field(default=[])
    """What CUDA_VISIBLE_DEVICES calls its GPUs, in order; by default `0`, `1` and so on.

    An index, the UUID of a GPU or of a MIG slice, or `-1` for a slot without a GPU.
    """
    address: str = "127.0.0.1"
    """The IP address or name at which other nodes reach rank 0."""
    launcher: dict[str, Any] = Field(default={"kind": "subprocess"})
    """How processes are started there: `kind`, one of `subprocess`, `ssh`, `namespace` and `mininet`, and that kind's keys.

    `ssh` has `host` and `options`, `namespace` has `name`, `mininet` has `pid`.
    """
    root: str = ""
    """The directory of jobs there; by default that below `--dir`."""
    python: str = ""
    """The path of the interpreter that has Beamer there; by default that of `beamer schedule`."""

    host_memory: SyncBytes = 0
    """Host memory that suspended jobs' GPU memory may take, in bytes or as `64GiB`; 0: any. What is beyond it is saved."""
    gpu_memory: SyncBytes = 0
    """Memory of each of its GPUs that jobs may take together under `memory: auto`, in bytes or as `16GiB`; 0: all."""

    def made(self, where: str) -> LocalNode:
        kind = self.launcher.get("kind")
        if not isinstance(kind, str) or kind not in LAUNCHERS:
            raise InputError(f"{where}.launcher.kind", kind, nearest(str(kind), LAUNCHERS))
        arguments = {key: value for key, value in self.launcher.items() if key != "kind"}
        launcher = build(LAUNCHERS[kind], arguments, f"{where}.launcher")
        return LocalNode(**{**dict(self), "launcher": launcher, "devices": tuple(self.devices)})


class LocalSettings(EngineSettings):
    """Settings of `LocalEngine`."""

    may_change: ClassVar[tuple[str, ...]] = ("nodes", "group", "prepare", "memory", "keep_memory")
    preloads: ClassVar[bool] = True

    nodes: list[_Node] = Field(min_length=1)  # type: ignore[assignment]  # Nothing is added to them.
    """The nodes, and how each is reached."""
    memory: MemoryMode = MemoryMode.AUTO
    """Where the GPU memory of suspended jobs is: `gpu`, `host`, `none` or `auto`.

    `gpu`: it stays on the GPU. `host`: NVIDIA's driver moves it to host memory, and back. `none`: suspended jobs are saved at
    an iteration boundary, and their processes end. `auto`: it stays while what is to run fits beside it; else it is moved.
    """
    keep_memory: bool | None = Field(default=None, exclude=True)
    """The former name: `true` is `memory: gpu`, `false` is `memory: none`."""
    prepare: bool = True
    """Whether configurations that come next are started ahead, on processors alone, while others have the GPUs.

    They are frozen at their first line of output, or when they open a GPU's device, and go on where they were when it is their
    turn. How many there are at once follows from what processors and memory are idle.
    """
    group: str = "auto"
    """How processes are frozen: `cgroup2`, `signals`, or `auto`, which takes the first of them that can be had."""

    _gpus: MachineGpus = PrivateAttr(default_factory=MachineGpus)
    # As they were found last; until then nothing is known of them.

    @model_validator(mode="before")
    @classmethod
    def _take_former_name(cls, content: Any) -> Any:
        if not isinstance(content, dict) or not isinstance(kept := content.get("keep_memory"), bool):
            return content
        if "memory" in content:
            raise InputError("keep_memory", kept, "no such key beside memory, which has taken its place")
        return {**content, "memory": (MemoryMode.GPU if kept else MemoryMode.NONE).value}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.group not in KINDS:
            raise InputError("group", self.group, nearest(self.group, KINDS))
        for index, node in enumerate(self.nodes):
            if node.gpu_memory and self.memory is not MemoryMode.AUTO:
                expected = f"0 beside memory: {self.memory}, as auto alone keeps to it"
                raise InputError(f"nodes[{index}].gpu_memory", node.gpu_memory, expected)
        _ = self.cluster  # Making it checks the nodes.
        return self

    @cached_property
    def cluster(self) -> LocalCluster:
        """The nodes as the engine takes them."""
        return LocalCluster(tuple(node.made(f"nodes[{i}]") for i, node in enumerate(self.nodes)))

    def open(self, directory: Path, launch: Launch, clock: Callable[[], float]) -> LocalEngine:
        """Return the engine."""
        return LocalEngine(self.cluster, directory, launch, self.memory, self.group, clock, self.prepare, self._gpus)

    @property
    def poll_interval_s(self) -> float:
        """Longer where a node is another machine."""
        return POLL_INTERVAL_S if self.programs_here else REMOTE_POLL_INTERVAL_S

    @property
    def programs_here(self) -> bool:
        """Whether no node is reached by ssh."""
        return all(node.launcher.direct for node in self.cluster.nodes)

    def find_gpus(self, widest: int) -> MachineGpus:
        """Check the nodes that are of this machine."""
        self._gpus = find_gpus(self.cluster.nodes, widest)
        return self._gpus

    def check_records(self, directory: Path, before: Self) -> None:
        """Check that supervisors, which outlive the engine, are found where they were. Raises `InputError`."""
        for record in _records(directory):
            _check_nodes(record, self.cluster, before.cluster)

    def left(self, directory: Path, jobs: Collection[str] | None = None, *, kill: bool = False, here: bool = False) -> Left:
        """Return the supervisors and ranks of jobs that are left, by node."""
        return _lines(left_of_jobs(self.cluster, directory, lambda job: jobs is None or job in jobs, kill, here))

    def retire(self, directory: Path, kill: bool = False) -> Left:
        """End the supervisors of jobs, and return what is left by node."""
        return _lines(retire(self.cluster, directory, kill))


def _lines(left: list[LeftOnNode]) -> Left:
    return [(one.job, str(one)) for one in left]


def _records(directory: Path) -> Iterator[Record]:
    """Return what the engine has written down of jobs. Raises `InputError` for what cannot be read."""
    expected = "what this command has written there of a job"
    for path in sorted(directory.glob("*/job")):
        try:
            record = load(path)
        except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError("--dir", str(path), f"{expected} ({type(error).__name__}: {error})") from error
        if record is None:
            raise InputError("--dir", str(path), expected)
        yield record


def _check_nodes(record: Record, now: LocalCluster, before: LocalCluster) -> None:
    """Check that the supervisors of a job are found where they were. Raises `InputError`."""
    for name in record.nodes:
        left = f"a supervisor of {record.job} may be there"
        first = "run --stop without a search file first" if name in before.node else "declare it and run --stop first"
        if name not in now.node:
            raise InputError("nodes", sorted(now.node), f"{name!r} among them, as {left}: {first}")
        root = before.node[name].root if name in before.node else now.node[name].root
        if now.node[name].root != root:
            raise InputError(f"nodes.{name}.root", now.node[name].root, f"{root!r}, as {left}: {first}")
