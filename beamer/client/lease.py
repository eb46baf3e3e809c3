"""The client's side of attaching through a host's agent: the process connects, and the open connection is its lease.

    lease = attach("resnet", "trial1", rank=0)
    if lease is None:
        ...  # no agent here: report the process itself, `describe_process()`, to the controller

The request says which version this process speaks. An agent of version 1 refuses to read that, and is asked again without: see
`beamer.protocol_version`.

A daemon thread holds the connection and attaches again when the agent goes away and comes back; nothing here raises or lets
training wait longer than `CONNECT_S`, whatever listens at the agent's path. A forked child does not hold its parent's lease; it
attaches for itself.
"""

import json
import logging
import os
import socket
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from beamer.client.forking import RUNNING
from beamer.client.refusals import MAX_REASONS, clip
from beamer.log_limit import VariedLogLimit
from beamer.process_stat import own_namespace, process_stat
from beamer.protocol_version import FIRST_VERSION, LINE_KEY, PROTOCOL_VERSION
from beamer.studies.model import Process

AGENT_VARIABLE = "BEAMER_AGENT"
AGENT_PATH = "/run/beamer/agent.sock"
CONNECT_S = 0.25  # The agent answers in less than a millisecond on a machine that is not overloaded.
# A pause precedes each new attachment; after a lease that outlasts the longest pause, it is the first one again.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 2.0
_LOG_AGAIN_S = 3600.0
_MAX_LINE_BYTES = 65536

_log = logging.getLogger("beamer.client")
_held: "weakref.WeakSet[AgentLease]" = weakref.WeakSet()


class AgentLease:
    """A lease that this process holds, or tries to get again, until it is closed.

    agent: that it was last attached to. attached: whether there is one that knows of this process now.
    """

    def __init__(self, request: dict[str, Any], path: str) -> None:
        self._lines = _lines(request)
        self._name = clip(f"worker {request['rank']} of {request['study']}/{request['trial']}")
        self._path = path
        self._socket: socket.socket | None = None
        self._closed = threading.Event()
        self.attached = False
        self._refusals = VariedLogLimit(MAX_REASONS, _LOG_AGAIN_S)
        self.agent = ""
        with RUNNING.inside():
            _held.add(self)

    def close(self) -> None:
        """End the lease; may be repeated."""
        self._closed.set()
        self.attached = False
        sock = self._socket
        if sock is not None:
            with suppress(OSError):  # The connection may have ended.
                sock.shutdown(socket.SHUT_RDWR)  # The shutdown wakes the thread, which closes the socket.

    def start(self) -> bool:
        """Attach, and keep the lease from now on; return whether that worked."""
        if not self._connect():
            self._disconnect()
            return False
        try:
            threading.Thread(target=self._keep, name="beamer-lease", daemon=True).start()
        except RuntimeError as error:  # No thread can be started.
            _log.warning("Beamer's agent at %s: %s", self._path, error)
            self._disconnect()
            return False
        return True

    def abandon(self) -> None:
        """Leave the lease to the parent, in a child that was forked: close the descriptor, not the connection."""
        self._closed = threading.Event()
        self._closed.set()
        self._disconnect()

    def _connect(self) -> bool:
        """Attach once; return whether that worked."""
        try:
            with RUNNING.outside():
                answer = self._ask(time.monotonic() + CONNECT_S)
            self._compare(answer)
            refusal = clip(str(answer.get("error", answer)))
            agent = clip(str(answer.get("agent", "")))
        except (OSError, ValueError, RecursionError) as error:  # Deeply nested JSON raises a RecursionError.
            _log.debug("Beamer's agent at %s: %s", self._path, error)
            return False
        if answer.get("attached") is not True:
            if self._refusals.take("refused", refusal):
                _log.warning("Beamer's agent at %s does not take %s: %s", self._path, self._name, refusal)
            return False
        self.agent = agent
        self.attached = True
        return True

    def _ask(self, deadline: float) -> dict[str, Any]:
        """Return an agent's answer to what it can read."""
        answer = self._ask_once(self._lines[-1], deadline)
        if _is_unread(answer):
            self._disconnect()
            answer = self._ask_once(self._lines[0], deadline)
        return answer

    def _ask_once(self, line: bytes, deadline: float) -> dict[str, Any]:
        with RUNNING.inside():  # No fork comes in between: a child knows every socket that it inherits.
            sock = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_left_s(deadline))
        sock.connect(self._path)
        sock.settimeout(_left_s(deadline))
        with suppress(BrokenPipeError):  # An agent to which too many processes are attached answers without reading.
            sock.sendall(line)
        answer = _read_line(sock, deadline)
        sock.settimeout(None)
        return answer

    def _compare(self, answer: dict[str, Any]) -> None:
        """Say once that the agent speaks another version.

        An agent that refuses before it has read a request says none, whichever it speaks.
        """
        if LINE_KEY not in answer and "attached" not in answer:
            return
        version = answer.get(LINE_KEY, FIRST_VERSION)
        if version != PROTOCOL_VERSION and self._refusals.take("version", version if isinstance(version, int) else 0):
            what = "Beamer's agent at %s speaks version %s of the protocol, and this client %d: what only one knows is not used"
            _log.info(what, self._path, clip(str(version)), PROTOCOL_VERSION)

    def _disconnect(self) -> None:
        self.attached = False
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def _keep(self) -> None:
        with RUNNING.inside():
            try:
                self._keep_attached()
            except Exception:  # noqa: BLE001  A defect ends this lease alone.
                with suppress(Exception):  # A log handler may raise, too.
                    _log.warning("a defect of Beamer's client ends the lease of %s", self._name, exc_info=True)
            self._disconnect()

    def _keep_attached(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            began = time.monotonic()
            error = self._until_ended()
            self._disconnect()
            if error is not None:
                _log.warning("Beamer's agent %s has ended the lease of %s: %s", self.agent, self._name, error)
                break
            if self._closed.is_set():
                break
            # An agent that attaches and ends leases over and over is asked no more often than one that is away.
            pause_s = FIRST_PAUSE_S if time.monotonic() - began > MAX_PAUSE_S else pause_s
            _log.log(
                logging.INFO if pause_s == FIRST_PAUSE_S else logging.DEBUG,
                *("Beamer's agent %s is away; %s will attach again", self.agent, self._name),
            )
            pause_s = self._attach_again(pause_s)

    def _until_ended(self) -> str | None:
        """Wait until the connection ends; return the agent's reason, None if the agent itself has ended."""
        sock = self._socket
        if sock is None:
            return None
        try:
            with RUNNING.outside():
                return clip(str(_read_line(sock)["error"]))
        except (OSError, ValueError, LookupError, RecursionError):
            return None

    def _attach_again(self, pause_s: float) -> float:
        """Attach after ever longer pauses; return the next one."""
        while not self._wait(pause_s):
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            if self._connect():
                if self._closed.is_set():  # The lease was closed meanwhile, without this connection.
                    self._disconnect()
                break
            self._disconnect()
        return pause_s

    def _wait(self, pause_s: float) -> bool:
        with RUNNING.outside():
            return self._closed.wait(pause_s)


def attach(study: str, trial: str, rank: int, run: str | None = None, path: str | None = None) -> AgentLease | None:
    """Attach this process as a worker through its host's agent; return None where there is none or it refuses, at once.

    run: of the study; None: the present one. path: of the agent's socket; None: what `BEAMER_AGENT` names, or the default.
    """
    request = {"study": study, "trial": trial, "rank": rank} | ({} if run is None else {"run": run})
    try:
        lease = AgentLease(request, path or os.environ.get(AGENT_VARIABLE) or AGENT_PATH)
    except Exception as error:  # noqa: BLE001  The values are the trainer's.
        _log.warning("%s cannot attach: %s", clip(f"worker {rank} of {study}/{trial}"), clip(str(error)))
        return None
    return lease if lease.start() else None


def describe_process(pid: int | None = None, proc: Path = Path("/proc")) -> Process:
    """Return this process, or another of this process namespace, as the controller is told where there is no agent.

    What cannot be read is 0.
    """
    own = pid is None or pid == os.getpid()
    # The entry's name is `self`, as /proc may be another namespace's, where the own id is another process.
    entry = proc / ("self" if own else str(pid))
    stat = process_stat(f"{entry}/stat")
    return Process(os.getpid() if pid is None else pid, stat.started if stat else 0, own_namespace(str(proc)))


def _lines(request: dict[str, Any]) -> list[bytes]:
    """Return the request as each version reads it, the first one first."""
    versions = request, {**request, LINE_KEY: PROTOCOL_VERSION}
    # The conversion is for numbers of NumPy and PyTorch.
    return [json.dumps(one, default=int).encode() + b"\n" for one in versions]


def _is_unread(answer: dict[str, Any]) -> bool:
    """Return whether an agent of version 1 has refused to read which version this process speaks."""
    return LINE_KEY not in answer and str(answer.get("error", "")).startswith(f"{LINE_KEY}:")


def _read_line(sock: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Return the JSON object of one line.

    Raises `OSError` or `ValueError` where none comes, by the deadline if there is one, `RecursionError` for one that is nested.
    """
    data = bytearray()
    while not data.endswith(b"\n"):
        if deadline is not None:
            sock.settimeout(_left_s(deadline))
        more = sock.recv(4096)
        if not more or len(data) > _MAX_LINE_BYTES:
            raise ValueError("the connection has ended")
        data += more
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise ValueError(f"got {clip(repr(answer))}, expected an object")
    return answer


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    return left_s


def _abandon_in_child() -> None:
    for lease in list(_held):
        lease.abandon()
    _held.clear()


os.register_at_fork(after_in_child=_abandon_in_child)
