"""The agent of this machine, as its Unix socket shows it: whether it answers, which process it is, and in which namespaces.

A request that says nothing is sent, which an agent refuses. So no worker attaches, and the controller hears nothing of it.
"""

import json
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from beamer.client.lease import AGENT_VARIABLE
from beamer.doctor.findings import Finding, fault, not_checked, ok
from beamer.ports import HTTP_PORT
from beamer.process_stat import own_namespace

_PATIENCE_S = 2.0
_CREDENTIALS = struct.Struct("iII")  # struct ucred of unix(7): process, user, group
_ASKED, _MAX_BYTES = b"{}\n", 4096
START = f"start it: beamer-hostagent --name NAME --controller wss://HOST:{HTTP_PORT} (docs/operate.md)"


@dataclass(frozen=True)
class AgentSocket:
    """What listens at an agent's socket.

    failure, fix: why no agent answers, and what to do; empty where one does. pid: the agent's, as this process sees it; 0:
    hidden. pid_namespace, network_namespace: the agent's, by inode number; 0: may not be read.
    """

    path: str
    failure: str = ""
    fix: str = ""
    pid: int = 0
    pid_namespace: int = 0
    network_namespace: int = 0


@dataclass(frozen=True)
class Namespaces:
    """Those of this process, by inode number; 0: not known."""

    pid: int
    network: int


def own_namespaces() -> Namespaces:
    """Return those of this thread."""
    return Namespaces(own_namespace(), _inode("/proc/thread-self/ns/net"))


def read_agent(path: str, named_by: str = AGENT_VARIABLE) -> AgentSocket:
    """Return what listens at `path`, within some seconds. named_by: the option or variable that names it."""
    elsewhere = f"name the agent's socket by {named_by}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_PATIENCE_S)
            sock.connect(path)
            pid, _, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            sock.sendall(_ASKED)
            answer = json.loads(sock.recv(_MAX_BYTES))
    except FileNotFoundError:
        fix = f"{START}; or {elsewhere}; in a container, mount its directory"
        return AgentSocket(path, "there is no such socket", fix)
    except ConnectionRefusedError:
        return AgentSocket(path, "no agent listens there any more", START)
    except PermissionError as error:
        fix = f"let this user into {Path(path).parent}: chmod o+x"
        return AgentSocket(path, f"this user may not connect ({error.strerror})", fix)
    except TimeoutError:
        return AgentSocket(path, f"it does not answer within {_PATIENCE_S:g} s", "see the agent's log, and start it again")
    except (OSError, ValueError) as error:
        return AgentSocket(path, f"it does not answer as an agent ({error})", elsewhere)
    if not isinstance(answer, dict) or "error" not in answer:
        return AgentSocket(path, "it does not answer as an agent", elsewhere)
    if pid <= 0:
        return AgentSocket(path)
    return AgentSocket(path, "", "", pid, _inode(f"/proc/{pid}/ns/pid"), _inode(f"/proc/{pid}/ns/net"))


def judge_agent(agent: AgentSocket) -> Iterator[Finding]:
    """Yield whether an agent answers."""
    if agent.failure:
        yield fault(f"{agent.path}: {agent.failure}", agent.fix)
    else:
        yield ok(f"an agent answers at {agent.path}" + (f", process {agent.pid}" if agent.pid else ""))


def judge_pid_namespace(agent: AgentSocket, own: Namespaces) -> Iterator[Finding]:
    """Yield whether the agent sees the processes of this namespace."""
    if agent.failure:
        yield not_checked("no agent answers")
    elif not agent.pid:
        yield not_checked(
            "the agent's process is in a namespace that is not visible from here: it sees this one only from above, as from the"
            " machine into its containers"
        )
    elif not agent.pid_namespace or not own.pid:
        yield not_checked(f"the namespaces of process {agent.pid} may be read by its user and root alone")
    elif agent.pid_namespace == own.pid:
        yield ok("the agent is in this process namespace")
    else:
        fix = "start the agent in the process namespace of the machine, as without a container or with --pid=host"
        yield fault("the agent is in another process namespace, below this one, and sees no process of this one", fix)


def judge_network_namespace(agent: AgentSocket, own: Namespaces, is_host_here: bool) -> Iterator[Finding]:
    """Yield whether the agent sees sockets that are opened here. is_host_here: whether a host's address is."""
    if agent.failure:
        yield not_checked("no agent answers")
    elif agent.network_namespace and own.network:
        if agent.network_namespace == own.network:
            yield ok("sockets opened here are in the agent's network namespace")
        else:
            fix = "use the machine's network (--network=host for a container), or run an agent in this network namespace"
            yield fault("the agent is in another network namespace, and marks no socket that is opened here", fix)
    elif is_host_here:
        yield ok("an address of a host of the network is in this network namespace")
    else:
        yield not_checked("the agent's network namespace may be read by its user and root alone")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
