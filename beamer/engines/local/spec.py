"""What users configure: how a job's ranks are launched, and which nodes there are."""

import math
import signal
from dataclasses import dataclass, field
from functools import cached_property

from beamer.engines.local.launchers import Launcher, Subprocess
from beamer.engines.local.pattern import ProgressPattern
from beamer.errors import InputError

COLLECTIVE_TIMEOUT_S = 600.0
"""Of `torch.distributed.init_process_group` by default: 10 minutes for NCCL, 30 for others; the shorter holds for all."""


@dataclass(frozen=True)
class LaunchSpec:
    """How the ranks of a job are launched, and how they are communicated with.

    command: of every rank alike. cwd: where it runs; "": in the job's directory. env: over the supervisor's environment.
    checkpoint: the path that the program is given in BEAMER_CHECKPOINT, on every node the same file; "": one in the job's
    directory, for jobs that never leave a file system.
    progress: a regular expression, of the package `regex`, that is searched for in every line the ranks print, its groups named
    as in `pattern.GROUPS`; a run fails on a line that takes it longer than `SEARCH_S` there. "": a line that is a
    JSON object with these keys. It may print `samples`, in all, instead of iterations.
    stop_signal: upon which the ranks stop at one iteration boundary with a checkpoint written and exit with `stopped_code`.
    checkpoint_signal: upon which they write a checkpoint and continue. Both reach the ranks alone, not their children.
    grace_s: after which ranks that have not stopped are killed; what came after their last checkpoint is lost.
    batch_size: of the request, all ranks together. iterations: after which the program ends by itself; 0: not known here.
    every: iterations of whose multiples each is reported, or the first line after it.
    collective_timeout_s: after which a rank that waits for others in a collective gives up; 0: never. A job of several ranks
    that has been suspended for half of it is parked. By default that of PyTorch's NCCL groups; those of other backends, gloo's
    too, wait for 1800 s.
    """

    command: tuple[str, ...]
    cwd: str = ""
    env: tuple[tuple[str, str], ...] = ()
    checkpoint: str = ""
    progress: str = ""
    stop_signal: int = signal.SIGTERM
    checkpoint_signal: int = signal.SIGUSR1
    stopped_code: int = 0
    grace_s: float = 30.0
    batch_size: int = 1
    iterations: int = 0
    every: int = 1
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.command:
            raise InputError("command", self.command, "a program and its arguments")
        for name in ("grace_s", "collective_timeout_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(name, getattr(self, name), "at least 0, finite")
        for name in ("batch_size", "every"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "at least 1")
        for name in ("stop_signal", "checkpoint_signal"):
            if getattr(self, name) not in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                raise InputError(name, getattr(self, name), "a signal that a program can handle")
        if self.progress:
            ProgressPattern(self.progress)  # The constructor checks the pattern.


@dataclass(frozen=True)
class LocalNode:
    """A machine, or a part of one, with the GPUs that jobs may use there.

    devices: what CUDA_VISIBLE_DEVICES calls the GPUs, in order; (): their indices. On a machine without GPUs a GPU is a slot.
    address: at which rank 0 is reached by the others. launcher: how processes are started there.
    root: the directory of jobs there; "": the engine's. python: the interpreter that has Beamer there; "": the engine's.
    """

    name: str
    gpus: int
    cpus: float = 0.0
    devices: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    launcher: Launcher = field(default=Subprocess())
    root: str = ""
    python: str = ""

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise InputError(f"{self.name}.gpus", self.gpus, "at least 0")
        if self.devices and len(self.devices) != self.gpus:
            raise InputError(f"{self.name}.devices", self.devices, f"as many names as GPUs, {self.gpus}")

    def device(self, index: int) -> str:
        """Return what CUDA_VISIBLE_DEVICES calls a GPU."""
        return self.devices[index] if self.devices else str(index)


@dataclass(frozen=True)
class LocalCluster:
    """The nodes that jobs may be launched on."""

    nodes: tuple[LocalNode, ...]

    def __post_init__(self) -> None:
        if len(self.node) != len(self.nodes):
            raise InputError("nodes", tuple(node.name for node in self.nodes), "names that differ")

    @cached_property
    def node(self) -> dict[str, LocalNode]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @classmethod
    def here(cls, gpus: int, cpus: float = 0.0) -> "LocalCluster":
        """Return this machine as the only node, `localhost`."""
        return cls((LocalNode("localhost", gpus, cpus),))
