"""Classes as DSCP codepoints: what hosts mark, what edge switches write and every port's queues go by.

A profile says which. `LOCAL` has eight classes and no meaning to anybody else: switches have to be configured for it. The
others put classes in the order in which a switch ranks that goes by the upper three bits of the DSCP, its IP precedence (RFC
791), most urgent first. They stay clear of 6 and 7, which network control has (RFC 2474), and of EF, 46 (RFC 3246). Within each
precedence they take what RFC 2474 leaves to local use, so that they are no codepoint of a standard.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from beamer.errors import InputError
from beamer.network.plan import QUEUES

Dscp = Annotated[int, Field(ge=1, le=63)]


@dataclass(frozen=True)
class Codepoints:
    """The codepoints of a network, all of them different.

    classes: by class, most urgent first. acknowledgement: of pure acknowledgements between a host and its edge switch, which
    gives them class 0.
    """

    classes: tuple[Dscp, ...]
    acknowledgement: Dscp

    @property
    def all(self) -> tuple[int, ...]:
        """The codepoints that only registered connections may have."""
        return (*self.classes, self.acknowledgement)

    def of(self, klass: int) -> int:
        """Return the DSCP of a class. Raises `InputError` for one that has none."""
        if not 0 <= klass < len(self.classes):
            raise InputError("class", klass, f"0 to {len(self.classes) - 1}")
        return self.classes[klass]

    def check(self, queues: int) -> None:
        """Raise `InputError` where two are equal, or there are fewer than managed classes."""
        if len(set(self.all)) != len(self.all):
            raise InputError("codepoints", list(self.all), "codepoints of which no two are equal")
        if len(self.classes) < queues:
            raise InputError("queues", queues, f"1 to {len(self.classes)}, as many classes as have a codepoint")


LOCAL = Codepoints(tuple(8 * klass + 3 for klass in range(QUEUES)), 7)
PRECEDENCE = Codepoints((47, 39, 31, 23, 15, 7), 43)
PRECEDENCE_ROCE = Codepoints((47, 39, 23, 15, 7), 43)
PROFILES: Mapping[str, Codepoints] = MappingProxyType(
    {"local": LOCAL, "precedence": PRECEDENCE, "precedence-roce": PRECEDENCE_ROCE}
)
"""The profiles by name. `precedence-roce` leaves precedence 3 to RoCEv2, whose packets mostly have DSCP 24 or 26."""
DEFAULT_PROFILE = "local"
"""The profile of switches that are told by OpenFlow, or by their agents, which codepoint has which queue."""
FOREIGN_PROFILE = "precedence"
"""The profile of switches that nobody tells: many of them rank by precedence."""

ANY_PROFILES = frozenset(dscp for profile in PROFILES.values() for dscp in profile.all)
"""The codepoints of any profile: of a network that had another one before, some packets may still have these."""
