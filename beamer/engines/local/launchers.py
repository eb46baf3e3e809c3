"""How processes are started on a node: here, in a Mininet host, in a network namespace, over ssh."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class Launcher(ABC):
    """A way to run a command on a node.

    direct: whether processes there share this machine's files, so that their control sockets can be connected to from here.
    """

    direct: ClassVar[bool] = True

    @abstractmethod
    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command, to be run here, that runs `command` there."""


@dataclass(frozen=True)
class Subprocess(Launcher):
    """Runs it here."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command itself."""
        return list(command)


@dataclass(frozen=True)
class MininetHost(Launcher):
    """Runs it in the namespaces of a Mininet host. pid: of the host's shell, `host.pid`."""

    pid: int

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Prefix `mnexec -a`."""
        return ["mnexec", "-a", str(self.pid), *command]


@dataclass(frozen=True)
class NetworkNamespace(Launcher):
    """Runs it in a network namespace that has a name."""

    name: str

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Prefix `ip netns exec`."""
        return ["ip", "netns", "exec", self.name, *command]


@dataclass(frozen=True)
class Ssh(Launcher):
    """Runs it on another machine, without asking for passwords. options: of ssh, before the host's name."""

    host: str
    options: tuple[str, ...] = ()
    program: str = "ssh"
    direct = False

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Prefix ssh; its remote shell is handed one quoted line."""
        return [self.program, "-o", "BatchMode=yes", *self.options, self.host, shlex.join(command)]
