"""Bounds on assignments: what no host can carry out is refused as a whole, before anything is computed from it. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping

from pydantic_core import from_json

from beamer.errors import InputError
from beamer.network.message_limits import class_count
from beamer.network.plan import check_queues
from beamer.network.protocol import Assignment, AssignmentLimits, LocalWorker, Port
from beamer.studies.model import MAX_KEY_CHARACTERS, MAX_RANK
from beamer.units import ETHERNET_HEADER

MAX_MESSAGE_BYTES = 4 * 2**20  # Some four times what MAX_WORKERS workers take, with as much again for connections.
MAX_PORTS = 1024  # The largest switches have fewer ports.
MAX_WORKERS = 4096  # As many workers can attach.
MAX_CONNECTIONS = 2**15  # Eight for each of the workers: the connections of one host that cross the network.
MAX_ADDRESSES = 2**16  # Any fabric of one controller has fewer hosts.
# All ports together have at most so many classes: each takes the kernel a request, and these take some seconds.
MAX_CLASSES = 2**16
MAX_RATE_BPS = 10**13  # Any interface is slower; the kernel counts in bytes and 64 bits.
MAX_PORT_FRAME_BYTES = 2**16 + ETHERNET_HEADER  # The loopback has this frame size, above that of any other interface.
MAX_INTERFACE_CHARACTERS = 15  # IFNAMSIZ less the zero at the end
_MAX_PID = 2**22  # PID_MAX_LIMIT
_MAX_INTEGER = 2**63  # Other programs can read JSON's integers below this.
_NO_INTERFACE = ("", ".", "..")
_MAX_ELEMENTS = {
    "ports": MAX_PORTS,
    "workers": MAX_WORKERS,
    "connections": MAX_CONNECTIONS,
    "addresses": MAX_ADDRESSES,
    "own_addresses": MAX_ADDRESSES,
}
_MAX_KEYS = 16  # An assignment or a part of one has some ten at most.

ASSIGNMENT_LIMITS = AssignmentLimits(
    message_bytes=MAX_MESSAGE_BYTES,
    ports=MAX_PORTS,
    workers=MAX_WORKERS,
    connections=MAX_CONNECTIONS,
    addresses=MAX_ADDRESSES,
    classes=MAX_CLASSES,
)
"""What an agent says of its limits."""


def check_shape(frame: str | bytes) -> Mapping[str, object]:
    """Return the JSON object that a message is. Raises `InputError` if it is none, or holds more than an assignment can.

    Every wrong element becomes a finding with a copy of it: of a message full of them, gigabytes.
    """
    try:
        content = from_json(frame)
    except ValueError as error:
        raise InputError("message", frame[:80], f"JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError("message", frame[:80], "an object")
    for field, most in _MAX_ELEMENTS.items():
        if isinstance(content.get(field), list):
            _at_most(field, content[field], most)
    parts: list[object] = [content]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if len(part) > _MAX_KEYS:
                raise InputError("message", f"an object of {len(part)} keys", f"at most {_MAX_KEYS}")
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return content


def check_limits(assignment: Assignment) -> None:
    """Raise `InputError` naming the field of `assignment` that no host can carry out."""
    _within("generation", assignment.generation, 0, _MAX_INTEGER - 1)
    for field, most in _MAX_ELEMENTS.items():
        _at_most(field, getattr(assignment, field), most)
    check_queues(assignment.queues)
    for port in assignment.ports:
        _check_port(port)
    repeated = [name for name, count in Counter(port.interface for port in assignment.ports).items() if count > 1]
    if repeated:
        raise InputError("ports.interface", repeated[0], "every interface once")
    for worker in assignment.workers:
        _check_worker(worker)
    classes = class_count(assignment)
    if classes > MAX_CLASSES:
        raise InputError("ports", classes, f"at most {MAX_CLASSES} classes on all of them together")


def _check_port(port: Port) -> None:
    name = port.interface
    # The kernel rejects the same names (net/core/dev.c, dev_valid_name).
    odd = any(character in "/:\0" or character.isspace() for character in name)
    if name in _NO_INTERFACE or len(name.encode(errors="replace")) > MAX_INTERFACE_CHARACTERS or odd:
        raise InputError("ports.interface", name[:80], f"the name of an interface, 1 to {MAX_INTERFACE_CHARACTERS} characters")
    if port.rate_bps > MAX_RATE_BPS:
        raise InputError(f"ports[{name}].rate_bps", port.rate_bps, f"a rate of at most {MAX_RATE_BPS} bit/s")
    _within(f"ports[{name}].frame_bytes", port.frame_bytes, 1, MAX_PORT_FRAME_BYTES)


def _check_worker(worker: LocalWorker) -> None:
    # No more is taken than reports can say of a worker: one that was taken in and could not be reported would end the agent.
    if len(worker.job) > MAX_KEY_CHARACTERS or not worker.job.isprintable():
        raise InputError("workers.job", worker.job[:80], f"at most {MAX_KEY_CHARACTERS} printable characters")
    _within(f"workers[{worker.job}].rank", worker.rank, 0, MAX_RANK)
    _within(f"workers[{worker.job}].process.pid", worker.process.pid, 0, _MAX_PID)


def _within(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(field, value, f"{least} to {most}")


def _at_most(field: str, items: Collection[object], most: int) -> None:
    if len(items) > most:
        raise InputError(field, len(items), f"at most {most}")
