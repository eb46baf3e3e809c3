"""What each level may be told of the other beyond where trials run: parts that are switched on one by one."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from beamer.errors import InputError, nearest

EVERY = "all"


@dataclass(frozen=True)
class JointParts:
    """Which parts are switched on.

    survival: declared rungs load the network by the chances that losses give their trials, see `beamer.joint.survival`.
    placement: trials go to nodes between which links are used least, see `beamer.joint.placement`. leaving: the last coflow of
    a trial that leaves its GPUs goes before all others. planes: a trial's paths are those that are used least, see
    `beamer.joint.planes`. phases: a trial starts when its coflows meet those of others least, see `beamer.joint.phases`.
    """

    survival: bool = False
    placement: bool = False
    leaving: bool = False
    planes: bool = False
    phases: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> "JointParts":
        """Return the parts of these names switched on, `all` of them by that. Raises `InputError` for an unknown one."""
        known = [field.name for field in fields(cls)]
        chosen: set[str] = set()
        for name in names:
            if name not in known and name != EVERY:
                raise InputError("joint", name, nearest(name, [*known, EVERY]))
            chosen |= set(known) if name == EVERY else {name}
        return cls(**dict.fromkeys(chosen, True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that are switched on."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name))


NO_PARTS = JointParts()
