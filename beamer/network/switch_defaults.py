"""What switches do with codepoints as they come, by their makers' own documents, and what follows for a profile.

A default is a queue for each DSCP once a switch trusts it. Nothing here was tried on a switch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from beamer.network.codepoints import Codepoints

_DSCPS = 64


@dataclass(frozen=True)
class SwitchDefault:
    """A maker's default. source: where it is documented. queues: by DSCP; of two the larger is served first.

    lossless: queues that pause senders instead of dropping. control: those that a switch's own protocols have. weighted:
    whether the queues share a link by weights instead, so that none is served first.
    """

    name: str
    source: str
    queues: tuple[int, ...]
    lossless: frozenset[int] = frozenset()
    control: frozenset[int] = frozenset()
    weighted: bool = False


@dataclass(frozen=True)
class DefaultOrder:
    """Whether a switch keeps a profile's order by default. reason: why not. ranks: into how many it parts the classes."""

    keeps_order: bool
    ranks: int
    reason: str = ""


def default_order(default: SwitchDefault, profile: Codepoints) -> DefaultOrder:
    """Return what a switch does with the classes of a profile by default."""
    queues = [default.queues[dscp] for dscp in profile.classes]
    ranks = len(set(queues))
    for klass, queue in enumerate(queues):
        if queue in default.lossless:
            return DefaultOrder(
                False, ranks, f"class {klass} (DSCP {profile.of(klass)}) would be in the lossless queue {queue}"
            )
        if queue in default.control:
            return DefaultOrder(
                False, ranks, f"class {klass} (DSCP {profile.of(klass)}) would be in the queue of control, {queue}"
            )
    if default.weighted:
        return DefaultOrder(False, ranks, "queues share a link by weights")
    for klass, (one, next_) in enumerate(pairwise(queues)):
        if one < next_:
            return DefaultOrder(False, ranks, f"class {klass} would be served after class {klass + 1}")
    if ranks == 1:
        return DefaultOrder(False, ranks, f"all classes would be in queue {queues[0]}")
    if default.queues[profile.acknowledgement] != queues[0]:
        return DefaultOrder(False, ranks, "acknowledgements would not be beside class 0")
    return DefaultOrder(True, ranks)


def _table(other: int, known: Mapping[int, int]) -> tuple[int, ...]:
    """Return a queue for each DSCP: the one of those that are known, else another one."""
    return tuple(known.get(dscp, other) for dscp in range(_DSCPS))


_BY_PRECEDENCE = tuple(dscp >> 3 for dscp in range(_DSCPS))
_JUNOS_ASSURED, _JUNOS_EXPEDITED, _JUNOS_CONTROL = 2, 1, 3

SWITCH_DEFAULTS = (
    SwitchDefault(
        "Allied Telesis AT-8100, AT-FS970M",
        "AT-8100 Switch Command Line User's Guide, page 1661, table 210",
        _BY_PRECEDENCE,
        control=frozenset({6, 7}),
    ),
    SwitchDefault(
        "Cisco Nexus 5000, 6000",
        "Cisco Nexus 6000 Series NX-OS Quality of Service Configuration Guide, 6.0(2)N1(1), Trust Boundaries",
        _table(0, {}),
    ),
    SwitchDefault(
        "Cisco Nexus 9000",
        "Cisco Nexus 9000 Series NX-OS Quality of Service Configuration Guide, 10.6(x), Modifying Class Maps",
        _table(0, {}),
    ),
    SwitchDefault(
        "Cumulus Linux 5",
        "Cumulus Linux 5.9 User Guide, Quality of Service: Trust DSCP, Egress Queues, Egress Scheduler",
        _BY_PRECEDENCE,
        weighted=True,
    ),
    SwitchDefault(
        "HP ProCurve 8200zl",
        "Command Line Interface Reference Guide (2009), qos dscp-map",
        # Priorities of 802.1p by their place: 1 and 2 come before 0. Codepoints without one keep the packet's own, 0.
        _table(
            2,
            {10: 0, 12: 0, 14: 1, 22: 3, 26: 4, 28: 4, 30: 5, 34: 6, 36: 6, 38: 7, 46: 7}
            | {8: 0, 16: 1, 24: 3, 32: 4, 40: 5, 48: 6, 56: 7},
        ),
    ),
    SwitchDefault(
        "Juniper Junos, classifier dscp default",
        "Junos OS Class of Service User Guide, Default DSCP and DSCP IPv6 Classifiers",
        _table(
            0,
            {10: _JUNOS_ASSURED, 12: _JUNOS_ASSURED, 14: _JUNOS_ASSURED, 46: _JUNOS_EXPEDITED}
            | {48: _JUNOS_CONTROL, 56: _JUNOS_CONTROL},
        ),
        control=frozenset({_JUNOS_CONTROL}),
    ),
    SwitchDefault(
        "Juniper Junos, implicit ipprec-compatibility",
        "ACX Series Universal Access Router Configuration Guide (2017), table 54",
        tuple(_JUNOS_CONTROL if dscp >> 3 >= 6 else 0 for dscp in range(_DSCPS)),
        control=frozenset({_JUNOS_CONTROL}),
    ),
    SwitchDefault(
        "SONiC, map AZURE",
        "sonic-buildimage, files/build_templates/qos_config.j2, DSCP_TO_TC_MAP and LOSSLESS_TC",
        _table(1, {3: 3, 4: 4, 5: 2, 8: 0, 46: 5, 48: 6}),
        lossless=frozenset({3, 4}),
        control=frozenset({6}),
    ),
)
"""The defaults that are known, in the order of their names."""
