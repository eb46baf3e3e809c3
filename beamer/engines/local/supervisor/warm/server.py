"""A fork server: it imports modules once, and forks the ranks of runs, which then run the user's program.

    supervisor       fork server               parent of a run's ranks        rank
    connects ------> accepts, forks ---------> reads the request
                                               forks -----------------------> waits at the gate
             <-------------------------------- their process ids
    go       --------------------------------> opens the gate --------------> runs the program
             <-------------------------------- the status of each that ends
    closes   --------------------------------> kills what is left, ends

A run has a parent of its own, so that its processes are one tree, orphans included, and so that nothing that runs depends on
the server. The program is run as the interpreter itself would. It has the module `__main__`, which this file is not, for itself
alone, and its end is the interpreter's.

It is run by the user's interpreter, Python 3.8 or newer, which may lack Beamer: it imports the standard library alone.
"""

from __future__ import annotations

import array
import ctypes
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LINGER_S = 30.0
"""How long a server stays after the last run: searches start the next configuration within seconds."""
CHECK_S = 1.0
"""Between two checks of whether the server is still wanted."""
IMPORT_S = 600
"""How long the import of a module may take. SIGALRM ends a server that hangs, as nobody else may reach it."""
PROBE_S = 5
"""How long two threads of OpenMP may take to begin and end."""
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD")
PLACEHOLDER = "BEAMER_WARM"
"""A long variable in a server's first environment. A fork writes its own mark over it, which /proc then shows instead."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MAX_DESCRIPTORS = 253  # of a message, SCM_MAX_FD of Linux
NAME = "beamer_fork_server"
"""Of the module that this file is where it is run."""
_LIBC = ctypes.CDLL(None)
GO = b"\n"
"""What a supervisor sends when ranks may go, and each rank reads at the gate."""


class Part(NamedTuple):
    """A part of a process' memory that /proc shows. address_field: of /proc/PID/stat, counted from the command's name on."""

    path: str
    address_field: int


ENVIRONMENT, COMMAND_LINE = Part("/proc/self/environ", 47), Part("/proc/self/cmdline", 45)


class Unusable(Exception):
    """The modules cannot be preloaded; the message says why."""


def preload(modules: Sequence[str]) -> None:
    """Import modules. Raises `Unusable` where one of them leaves a process that cannot be forked."""
    mark = f"{PLACEHOLDER}={os.environ[PLACEHOLDER]}"
    for name in modules:
        signal.alarm(IMPORT_S)
        try:
            importlib.import_module(name)
        except BaseException as error:  # A module may raise anything, SystemExit among it.
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            raise Unusable(f"module {name} of preload cannot be imported by {sys.executable}: {what}") from error
        finally:
            signal.alarm(0)
        # Pools of native threads are left to their libraries: OpenBLAS, for one, makes its own anew in a fork.
        if others := sys._current_frames().keys() - {threading.get_ident()}:
            named = {thread.ident: thread.name for thread in threading.enumerate()}
            started = f"module {name} of preload starts threads ({', '.join(named.get(one, 'unnamed') for one in others)})"
            raise Unusable(f"{started}, which a fork lacks: leave it out of preload")
        if openmp_hangs():
            computes = f"module {name} of preload computes with OpenMP while it is imported"
            raise Unusable(f"{computes}, and a fork that does so hangs: leave it out of preload")
        if has_gpu():
            raise Unusable(
                f"module {name} of preload uses a GPU while it is imported, and a fork cannot: leave it out of preload"
            )
        try:
            find(ENVIRONMENT, mark)
        except OSError as error:
            writes = f"module {name} of preload changes what /proc shows of the process, as setproctitle does"
            raise Unusable(f"{writes} ({error}), and its forks could not be found: leave it out of preload") from error


def sources() -> dict[str, tuple[int, int]]:
    """Return the files of all modules that have been imported, with the time of the last change, in ns, and the size."""
    found = {}
    for module in [*sys.modules.values()]:
        path = getattr(module, "__dict__", {}).get("__file__")  # An attribute may be what imports another module.
        if isinstance(path, str):
            found[path] = signature(path)
    return found


def signature(path: str) -> tuple[int, int]:
    """Return when a file was changed, in ns, and its size; zeros where there is none, as within an archive."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_mtime_ns, found.st_size


def openmp_hangs() -> bool:
    """Return whether GCC's OpenMP has started its pool of threads: a fork that uses it waits for them forever."""
    with open("/proc/self/maps") as file:
        paths = {words[5].strip() for line in file if len(words := line.split(maxsplit=5)) == 6 and "/libgomp" in words[5]}
    if not paths or len(os.listdir("/proc/self/task")) == 1:
        return False
    pid = fork()
    if not pid:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PROBE_S)
            nothing = ctypes.cast(_LIBC.getpid, ctypes.c_void_p)
            for path in paths:
                ctypes.CDLL(path).GOMP_parallel(nothing, None, 2, 0)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def has_gpu() -> bool:
    """Return whether this process has initialised CUDA, as far as PyTorch knows, or has opened a GPU's device file."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return True
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(GPU_DEVICES):
                return True
        except OSError:  # The descriptor by which the directory was read.
            continue
    return False


class Wakeup:
    """A descriptor that can be read from when a child has ended. handler: of SIGCHLD before."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        for one in (self._reading, self._writing):
            os.set_blocking(one, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)

    def wait(self, source: socket.socket, timeout_s: float | None) -> bool:
        """Wait for a child's end, or for something to be read from a source; return whether that can be read."""
        poll = select.poll()
        for one in (source.fileno(), self._reading):
            poll.register(one, select.POLLIN)
        ready = {one for one, _ in poll.poll(None if timeout_s is None else int(1000 * timeout_s))}
        if self._reading in ready:
            os.read(self._reading, 4096)
        return source.fileno() in ready

    def close(self) -> None:
        """Have signals handled as before."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if self._handler is None else self._handler)
        signal.set_wakeup_fd(self._before)
        os.close(self._reading)
        os.close(self._writing)


def fork() -> int:
    """Fork, without the warning of newer interpreters that there are threads: pools of native ones are made anew."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def ended_children() -> list[tuple[int, int]]:
    """Return the process ids and statuses of children that have ended."""
    found: list[tuple[int, int]] = []
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(child)
    except ChildProcessError:
        pass
    return found


def find(part: Part, place: str) -> tuple[int, int]:
    """Return the address and the length of what /proc shows of this process. place: what is looked for, "": all of it.

    Raises `OSError` where it is not in memory where the kernel says.
    """
    with open("/proc/self/stat", "rb") as file:
        address = int(file.read().rpartition(b")")[2].split()[part.address_field])
    with open(part.path, "rb") as file:
        before = file.read()
    old = os.fsencode(place) or before[:-1]
    offset = before.find(old)
    if offset < 0 or not address or ctypes.string_at(address + offset, len(old)) != old:
        raise OSError(f"{part.path} has been overwritten")
    return address + offset, len(old)


def show(part: Part, place: str, content: str) -> str:
    """Overwrite what /proc shows of this process, as `find` finds it, and return what it shows now. Raises `OSError`."""
    address, length = find(part, place)
    new = os.fsencode(content)[:length].ljust(length, b"\0")
    ctypes.memmove(address, new, length)
    return os.fsdecode(new)


class ForkServer:
    """Serves on a socket that listens already. directory: its own. control: the inode number and time of the socket's file."""

    def __init__(self, listening: socket.socket, directory: str, control: Sequence[int]) -> None:
        self._started_with = dict(os.environ)
        self._listening = listening
        self._directory = directory
        self._control = tuple(control)
        self._wakeup: Wakeup | None = None
        self._parents: set[int] = set()

    def refuse(self, answer: dict[str, Any]) -> None:
        """Leave, and answer all who wait."""
        self._leave()
        while (connection := self._accept()) is not None:
            with suppress(OSError):
                send(connection, answer)

    def serve(self) -> UserProgram | None:
        """Serve as long as it is wanted, and files are as they were imported; None then. In a rank return what is to be run."""
        self._wakeup = Wakeup()
        imported = sources()
        self._listening.setblocking(False)
        until, leaves = time.monotonic() + LINGER_S, False
        while not leaves:
            waits = self._wakeup.wait(self._listening, CHECK_S)
            self._parents.difference_update(pid for pid, _ in ended_children())
            if self._parents or waits:
                until = time.monotonic() + LINGER_S
            leaves = not self._is_reachable()
            if not leaves and (leaves := time.monotonic() > until):
                self._leave()
            if waits and any(signature(path) != before for path, before in imported.items()):
                self.refuse({"is_stale": True})
                return None
            while (connection := self._accept()) is not None:  # Those who connected before it left are served.
                pid = fork()
                if not pid:
                    self._wakeup.close()
                    self._listening.close()
                    return serve_run(connection, self._started_with)
                self._parents.add(pid)
                connection.close()
        return None

    def _accept(self) -> socket.socket | None:
        try:
            connection = self._listening.accept()[0]
        except OSError:
            return None
        connection.setblocking(True)
        return connection

    def _is_reachable(self) -> bool:
        """Return whether the socket's file is there, and not that of another server."""
        try:
            found = os.stat(f"{self._directory}/control")
        except OSError:
            return False
        return (found.st_ino, found.st_mtime_ns) == self._control

    def _leave(self) -> None:
        self._listening.setblocking(False)
        if self._is_reachable():
            with suppress(OSError):
                os.unlink(f"{self._directory}/control")


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a message, a line of JSON, with the descriptors that came with it. Raises `ValueError` where there is none."""
    data, descriptors = b"", array.array("i")
    while not data.endswith(b"\n"):
        part, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(_MAX_DESCRIPTORS * descriptors.itemsize))
        if not part:
            raise ValueError("the supervisor has gone")
        data += part
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    message: dict[str, Any] = json.loads(data)
    return message, descriptors.tolist()


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def serve_run(connection: socket.socket, started_with: dict[str, str]) -> UserProgram | None:
    """Be the parent of a run's ranks, until its supervisor closes the connection; None then. In a rank, return its program."""
    try:
        send(connection, {"is_ready": True})  # Descriptors come then: those in the queue of a busy server would hold locks.
        request, descriptors = receive(connection)
    except (OSError, ValueError):
        return None
    os.setsid()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = Wakeup()
    opening, gate = os.pipe()
    locks, pipes = descriptors[: request["locks"]], descriptors[request["locks"] :]
    ranks: list[int] = []
    own = os.getpid()
    try:
        # Ranks have their mark from the beginning, as they may be frozen or are to be killed at any time.
        shown = show(ENVIRONMENT, f"{PLACEHOLDER}={started_with[PLACEHOLDER]}", request["mark"])
        os.chdir(request["cwd"])
        for number, variables in enumerate(request["ranks"]):
            pid = fork()
            if not pid:
                wakeup.close()
                connection.close()
                os.close(gate)
                show(COMMAND_LINE, "", "\0".join(request["command"]))
                become_rank(own, locks, pipes, number, opening)
                adopt({**request["environment"], **variables}, started_with)
                return UserProgram(request["program"], request["is_module"], request["arguments"], request["command"])
            ranks.append(pid)
        show(ENVIRONMENT, shown, f"BEAMER_PARENT_OF={request['directory']}")
        for one in (*locks, *pipes, opening):
            os.close(one)
        send(connection, {"parent": own, "ranks": ranks})
        follow(connection, wakeup, gate, ranks)
    except OSError as error:
        if os.getpid() != own:
            raise
        with suppress(OSError):  # The supervisor may be gone.
            send(connection, {"error": f"{request['command'][0]} cannot be started: {error}"})
    kill(ranks)
    return None


def become_rank(parent: int, locks: list[int], pipes: list[int], number: int, opening: int) -> None:
    """Be a process as a supervisor starts one, and wait at the gate. pipes: of all ranks. number: of this one among them."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # The parent died before the call.
        os._exit(1)
    os.setsid()
    for one in locks:
        os.set_inheritable(one, True)
    os.dup2(pipes[2 * number], 1)
    os.dup2(pipes[2 * number + 1], 2)
    for one in pipes:
        os.close(one)
    if os.read(opening, 1) != GO:
        os._exit(1)
    os.close(opening)


def follow(connection: socket.socket, wakeup: Wakeup, gate: int, ranks: list[int]) -> None:
    """Let the ranks go when the supervisor says so, and tell it of their ends, until it is gone."""
    try:
        while True:
            if wakeup.wait(connection, None):
                if not connection.recv(1):
                    return
                os.write(gate, GO * len(ranks))
            for pid, status in ended_children():
                if pid in ranks:
                    ranks.remove(pid)
                    send(connection, {"pid": pid, "status": status})
    except OSError:  # The supervisor is gone.
        return


def kill(ranks: list[int]) -> None:
    """Kill ranks, and what is in their process groups; their numbers are theirs until they have been waited for."""
    for pid in ranks:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def adopt(environment: dict[str, str], before: dict[str, str]) -> None:
    """Take the environment of a rank, and randomness of its own. Variables that a module has set stay."""
    for name in before.keys() - environment.keys():
        os.environ.pop(name, None)
    for name, value in environment.items():
        if before.get(name) != value:
            os.environ[name] = value
    # Python's own generator is seeded anew by each fork; PyTorch's begins with the same seed in every process.
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
        processes.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]


class UserProgram:
    """The user's program in a rank. command: all of its words, as a process that was started by them has them."""

    def __init__(self, program: str, is_module: bool, arguments: list[str], command: list[str]) -> None:
        self._program = program
        self._is_module = is_module
        sys.argv[:] = ["-m" if is_module else program, *arguments]
        if hasattr(sys, "orig_argv"):  # It came with Python 3.10.
            sys.orig_argv[:] = command

    def run(self) -> None:
        """Run it as `__main__`. Exceptions leave as they came, and are shown without this file."""
        main = vars(sys.modules["__main__"])
        for name in [name for name in main if not name.startswith("__")]:
            del main[name]
        try:
            if self._is_module:
                runpy._run_module_as_main(self._program)  # type: ignore[attr-defined]  # what `python -m` runs
            else:
                self._run_script(main)
        except SystemExit:
            raise
        except BaseException as error:
            shown, hook = error.__traceback__, sys.excepthook
            while shown is not None and shown.tb_frame.f_code.co_filename in (__file__, "<string>"):
                shown = shown.tb_next
            sys.excepthook = lambda kind, value, _: hook(kind, value.with_traceback(shown), shown)
            raise

    def _run_script(self, main: dict[str, Any]) -> None:
        """Run a script, or the `__main__` of a directory or an archive (`Modules/main.c` of CPython)."""
        if pkgutil.get_importer(self._program) is not None:
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            return
        path = self._program
        if sys.version_info >= (3, 9):  # noqa: UP036  # Before, `__file__` was the path as it was given.
            path = os.path.join(os.getcwd(), path)
        try:
            with io.open_code(path) as file:
                source = file.read()
        except OSError as error:
            print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
            sys.exit(2)
        main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        exec(compile(source, path, "exec", dont_inherit=True), main)


def main() -> UserProgram | None:
    """Import the modules and serve; in a rank, return its program."""
    options = json.loads(sys.argv[-1])
    log = os.open(f"{options['directory']}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    # The streams were opened on pipes, as a rank's are, and stay as they are.
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if options["is_archive"] or not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, options["path"])
    listening = socket.socket(fileno=options["socket"])
    listening.set_inheritable(False)
    server = ForkServer(listening, options["directory"], options["control"])
    sys.argv[:] = [""]
    try:
        preload(options["modules"])
    except Unusable as error:
        server.refuse({"error": str(error)})
        return None
    return server.serve()


if __name__ == NAME:
    program = main()
    if program is None:
        os._exit(0)
    program.run()
