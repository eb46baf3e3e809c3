"""What one switch should hold, and who is told what it can."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.openflow.capabilities import SwitchCapabilities
from controller.openflow.forms import FULL, RuleForm
from controller.openflow.meters import RateMeter
from controller.openflow.rules import Rule, Slot


@dataclass(frozen=True)
class SwitchTarget:
    """The rules and the meters that one switch should hold, and their generation.

    rules: also change to later generations'. form: theirs.
    """

    generation: int
    rules: Mapping[Slot, Rule]
    meters: frozenset[RateMeter] = frozenset()
    form: RuleForm = FULL


@dataclass(frozen=True)
class FormCalls:
    """Who is told what a switch can hold, and may then set another target.

    answered: what it says of its tables. refused: the rules that it refuses for what they are, and by table that is full, how
    many it holds; returns whether there is a form that it can hold. took_all: that it holds its target.
    """

    answered: Callable[[SwitchCapabilities], None] = lambda capabilities: None
    refused: Callable[[Sequence[Rule], Mapping[int, int]], bool] = lambda rules, full: True
    took_all: Callable[[], None] = lambda: None
