"""A process's membership in a study: while it lasts, the controller knows that somebody looks after the search.

A process that registers a study joins it, and a thread renews the membership until the process leaves the study, ends, or has
dropped its client. A process that is killed renews nothing: what it began is then left out of account.

    membership = membership_of(outbox, Address("resnet", "run1"), holder)
    membership.leave(holder)
"""

import os
import socket
import threading
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from beamer.client.forking import RUNNING
from beamer.client.outbox import Outbox
from beamer.client.request import Address, PutRequest

LEASE_S = 30.0  # A process that is heard of this long after the last time has not been away.
RENEWALS = 3  # so many times in that time
MEMBERS_SINCE = 2
"""The version of the protocol that knows members."""


@lru_cache(maxsize=1)
def _name_of_process(pid: int) -> str:
    return f"{pid}-{uuid.uuid4().hex[:12]}"


class Membership:
    """Keeps this process a member of a run of a study. outbox: that is closed, or dropped by all others, renews nothing.

    name: of the member; None: one that no other process has.

    Those of one outbox share it, see `membership_of`. It ends when the last of its holders that is left leaves.
    """

    def __init__(self, outbox: Outbox, study: Address, name: str | None = None) -> None:
        self._pid = os.getpid()
        self._address = replace(study, member=name or _name_of_process(self._pid))
        self._outbox = weakref.ref(outbox)
        self._holders: weakref.WeakSet[object] = weakref.WeakSet()
        self._left = threading.Event()
        self._answered = True
        weakref.finalize(outbox, self._left.set).atexit = False  # A process may leave at its exit.
        self._join(outbox)
        try:
            threading.Thread(target=self._keep, name="beamer-member", daemon=True).start()
        except RuntimeError as error:  # No thread can be started.
            outbox.warn_once("no thread can be started, so that this process seems to be gone after %g s: %s", LEASE_S, error)

    @property
    def name(self) -> str | None:
        """What tells this process from other members; None in a forked child, which is none."""
        return self._address.member if os.getpid() == self._pid else None

    @property
    def is_over(self) -> bool:
        """Whether it is renewed no more, or is that of a parent."""
        return self._left.is_set() or self.name is None

    def hold(self, holder: object) -> None:
        """Let somebody in this process take part until he leaves or is freed."""
        self._holders.add(holder)

    def end(self) -> None:
        """Renew the membership no more."""
        self._left.set()

    def leave(self, holder: object) -> bool:
        """Let a holder leave: with the last one the membership ends, and the trials that this process began; return whether so.

        The last member's end is the study's. A controller that knows no members is told that the study has ended. A forked
        child leaves nothing.
        """
        outbox = self._outbox()
        self._holders.discard(holder)
        if self.name is None or outbox is None or self._left.is_set() or self._holders:
            return False
        self._left.set()
        instead = PutRequest(replace(self._address, member=None), ("end",))
        outbox.put(PutRequest(self._address, ("leave",), since=MEMBERS_SINCE, instead=instead))
        return True

    def _keep(self) -> None:
        with RUNNING.inside():
            while not self._wait():
                self._renew()

    def _wait(self) -> bool:
        with RUNNING.outside():
            return self._left.wait(LEASE_S / RENEWALS)

    def _renew(self) -> None:
        outbox = self._outbox()
        if outbox is None or outbox.is_closed:
            self._left.set()
        elif self._answered:
            # One that is put while the process leaves is not sent after its leaving.
            self._join(outbox, self._left.is_set)

    def _join(self, outbox: Outbox, unless: Callable[[], bool] | None = None) -> None:
        self._answered = False
        body = {"lease_s": LEASE_S, "host": socket.gethostname(), "pid": self._pid}
        outbox.put(PutRequest(self._address, body=body, then=self._take_answer, unless=unless, since=MEMBERS_SINCE))

    def _take_answer(self) -> None:
        self._answered = True


_memberships: "weakref.WeakKeyDictionary[Outbox, dict[str, Membership]]" = weakref.WeakKeyDictionary()


def end_memberships(outbox: Outbox) -> None:
    """Renew those of an outbox no more."""
    for membership in list(_memberships.get(outbox, {}).values()):  # Another thread may join.
        membership.end()


def membership_of(outbox: Outbox, study: Address, holder: object, name: str | None = None) -> Membership:
    """Return the membership of a run of a study that those of an outbox share, with another holder."""
    known, key = _memberships.setdefault(outbox, {}), repr((study, name))  # What is no name may be anything.
    found = known.get(key)
    if found is None or found.is_over:
        found = known[key] = Membership(outbox, study, name)
    found.hold(holder)
    return found
