"""What each level may be told of the other beyond where trials run: parts that are switched on one by one."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from beamer.errors import InputError, nearest

EVERY = "all"
LIVE = ("placement", "resizing")
"""The parts that a controller has, beyond the simulator: those that gain and need nothing that only the simulator knows."""


@dataclass(frozen=True)
class JointParts:
    """Which parts are switched on."""

    placement: bool = False
    """Trials go to nodes between which links are used least, see `beamer.joint.placement`."""
    resizing: bool = False
    """Policies that resize know what the network of sizes that were not tried would cost, see `beamer.joint.resizing`."""
    planes: bool = False
    """A trial's paths are those that are used least, see `beamer.joint.planes`."""
    phases: bool = False
    """A trial starts when its coflows meet those of others least, see `beamer.joint.phases`."""

    @classmethod
    def of(cls, field: str, names: Iterable[str]) -> "JointParts":
        """Return the parts of these names switched on, `all` of them by that.

        Raises `InputError` for an unknown one, of the field that it came by.
        """
        chosen: set[str] = set()
        for name in names:
            if name not in PARTS and name != EVERY:
                raise InputError(field, name, nearest(name, [*PARTS, EVERY]))
            chosen |= set(PARTS) if name == EVERY else {name}
        return cls(**dict.fromkeys(chosen, True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that are switched on."""
        return tuple(name for name in PARTS if getattr(self, name))


PARTS = tuple(field.name for field in fields(JointParts))
NO_PARTS = JointParts()


def check_live(field: str, parts: JointParts) -> JointParts:
    """Return parts that a controller has. Raises `InputError` for others, of the field that they came by."""
    for name in parts.names:
        if name not in LIVE:
            raise InputError(field, name, f"{', '.join(LIVE)}: the others are parts of the simulator alone")
    return parts
