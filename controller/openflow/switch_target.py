"""What one switch should hold, and who is told what it can."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from controller.openflow.capabilities import SwitchCapabilities
from controller.openflow.forms import FULL, RuleForm, without_shadow, writes_shadow
from controller.openflow.meters import RateMeter
from controller.openflow.rules import Rule, Slot


@dataclass(frozen=True)
class UnknownNeighbours:
    """What depends on switches of which it is not known yet what they can hold: it stays as it is found.

    hosts: at their edges, as positions in `Fabric.hosts`. No rule writes a shadow address towards these, unless it is found
    doing so. rules: that are not wanted, and stay where they are found.
    """

    hosts: frozenset[int] = frozenset()
    rules: Mapping[Slot, Rule] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return bool(self.hosts or self.rules)

    def as_found(self, wanted: Rule | None, slot: Slot, found: Collection[Rule]) -> tuple[Rule | None, bool]:
        """Return what is wanted in a slot beside these, and whether that depends on them. found: what the slot holds."""
        if wanted is None:
            kept = self.rules.get(slot)
            return (kept, True) if kept is not None and kept in found else (None, False)
        if (pair := wanted.pair) is None or pair.dst not in self.hosts:
            return wanted, False
        rewriting = [action for action in wanted.actions if writes_shadow(action)]
        is_found = any(action in rule.actions for rule in found for action in rewriting)
        return wanted if is_found else without_shadow(wanted), True


NOBODY = UnknownNeighbours()


@dataclass(frozen=True)
class SwitchTarget:
    """The rules and the meters that one switch should hold, and their generation.

    rules: also change to later generations'. form: theirs. unknown: neighbours.
    """

    generation: int
    rules: Mapping[Slot, Rule]
    meters: frozenset[RateMeter] = frozenset()
    form: RuleForm = FULL
    unknown: UnknownNeighbours = NOBODY


async def _unheard(capabilities: SwitchCapabilities) -> None:
    pass


async def _kept(rules: Sequence[Rule], full: Mapping[int, int]) -> bool:
    return True


@dataclass(frozen=True)
class FormCalls:
    """Who is told what a switch can hold, and may then set another target.

    answered: what it says of its tables. refused: the rules that it refuses for what they are, and by table that is full, how
    many it holds; returns whether there is a form that it can hold. took_all: that it holds its target.
    """

    answered: Callable[[SwitchCapabilities], Awaitable[None]] = _unheard
    refused: Callable[[Sequence[Rule], Mapping[int, int]], Awaitable[bool]] = _kept
    took_all: Callable[[], None] = lambda: None
