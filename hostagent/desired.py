"""The queues and marks that an assignment describes, computed before anything is changed: pure, like `queues.tree`."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from beamer.errors import InputError, shortened
from beamer.network.addresses import is_ipv6
from beamer.network.plan import check_queues
from beamer.network.protocol import Assignment, Welcome
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION
from beamer.validation import input_error
from beamer.versioned_messages import Decoded, decode, is_known
from hostagent.limits import check_limits, check_shape
from hostagent.marks.socket_marks import Mark
from hostagent.queues.tree import UNREGISTERED, Cap, Tree, cap_ids, caps_of, class_id, port_tree


@dataclass(frozen=True)
class DesiredState:
    """An assignment in the kernel's terms.

    trees: by interface. classes: the HTB classes that make up each queue, by interface and queue, None being unregistered
    traffic. marks: of each job's sockets; empty where queues are not picked by mark. ipv6: whether a host has an IPv6 address.
    """

    assignment: Assignment
    trees: Mapping[str, Tree]
    classes: Mapping[str, Mapping[int | None, tuple[int, ...]]]
    marks: Mapping[str, Mark]
    ipv6: bool = False


class _Numbered(BaseModel):
    """Of what may be no assignment, the number to answer it under."""

    generation: int = Field(ge=0, lt=2**63)


_kinds: Mapping[str, TypeAdapter[Assignment | Welcome]] = {
    "assignment": TypeAdapter(Assignment),
    "welcome": TypeAdapter(Welcome),
}


def parse_message(frame: str | bytes, version: int = FIRST_VERSION) -> Decoded[Assignment | Welcome]:
    """Return what a controller of a version has sent. Raises `InputError` for what is unknown, unless it is newer."""
    said = check_shape(frame).get("kind")
    kind = said if isinstance(said, str) else ""
    if kind not in _kinds and kind and version > PROTOCOL_VERSION:
        return Decoded(None, (shortened(kind),))
    known = kind in _kinds and (kind != "welcome" or is_known(Welcome, version))
    adapter = _kinds[kind if known else "assignment"]
    try:
        return decode(adapter, frame, version)
    except ValidationError as error:
        raise input_error(error, Welcome if adapter is _kinds["welcome"] else Assignment) from error


def generation_of(frame: str | bytes) -> int | None:
    """Return the generation that a message names, None where it names none."""
    try:
        return _Numbered.model_validate_json(frame).generation
    except ValidationError:
        return None


def desired_state(assignment: Assignment) -> DesiredState:
    """Return what `assignment` describes. Raises `InputError` for one that no host can ever apply."""
    check_limits(assignment)
    caps = caps_of(assignment.workers)
    codepoints = assignment.codepoints
    codepoints.check(check_queues(assignment.queues))
    ipv6 = any(map(is_ipv6, assignment.addresses))
    trees = {
        port.interface: port_tree(port, assignment.queues, assignment.unregistered_share, caps, codepoints, ipv6=ipv6)
        for port in assignment.ports
    }
    for worker in assignment.workers:
        if not 0 <= worker.klass < assignment.queues:
            raise InputError(f"workers[{worker.job}].klass", worker.klass, f"0 to {assignment.queues - 1}")
    ids = cap_ids(caps)
    by_mark = any(port.classify == "mark" for port in assignment.ports)
    return DesiredState(
        assignment,
        trees,
        {
            port.interface: _classes_by_queue(assignment.queues, caps if port.classify == "mark" else {})
            for port in assignment.ports
        },
        {w.job: Mark(ids.get(w.job, class_id(w.klass)), codepoints.of(w.klass)) for w in assignment.workers} if by_mark else {},
        ipv6,
    )


def _classes_by_queue(queues: int, caps: Mapping[str, Cap]) -> dict[int | None, tuple[int, ...]]:
    """Return the HTB classes that make up each queue: a managed class and the capped jobs in its priority."""
    ids = cap_ids(caps)
    managed: dict[int | None, tuple[int, ...]] = {
        k: (class_id(k), *(ids[job] for job, cap in caps.items() if cap.klass == k)) for k in range(queues)
    }
    return managed | {None: (UNREGISTERED,)}
