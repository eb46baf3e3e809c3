"""The fork servers of a node, each in a directory of its own below that of all jobs: they are found, started and ended by it.

    ROOT/warm/lock               held while a server is started
    ROOT/warm/NODE-KEY/control   its socket: a server is there as long as somebody listens
    ROOT/warm/NODE-KEY/log       what the modules have printed while they were imported

Ranks are forked from a server that was started as they would be: KEY is a digest of the interpreter, its options, the modules,
the environment, all but the variables that are a rank's own, and what else a process inherits: see `inherited`.
"""

import fcntl
import hashlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple

from beamer.engines.local.python_command import PythonCommand
from beamer.engines.local.supervisor import store
from beamer.engines.local.supervisor.processes import adopt_orphans, values_of
from beamer.engines.local.supervisor.warm.own_process import PLACEHOLDER
from beamer.engines.local.supervisor.warm.server import NAME

MAX_SERVERS = 4
"""On a node: each holds the modules' memory, and a search has few environments."""
CONNECT_S = 5.0
END_S = 5.0
"""How long servers are killed for: one that waits for a file system in the kernel dies later."""
_PLACEHOLDER_CHARACTERS = 4200  # The longest path has 4096.
_COMMAND_CHARACTERS = 2000  # So much of a rank's command /proc shows.
_OF_RANKS = frozenset(
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
)
_OF_LOGINS = frozenset(("_", "OLDPWD", "SHLVL", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID"))
"""Variables that differ with each login, and that no module reads while it is imported."""
_LOGIN = re.compile(r"/session-[^/\n]+\.scope")
"""The control group that systemd makes for a login."""
_PACKAGE = Path(__file__).parent
_START = f"""
import sys, types
if sys.path[:1] == [""]:  # No module of the working directory may hide what the server imports.
    del sys.path[0]
package = sys.modules[{NAME!r}] = types.ModuleType({NAME!r})
package.__path__ = [sys.argv[1]]
from {NAME} import server
server.main()
"""


def inherited(proc: Path = Path("/proc/self")) -> tuple[object, ...]:
    """Return what this process hands down to a server that it starts, and that to the ranks that it forks.

    The control groups are the supervisor's, as the ranks' is made below it later: all supervisors of an engine are in the same.
    Those of a login (`session-N.scope`) are left out, since each call of ssh has one, which limits nothing by itself.
    """
    numbers = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
    status = (proc / "status").read_text().splitlines()
    return (
        [(number, resource.getrlimit(number)) for number in numbers],
        os.nice(0),
        sorted(os.sched_getaffinity(0)),
        [line for line in status if line.startswith("Umask:")],
        _LOGIN.sub("", (proc / "cgroup").read_text()),
        sorted((path.name, os.readlink(path)) for path in (proc / "ns").iterdir()),
    )


@dataclass(frozen=True)
class ServerSpec:
    """What a server is started as. cwd: of the first run. inherits: what else it has, as `inherited` returns it."""

    command: PythonCommand
    modules: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    inherits: tuple[object, ...] = field(default_factory=inherited)

    @cached_property
    def is_archive(self) -> bool:
        """Whether the program is the `__main__` of a directory or an archive."""
        program = os.path.join(self.cwd, self.command.program)
        return not self.command.is_module and (os.path.isdir(program) or zipfile.is_zipfile(program))

    @property
    def first_path(self) -> str:
        """What the interpreter puts before all other places in which it looks for modules."""
        program = os.path.join(self.cwd, self.command.program)
        if self.command.is_module:
            return os.path.realpath(self.cwd)
        return program if self.is_archive else os.path.dirname(os.path.realpath(program))

    @property
    def own_environment(self) -> dict[str, str]:
        """The variables that are not a rank's own."""
        return {
            name: value for name, value in self.environment.items() if name not in _OF_RANKS and not name.startswith("BEAMER_")
        }

    @property
    def key(self) -> str:
        """A digest of all that tells it from others: of the working directory where something is relative to it."""
        known = {name: value for name, value in self.own_environment.items() if name not in _OF_LOGINS}
        interpreter = self.command.interpreter
        paths = [*known.get("PYTHONPATH", "/").split(os.pathsep), *([interpreter] if "/" in interpreter else [])]
        cwd = "" if all(map(os.path.isabs, paths)) else self.cwd
        started = (interpreter, self.command.options, self.modules, self.first_path, self.is_archive, cwd)
        return hashlib.sha256(json.dumps((started, sorted(known.items()), self.inherits)).encode()).hexdigest()[:12]


class ServerConnection(NamedTuple):
    """A connection to a server. errors: of one that was started, what its interpreter says before it runs the program."""

    socket: socket.socket
    directory: Path
    errors: IO[bytes] | None = None


def connect(root: Path, node: str, spec: ServerSpec) -> ServerConnection:
    """Return a connection to the server of a spec, which is started where there is none.

    It may take long until the server answers. Raises `OSError` where it cannot be started, or another user may do so.
    """
    directory = root / "warm" / f"{node}-{spec.key}"
    for one in (directory.parent, directory):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
        _own(one)
    with _locked(root / "warm"):
        os.utime(directory)  # It is used: others are ended first.
        with suppress(FileNotFoundError, ConnectionRefusedError):
            return ServerConnection(store.connect(directory, CONNECT_S), directory)
        _make_room(root / "warm", node)
        with store.listen(directory) as listening:
            errors = _start(spec, directory, listening)
            return ServerConnection(store.connect(directory, CONNECT_S), directory, errors)


def _own(directory: Path) -> None:
    """Let nobody else into a directory, as who listens there has the ranks' environment. Raises `PermissionError`."""
    found = os.lstat(directory)
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        owner = f"it is of user {found.st_uid}, or a link"
        raise PermissionError(f"{directory} must be a directory of user {os.geteuid()}: {owner}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)


def end(directory: Path) -> None:
    """Kill the server of a directory, or those below it, for at most `END_S`. What they have forked runs on."""
    until = time.monotonic() + END_S
    while (found := _servers(directory)) and time.monotonic() < until:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _servers(directory: Path) -> dict[int, Path]:
    """Return the directories of servers by process: a directory's own, or those below it."""
    found = {pid: Path(value.rstrip()) for pid, value in values_of(PLACEHOLDER).items()}
    return {pid: path for pid, path in found.items() if directory in (path, path.parent)}


def _make_room(directory: Path, node: str) -> None:
    """Have those servers of a node leave that were not used for longest: they serve only those who wait for them already."""
    found = {path for path in _servers(directory).values() if path.name.rpartition("-")[0] == node}
    own = [path for path in found if (path / "control").exists()]
    used = sorted(own, key=lambda path: path.stat().st_mtime)
    for one in used[: max(len(used) - MAX_SERVERS + 1, 0)]:
        (one / "control").unlink(missing_ok=True)


def _start(spec: ServerSpec, directory: Path, listening: socket.socket) -> IO[bytes] | None:
    """Start a server that is nobody's child, on a socket that listens already; return as of `ServerConnection.errors`."""
    control = os.stat(directory / "control")
    options = {
        "modules": spec.modules,
        "path": spec.first_path,
        "is_archive": spec.is_archive,
        "directory": str(directory),
        "socket": listening.fileno(),
        "control": (control.st_ino, control.st_mtime_ns),  # A number alone may be used again once its file is removed.
    }
    program = ("-c", _START, str(_PACKAGE), json.dumps(options).ljust(_COMMAND_CHARACTERS))
    command = [spec.command.interpreter, *spec.command.options, *program]
    environment = {**spec.own_environment, PLACEHOLDER: str(directory).ljust(_PLACEHOLDER_CHARACTERS)}

    def detach() -> None:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGINT, signal.SIGHUP):  # The supervisor ignores these signals.
            signal.signal(number, signal.SIG_DFL)

    adopt_orphans(False)  # It is to outlive this process, of which no rank runs now.
    try:
        # Its output goes to a pipe, as a rank's does, until it opens its log.
        process = subprocess.Popen(
            command, cwd=spec.cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(listening.fileno(),), preexec_fn=detach, bufsize=0,
        )  # fmt: skip
        process.wait()
    finally:
        adopt_orphans(True)
    return process.stdout


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of all servers, which is held for milliseconds."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
