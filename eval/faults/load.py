"""Searches that write to a controller all the time, keep what it acknowledged, and look afterwards whether it knows it.

Each connection is one search: stages, trials, targets, attempts and progress, one write after the other. A write without an
answer, or refused with 503, is repeated until it is acknowledged, as the client's outbox does, at the next address if there are
several.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any

import httpx

from eval.faults.base import PATIENCE_S
from eval.faults.site import FABRIC, POLL_S, http_client

CONNECTIONS = 8  # searches at once: several writes share a transaction, and two cores keep up
ANSWER_S = 2.0  # An answer is waited for so long before the write is repeated.
ELSEWHERE_S = 0.5  # A write is repeated at another address after so long: the client waits as long.
RETRY_S = 0.02
PAUSE_S = 0.005  # So long passes between the writes of a search.
STEADY: Mapping[str, Sequence[str]] = MappingProxyType({"steady": tuple(host.name for host in FABRIC.hosts[:2])})
MAX_PROGRESS = 12  # A trial has at most so many reports, so that few trials run at once.


class KnownStudies:
    """What a controller says that it knows, from `/v1/studies`."""

    def __init__(self, studies: Iterable[Mapping[str, Any]]) -> None:
        self._studies: dict[str, Mapping[str, Any]] = {study["name"]: study for study in studies}
        self._stages = self._by_name("stages")
        self._trials = self._by_name("trials")

    def study(self, study: str) -> Mapping[str, Any]:
        """Return a study, empty if it is not known."""
        return self._studies.get(study, {})

    def stage(self, study: str, stage: str) -> Mapping[str, Any]:
        """Return a stage, empty if it is not known."""
        return self._stages.get((study, stage), {})

    def trial(self, study: str, trial: str) -> Mapping[str, Any]:
        """Return a trial, empty if it is not known."""
        return self._trials.get((study, trial), {})

    def _by_name(self, what: str) -> dict[tuple[str, str], Mapping[str, Any]]:
        return {(name, one["name"]): one for name, study in self._studies.items() for one in study[what]}


@dataclass(frozen=True)
class Write:
    """A write. is_known: whether what it said is among what a controller knows."""

    path: str
    body: Mapping[str, Any]
    is_known: Callable[[KnownStudies], bool]


def search(study: str, rng: random.Random) -> Iterator[Write]:
    """Yield the writes of a search without end, one trial at a time."""
    yield Write(f"/v1/studies/{study}", {}, lambda known: bool(known.study(study)))
    for number in count():
        yield from _trial(study, f"r{number}", f"t{number}", rng)


def steady_search(study: str, hosts: Sequence[str] = STEADY["steady"]) -> Iterator[Write]:
    """Yield the writes of a search whose one trial, `t`, runs on some hosts and is never heard of again."""
    yield Write(f"/v1/studies/{study}", {}, lambda known: bool(known.study(study)))
    yield from _started(study, "r", "t", 1000, hosts)


def _started(study: str, stage: str, trial: str, step: int, hosts: Sequence[str]) -> Iterator[Write]:
    base = f"/v1/studies/{study}"
    target = {"step": step, "stage": stage}
    workers = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]

    def has_target(known: KnownStudies) -> bool:
        targets = known.trial(study, trial).get("targets", ())
        return any((found["step"], found["stage"]) == (step, stage) for found in targets)

    def has_attempt(known: KnownStudies) -> bool:
        return any(attempt["name"] == "1" for attempt in known.trial(study, trial).get("attempts", ()))

    yield Write(f"{base}/stages/{stage}", {}, lambda known: bool(known.stage(study, stage)))
    yield Write(f"{base}/trials/{trial}", {}, lambda known: bool(known.trial(study, trial)))
    yield Write(f"{base}/trials/{trial}/target", target, has_target)
    yield Write(f"{base}/trials/{trial}/attempts/1", {"workers": workers, "sync_bytes": 1_000_000}, has_attempt)


def _trial(study: str, stage: str, trial: str, rng: random.Random) -> Iterator[Write]:
    base = f"/v1/studies/{study}"
    reports = rng.randint(3, MAX_PROGRESS)
    hosts = [host.name for host in rng.sample(FABRIC.hosts, 2)]
    yield from _started(study, stage, trial, reports, hosts)
    sealed = Write(f"{base}/stages/{stage}/seal", {}, lambda known: known.stage(study, stage).get("sealed_s") is not None)
    yield sealed
    for step in range(1, reports + 1):
        yield Write(f"{base}/trials/{trial}/progress", {"step": step, "loss": 1 / step}, _has_come(study, trial, step))
    ended = Write(
        f"{base}/trials/{trial}/status",
        {"status": "finished"},
        lambda known: known.trial(study, trial).get("status") == "finished",
    )
    yield ended


def _has_come(study: str, trial: str, step: int) -> Callable[[KnownStudies], bool]:
    return lambda known: known.trial(study, trial).get("done", -1) >= step


class Load:
    """Searches that run for as long as the context lasts, but while they are paused.

    urls: of controllers, one of which leads. steady: hosts by study, for `steady_search`, registered before all others.
    acknowledged: writes in the order of their answers. failures: what was refused,
    or not acknowledged in time. retries: of writes.
    """

    def __init__(
        self, urls: Sequence[str], seed: int, connections: int = CONNECTIONS, steady: Mapping[str, Sequence[str]] = STEADY
    ) -> None:
        self.acknowledged: list[Write] = []
        self.failures: list[str] = []
        self.retries = 0
        self.lost: set[int] = set()
        self._urls = tuple(urls)
        self._steady = steady
        self._seed = seed
        self._connections = connections
        self._going = asyncio.Event()
        self._busy = 0
        self._answered = (0.0, 0.0)  # The times at which the request that was acknowledged last began and ended.
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        for study, hosts in self._steady.items():
            await self._write_all(steady_search(study, hosts))
        self.resume()
        self._tasks = [asyncio.create_task(self._run(number)) for number in range(self._connections)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled() and (failure := task.exception()):
                self.failures.append(repr(failure))

    def resume(self) -> None:
        """Go on after a pause."""
        self._going.set()

    async def pause(self) -> None:
        """Begin no more writes, and wait until those under way are acknowledged. Raises `TimeoutError`."""
        self._going.clear()
        async with asyncio.timeout(PATIENCE_S):
            while self._busy:
                await asyncio.sleep(POLL_S)

    async def recovered(self, since_s: float) -> float:
        """Wait until a request that began later is acknowledged; return the seconds until then.

        Raises `TimeoutError`, at once if every search has ended.
        """
        async with asyncio.timeout(PATIENCE_S):
            while self._answered[0] <= since_s:
                if all(task.done() for task in self._tasks):
                    raise TimeoutError("every search has ended")
                await asyncio.sleep(POLL_S)
        return self._answered[1] - since_s

    async def verify(self, url: str, first: int | None = None) -> None:
        """Ask a controller for everything, and note which of the writes that were acknowledged it does not know.

        first: how many of them, by default all so far.
        """
        first = len(self.acknowledged) if first is None else first
        async with http_client(PATIENCE_S) as http:
            known = KnownStudies((await http.get(f"{url}/v1/studies")).raise_for_status().json()["studies"])
        self.lost.update(i for i, write in enumerate(self.acknowledged[:first]) if not write.is_known(known))

    async def _run(self, number: int) -> None:
        await self._write_all(search(f"c{number}", random.Random(self._seed * 1000 + number)))

    async def _write_all(self, writes: Iterator[Write]) -> None:
        at = 0
        async with http_client(ELSEWHERE_S if len(self._urls) > 1 else ANSWER_S) as http:
            for write in writes:
                if self._tasks:
                    await self._going.wait()
                self._busy += 1
                try:
                    answered = await self._acknowledge(http, write, at)
                finally:
                    self._busy -= 1
                if answered is None:
                    return
                at = answered
                await asyncio.sleep(PAUSE_S)

    async def _acknowledge(self, http: httpx.AsyncClient, write: Write, at: int) -> int | None:
        """Send a write until it is acknowledged; return at which address it was, None for a failure, which ends the search."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            began_s, status = time.monotonic(), 0
            try:
                answer = await http.put(self._urls[at % len(self._urls)] + write.path, json=write.body)
                status, text = answer.status_code, answer.text
            except httpx.TransportError as error:
                text = repr(error)
            if status == 200:
                self._answered = began_s, time.monotonic()
                self.acknowledged.append(write)
                return at
            if 400 <= status < 500 or status == 500 or time.monotonic() > deadline:
                self.failures.append(f"PUT {write.path}: {status} {text[:300]}")
                return None
            self.retries += 1
            at += 1
            await asyncio.sleep(RETRY_S)
