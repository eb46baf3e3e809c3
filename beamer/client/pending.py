"""What waits to be sent, in an order that holds wherever it matters and nowhere else, within bounds.

Requests are sent in the order in which they came, but for those that must wait: one that is to be tried again later holds up
what builds on it, and nothing else. What builds on what is as between readers and writers (Courtois, Heymans and Parnas 1971):
a request changes the study, stage or trial that it is about, and reads the study and the stage that it names. It follows all
earlier changes of what it reads, and all earlier reads, too, of what it changes. So the trials of a study are independent of
each other, the end of a study follows all of them, and a stage is sealed after every target that names it.

Pure but for its own state: time is an argument.
"""

import heapq
import itertools
from dataclasses import dataclass, field

from beamer.client.request import PutRequest, Scope


@dataclass(eq=False)
class Entry:
    """A request in the queue.

    tries: how often the answer was that its names are unknown. failures: how often the controller failed at it. own_failures:
    of these, where nothing else failed. aside: whether it is the first to be dropped. start: how many starts of its trial were
    put before it, as progress gives way to newer progress of the same attempt alone.
    """

    request: PutRequest
    number: int
    size_bytes: int = 0
    tries: int = 0
    failures: int = 0
    own_failures: int = 0
    aside: bool = False
    start: int = 0
    before: "set[Entry]" = field(default_factory=set)  # requests that must be done with before this one
    after: "set[Entry]" = field(default_factory=set)
    waits: bool = False  # True unless the request is taken or dropped.


@dataclass
class _Order:
    """Who was last to use a scope: a change, and the reads since, as far as they are not done with."""

    change: Entry | None = None
    reads: dict[Entry, None] = field(default_factory=dict)


class PendingRequests:
    """The requests that wait, at most `most` of `most_bytes` bytes of content."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._reset()

    def _reset(self) -> None:
        self._numbers = itertools.count()
        self._entries: dict[Entry, None] = {}
        self._bytes = 0
        self._order: dict[Scope, _Order] = {}
        self._by_trial: dict[Scope, dict[Entry, None]] = {}  # requests that wait
        self._ended: dict[Scope, None] = {}  # trials whose ends wait, the first one first
        self._progress: dict[Scope, Entry] = {}  # the newest progress that waits
        self._starts: dict[Scope, int] = {}  # how many starts were put of each trial of which any request waits
        self._aside: dict[Entry, None] = {}  # The request that was set aside first comes first.
        self._ready: list[tuple[int, Entry]] = []  # Both are heaps; entries that were dropped since are skipped.
        self._delayed: list[tuple[float, int, Entry]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, request: PutRequest) -> list[PutRequest]:
        """Add a request; return those that are dropped for want of room.

        These are what was set aside; then what waits of the first trial that has ended: all of it if the controller has not
        heard of the trial, or else all but its end. Where no such trial waits, it is the request itself.
        """
        scope = request.address.scope
        older = self._progress.get(scope) if request.progress else None
        if older is not None and older.start == self._starts.get(scope, 0):
            request.follow(older.request)
            self._resize(older, request)
            return []
        dropped = self._make_room(request)
        if request not in dropped:
            if request.starts_trial:
                self._starts[scope] = self._starts.get(scope, 0) + 1
            self._add(Entry(request, next(self._numbers), start=self._starts.get(scope, 0)))
        return dropped

    def take(self, now: float, at_once: bool = False) -> Entry | None:
        """Return the first request that may be sent, None if there is none; it is given back by `done` or `delay`.

        at_once: what was delayed may be sent, too.
        """
        while self._delayed and (at_once or self._delayed[0][0] <= now):
            self._offer(heapq.heappop(self._delayed)[2])
        while self._ready:
            entry = heapq.heappop(self._ready)[1]
            if entry.waits:
                self._unlist(entry)
                return entry
        return None

    def due(self) -> float | None:
        """Return when the first of the delayed requests may be sent, None if there is none."""
        while self._delayed and not self._delayed[0][2].waits:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def delay(self, entry: Entry, until: float) -> None:
        """Give back a request that was taken, to be sent later, or its trial's newer progress instead."""
        if entry not in self._entries:
            return
        scope = entry.request.address.scope
        newer = self._progress.get(scope) if entry.request.progress else None
        if newer is not None and newer.start == entry.start:
            newer.request.follow(entry.request)
            self._resize(newer, newer.request)
            newer.tries, newer.failures, newer.own_failures = entry.tries, entry.failures, entry.own_failures
            if entry.aside:
                self.set_aside(newer)
            self.done(entry)
            return
        self._list(entry)
        heapq.heappush(self._delayed, (until, entry.number, entry))

    def set_aside(self, entry: Entry) -> None:
        """Let a request be the first to be dropped for want of room."""
        if entry in self._entries:
            entry.aside = True
            self._aside[entry] = None

    def done(self, entry: Entry) -> None:
        """Forget a request that was taken, unless it was cleared meanwhile: what builds on it may be sent."""
        if entry not in self._entries:
            return
        self._remove(entry)
        for follower in entry.after:
            follower.before.discard(entry)
            self._offer(follower)
        entry.after.clear()

    def clear(self) -> list[PutRequest]:
        """Drop everything; return it in order."""
        left = [entry.request for entry in sorted(self._entries, key=lambda entry: entry.number)]
        self._reset()
        return left

    def _add(self, entry: Entry) -> None:
        self._entries[entry] = None
        self._resize(entry, entry.request)
        for scope, changes in entry.request.needs():
            order = self._order.setdefault(scope, _Order())
            earlier = [*order.reads] if changes and order.reads else [order.change] if order.change else []
            for one in earlier:
                one.after.add(entry)
                entry.before.add(one)
            if changes:
                order.change, order.reads = entry, {}
            else:
                order.reads[entry] = None
        self._list(entry)
        self._offer(entry)

    def _offer(self, entry: Entry) -> None:
        if entry.waits and not entry.before:
            heapq.heappush(self._ready, (entry.number, entry))

    def _make_room(self, request: PutRequest) -> list[PutRequest]:
        """Drop what must be dropped for a request, or the request itself; return that."""
        dropped: list[PutRequest] = []
        size_bytes = len(request.content or b"")
        while len(self._entries) >= self._most or self._bytes + size_bytes > self._most_bytes:
            waiting = self._first_aside() or self._of_ended_trial()
            if not waiting and request.ends_trial:
                waiting = list(self._by_trial.get(request.address.scope, ()))
            if not waiting:
                return [*dropped, request]
            dropped += [entry.request for entry in waiting]
            for entry in waiting:
                self._drop(entry)
            if any(entry.request.registers and entry.request.address.scope == request.address.scope for entry in waiting):
                return [*dropped, request]
        return dropped

    def _first_aside(self) -> list[Entry]:
        """Return the first request that was set aside and waits, nothing if there is none."""
        return [*itertools.islice((entry for entry in self._aside if entry.waits), 1)]

    def _of_ended_trial(self) -> list[Entry]:
        """Return what may be dropped of the first trial that has ended, nothing if there is none."""
        while self._ended:
            scope = next(iter(self._ended))
            del self._ended[scope]
            waiting = list(self._by_trial.get(scope, ()))
            is_unknown = any(entry.request.registers for entry in waiting)
            found = [entry for entry in waiting if is_unknown or not entry.request.ends_trial]
            if found:
                return found
        return []

    def _drop(self, entry: Entry) -> None:
        """Remove a trial's request that waits: what comes after it follows what comes before it."""
        self._unlist(entry)
        scope = entry.request.address.scope
        if self._order[scope].change is entry:
            self._order[scope].change = next((one for one in entry.before if one.request.address.scope == scope), None)
        for earlier in entry.before:
            earlier.after.discard(entry)
            earlier.after |= entry.after
        for later in entry.after:
            later.before.discard(entry)
            later.before |= entry.before
            self._offer(later)
        self._remove(entry)
        if len(self._ready) + len(self._delayed) > 2 * self._most:
            self._ready = [item for item in self._ready if item[1].waits]
            self._delayed = [item for item in self._delayed if item[2].waits]
            heapq.heapify(self._ready)
            heapq.heapify(self._delayed)

    def _list(self, entry: Entry) -> None:
        """Let a request wait."""
        entry.waits = True
        scope = entry.request.address.scope
        if entry.request.address.trial is not None:
            self._by_trial.setdefault(scope, {})[entry] = None
        if entry.request.ends_trial:
            self._ended.setdefault(scope)
        if entry.request.progress:
            self._progress[scope] = entry

    def _unlist(self, entry: Entry) -> None:
        """Let a request wait no more."""
        entry.waits = False
        scope = entry.request.address.scope
        of_trial = self._by_trial.get(scope)
        if of_trial is not None:
            of_trial.pop(entry, None)
            if not of_trial:
                del self._by_trial[scope]
                self._ended.pop(scope, None)
        if self._progress.get(scope) is entry:
            del self._progress[scope]

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry]
        self._aside.pop(entry, None)
        self._bytes -= entry.size_bytes
        for scope, _ in entry.request.needs():
            order = self._order.get(scope, _Order())
            order.reads.pop(entry, None)
            if order.change is entry:
                order.change = None
            if order.change is None and not order.reads:
                self._order.pop(scope, None)
                self._starts.pop(scope, None)

    def _resize(self, entry: Entry, request: PutRequest) -> None:
        entry.request = request
        self._bytes -= entry.size_bytes
        entry.size_bytes = len(request.content or b"")
        self._bytes += entry.size_bytes
