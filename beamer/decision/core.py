"""The decision core of both levels: asks a policy, checks what it decides, and keeps the old decision when it fails.

A live system survives a policy's defect: an exception, a decision that cannot be carried out, or a state that the journal
cannot keep leaves the last decision in force, the policy is asked again after a while, and a remembered state that cannot be
read is replaced by the initial one. A simulation raises instead, since it is there to show such defects, and keeps no journal.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from beamer.decision.policy import Policy
from beamer.decision.state import read_state, write_state
from beamer.errors import InputError
from beamer.log_limit import LogLimit
from beamer.studies.events import Decision

S = TypeVar("S")
V = TypeVar("V")
D = TypeVar("D")

Decide = Callable[[S, V, float, Random], tuple[S, D, float | None]]
"""(state, view, now, rng) -> (state, decision, when to ask again if nothing happens or None), times in seconds."""

RETRY_S = 10.0
"""After which a policy that failed is asked again if nothing happens: long against a decision, short against a job."""

LINES_AN_HOUR = 20
"""About failures: who makes jobs that a policy fails at may make them fail in ever other ways."""

log = logging.getLogger("beamer.decision")


@dataclass(frozen=True)
class Proposal(Generic[S, D]):
    """What a policy decided and remembers, and when to ask it again.

    plain_state: the state as the journal keeps it, None in a simulation. failed: whether the policy failed, so that all else is
    what was in force before; error: how.
    """

    state: S
    content: D
    wake_s: float | None
    plain_state: Any
    failed: bool = False
    error: str = ""


class DecisionCore(Generic[S, V, D]):
    """Ask a policy on behalf of one level, and remember for it.

    policy: whose state is kept. decide: asks it. check: raises `InputError` for a decision that a view cannot be given.
    last: the level's last decision in the journal. draws: what decision number g draws from, see `seeded`. live: whether
    failures leave the old decision in force; in a simulation they are raised.
    """

    def __init__(
        self,
        policy: Policy[S],
        decide: Decide[S, V, D],
        check: Callable[[V, D], None],
        last: Decision | None,
        draws: Callable[[int], Random],
        live: bool = True,
    ) -> None:
        self._policy = policy
        self._decide = decide
        self._check = check
        self._draws = draws
        self._live = live
        self._logged = ""
        self._limit = LogLimit(LINES_AN_HOUR, 3600.0)
        self._state = self._recall(last)
        self._plain_state = write_state(policy, self._state) if live else None

    @property
    def state(self) -> S:
        """What the policy remembers of its last decision in force."""
        return self._state

    def standing(self, in_force: D) -> Proposal[S, D]:
        """Return what is in force as it is, with what the policy remembers of it."""
        return Proposal(self._state, in_force, None, self._plain_state)

    def propose(self, view_of: Callable[[], V], in_force: D, now: float, generation: int) -> Proposal[S, D]:
        """Return what the policy decides, as decision number `generation`, on the view that `view_of` returns.

        If either fails, that is what is in force already, and the policy is to be asked again after `RETRY_S`.
        """
        try:
            view = view_of()
            state, content, wake_s = self._decide(self._state, view, now, self._draws(generation))
            self._check(view, content)
            plain = write_state(self._policy, state) if self._live and state != self._state else self._plain_state
        except Exception as error:  # A policy's defect must not stop what runs.
            if not self._live:
                raise
            text = f"{type(error).__name__}: {error}"
            self._log_failure(text, error)
            return Proposal(self._state, in_force, now + RETRY_S, self._plain_state, failed=True, error=text)
        self._logged = ""
        return Proposal(state, content, wake_s, plain)

    def adopt(self, proposal: Proposal[S, D]) -> None:
        """Take note that a proposal is in force."""
        self._state, self._plain_state = proposal.state, proposal.plain_state

    def _log_failure(self, text: str, error: Exception) -> None:
        """Log a failure once, however often the policy is asked again, and few of those that alternate."""
        is_new = text != self._logged and self._limit.take("failure")
        level = logging.ERROR if is_new else logging.DEBUG
        self._logged = text
        log.log(level, "policy %s failed, the old decision stays in force: %s", self._policy.name, text, exc_info=error)

    def _recall(self, last: Decision | None) -> S:
        """Return the state of the journal's last decision, if this policy made it and can read it."""
        if last is None or last.policy != self._policy.name:
            return self._policy.initial()
        try:
            return read_state(self._policy, last.state)
        except InputError as error:
            if not self._live:
                raise
            log.warning("policy %s cannot read what it remembered and starts afresh: %s", self._policy.name, error)
            return self._policy.initial()


def seeded(seed: int) -> Callable[[int], Random]:
    """Return what decision number g draws from: (seed, g), so that a restarted process decides as the one before would have."""
    return lambda generation: Random(f"{seed}/{generation}")
