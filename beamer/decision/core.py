"""The decision core of both levels: asks a policy, checks what it decides, and keeps the old decision when it fails.

A live system survives a policy's defect: an exception, a decision that cannot be carried out, or a state that the journal
cannot keep leaves the last decision in force, and a remembered state that cannot be read is replaced by the initial one. A
simulation raises instead, since it is there to show such defects.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from beamer.decision.policy import Policy
from beamer.errors import InputError
from beamer.studies.events import Decision
from beamer.validation import input_error

S = TypeVar("S")
V = TypeVar("V")
D = TypeVar("D")

Decide = Callable[[S, V, float, Random], tuple[S, D, float | None]]
"""(state, view, now, rng) -> (state, decision, when to ask again if nothing happens or None), times in seconds."""

log = logging.getLogger("beamer.decision")


@dataclass(frozen=True)
class Proposal(Generic[S, D]):
    """What a policy decided and remembers, and when to ask it again.

    remembered: the state as plain JSON. failed: whether the policy failed, so that all else is what was in force before.
    """

    state: S
    content: D
    wake_s: float | None
    remembered: Any
    failed: bool = False


class DecisionCore(Generic[S, V, D]):
    """Ask a policy on behalf of one level, and remember for it.

    policy: whose state is kept. decide: asks it. check: raises `InputError` for a decision that a view cannot be given.
    last: the level's last decision in the journal. seed: decision g draws from (seed, g), so that a restarted process decides
    as its predecessor would have. survives: whether failures leave the old decision in force; otherwise they are raised.
    """

    def __init__(
        self,
        policy: Policy[S],
        decide: Decide[S, V, D],
        check: Callable[[V, D], None],
        last: Decision | None,
        seed: int = 0,
        survives: bool = True,
    ) -> None:
        self.policy = policy.name
        self.generation = last.generation if last else 0
        self._decide = decide
        self._check = check
        self._seed = seed
        self._survives = survives
        self._state_type: TypeAdapter[Any] = TypeAdapter(policy.State)
        self._state = self._recall(policy, last)

    @property
    def state(self) -> S:
        """What the policy remembers of its last decision in force."""
        return self._state

    def standing(self, in_force: D) -> Proposal[S, D]:
        """Return what is in force as it is, with what the policy remembers of it."""
        return Proposal(self._state, in_force, None, self._plain(self._state))

    def propose(self, view_of: Callable[[], V], in_force: D, now: float) -> Proposal[S, D]:
        """Return what the policy decides on the view that `view_of` returns; if either fails, what is in force already."""
        try:
            view = view_of()
            state, content, wake_s = self._decide(self._state, view, now, Random(f"{self._seed}/{self.generation + 1}"))
            self._check(view, content)
            return Proposal(state, content, wake_s, self._plain(state))
        except Exception as error:  # a policy's defect must not stop what runs
            if not self._survives:
                raise
            log.exception("policy %s failed, the old decision stays in force: %s", self.policy, error)
            return replace(self.standing(in_force), failed=True)

    def adopt(self, proposal: Proposal[S, D], generation: int) -> None:
        """Take note that a proposal is in force as decision number `generation`."""
        self._state = proposal.state
        self.generation = generation

    def _plain(self, state: S) -> Any:
        return self._state_type.dump_python(state, mode="json")

    def _recall(self, policy: Policy[S], last: Decision | None) -> S:
        """Return the state of the journal's last decision, if this policy made it and can read it."""
        if last is None or last.policy != policy.name:
            return policy.initial()
        try:
            return self._read(policy, last.state)
        except InputError as error:
            if not self._survives:
                raise
            log.warning("policy %s cannot read what it remembered and starts afresh: %s", policy.name, error)
            return policy.initial()

    def _read(self, policy: Policy[S], plain: Any) -> S:
        """Return the state that `_plain` wrote. Raises `InputError` for anything else, another version's fields among it."""
        names = {field.name for field in fields(policy.State)}  # type: ignore[arg-type]  # every state is a dataclass
        if not isinstance(plain, dict) or plain.keys() != names:
            raise InputError(f"state of {policy.name}", plain, f"a mapping with {', '.join(sorted(names)) or 'no key'}")
        try:
            state: S = self._state_type.validate_python(plain)
        except ValidationError as error:
            raise input_error(error, prefix=f"state of {policy.name}") from error
        return state
