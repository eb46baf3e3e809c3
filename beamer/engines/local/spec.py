"""What users configure: how a job's ranks are launched, and which nodes there are."""

import math
import signal
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from beamer.engines.local.launchers import Launcher, Subprocess
from beamer.engines.local.progress_formats import check_progress
from beamer.engines.local.python_command import parse_command
from beamer.errors import InputError
from beamer.protocol_version import Since

COLLECTIVE_TIMEOUT_S = 600.0
"""Of `torch.distributed.init_process_group` by default: 10 minutes for NCCL, 30 for others; the shorter holds for all."""


@dataclass(frozen=True)
class LaunchSpec:
    """How the ranks of a job are launched, and how they are communicated with."""

    command: tuple[str, ...]
    """The program and its arguments, of every rank alike."""
    preload: Annotated[tuple[str, ...], Since(2)] = ()
    """Names of modules: ranks are forked from a process that has imported them, which other runs on the node have, too.

    The command is a Python program then, as `python_command.parse_command` reads it.
    """
    cwd: str = ""
    """The directory in which it runs; "": the job's."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that it is given over those of the supervisor's environment."""
    checkpoint: str = ""
    """The path that it is given in BEAMER_CHECKPOINT, on every node the same file.

    "": one in the job's directory, for jobs that never leave a file system.
    """
    progress: str = ""
    """The name of a format of `progress_formats`, or a pattern, which is searched for in every line the ranks print.

    A pattern is a regular expression of the package `regex`, its groups named as in `pattern.GROUPS`. A run fails on a line
    that takes it longer than `SEARCH_S` there. "": a line that is a JSON object with these keys. It may print `samples`, in
    all, instead of iterations.
    """
    stop_signal: int = signal.SIGTERM
    """The signal upon which the ranks stop at one iteration boundary, with a checkpoint, and exit with `stopped_code`.

    It reaches the ranks alone, not their children.
    """
    checkpoint_signal: int = signal.SIGUSR1
    """The signal upon which the ranks, not their children, write a checkpoint and continue."""
    stopped_code: int = 0
    """The exit code of a rank that has stopped upon the signal."""
    grace_s: float = 30.0
    """Seconds after which ranks that have not stopped are killed; what came after their last checkpoint is lost."""
    batch_size: int = 1
    """Samples of an iteration, all ranks together, as the request has it."""
    iterations: int = 0
    """Iterations after which the program ends by itself; 0: not known here."""
    every: int = 1
    """Iterations of whose multiples each is reported, or the first line after it."""
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S
    """Seconds after which a rank that waits for others in a collective gives up; 0: never.

    A job of several ranks that has been suspended for half of it is parked. By default that of PyTorch's NCCL groups; those of
    other backends, gloo's too, wait for 1800 s.
    """

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
        check_progress(self.progress)
        for name in self.preload:
            if not all(part.isidentifier() for part in name.split(".")):
                raise InputError("preload", self.preload, "names of modules, such as torch")
        if self.preload:
            parse_command(self.command)


@dataclass(frozen=True)
class LocalNode:
    """A machine, or a part of one, with the GPUs that jobs may use there."""

    name: str
    """What the search and its reports call the node."""
    gpus: int
    """How many GPUs jobs may use; on a machine without GPUs each is a slot."""
    cpus: float = 0.0
    """How many processor cores jobs may use; 0: not known."""
    devices: tuple[str, ...] = ()
    """What CUDA_VISIBLE_DEVICES calls the GPUs, in order; (): their indices."""
    address: str = "127.0.0.1"
    """The address at which rank 0 is reached by the others."""
    launcher: Launcher = field(default=Subprocess())
    """How processes are started there."""
    root: str = ""
    """The directory of jobs there; "": the engine's."""
    python: str = ""
    """The interpreter that has Beamer there; "": the engine's."""
    host_memory: int = 0
    """Bytes of host memory that suspended jobs' GPU memory may take; 0: any."""
    gpu_memory: int = 0
    """Bytes of each GPU that jobs may take together, before the memory of suspended ones leaves; 0: all."""

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise InputError(f"{self.name}.gpus", self.gpus, "at least 0")
        for name in ("host_memory", "gpu_memory"):
            if getattr(self, name) < 0:
                raise InputError(f"{self.name}.{name}", getattr(self, name), "at least 0")
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
