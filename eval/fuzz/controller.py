"""A served controller to send hostile input to, beside a study that behaves and whose plan has to stay as it is."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star
from controller.limits import Limits
from eval.fuzz.tally import Tally
from eval.fuzz.turns import TurnProbe
from tests.support.served_controller import Served, served

FABRIC: Fabric = star(4)
GOOD = "good"  # the study that behaves; no hostile input names it
PROGRESS = f"/v1/studies/{GOOD}/trials/t/progress"
SPEAK_S = 60.0  # The good study repeats its reports after so long: what is not heard of for long is left out of account.
PATIENCE_S = 20.0  # A controller has so long for what it does in milliseconds.
LIMITS = Limits(studies=50, request_s=2)


class FuzzedController:
    """A controller under test, and what is noted while inputs are tried on it."""

    def __init__(self, controller: Served, http: httpx.Client) -> None:
        self.served = controller
        self.http = http
        self.probe = TurnProbe()
        self.tally = Tally(self.probe)
        self._spoke_at_s = time.monotonic()
        self._register()
        self._plan = self.plan()

    def plan(self) -> dict[str, Any]:
        """Return the classes of the good study's jobs."""
        jobs: dict[str, Any] = self.http.get("/v1/plan").json()["jobs"]
        return {key: job for key, job in jobs.items() if key.startswith(f"{GOOD}/")}

    def note(self, refused: bool, what: str | None, data: bytes) -> None:
        """Take note of an input that was tried, and of in what it failed."""
        self.tally.add(refused, what or self._disturbance(), [data])

    def _register(self) -> None:
        hosts = [host.name for host in FABRIC.hosts]
        study = f"/v1/studies/{GOOD}"
        trial = f"{study}/trials/t"
        workers = [{"rank": rank, "host": host} for rank, host in enumerate(hosts[:2])]
        for path, body in (
            (study, {}),
            (f"{study}/stages/s", {}),
            (trial, {}),
            (f"{trial}/target", {"step": 5, "stage": "s"}),
            (f"{trial}/attempts/1", {"workers": workers, "sync_bytes": 1000}),
            (PROGRESS, {"step": 1}),
        ):
            self.http.put(path, json=body).raise_for_status()
        if not self.served.until(lambda runtime: f"{GOOD}/t" in runtime.plan.jobs):
            raise RuntimeError("the study that behaves was not planned")

    def _disturbance(self) -> str | None:
        """Return in what the good study is served worse than before, None if in nothing."""
        if time.monotonic() > self._spoke_at_s + SPEAK_S:
            self._spoke_at_s = time.monotonic()
            self.http.put(PROGRESS, json={"step": 1})
        try:
            plan = self.plan()
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return f"the plan is not answered: {error!r}"
        return None if plan == self._plan else f"the plan of the study that behaves has changed: {plan}"


@contextmanager
def fuzzed_controller() -> Iterator[FuzzedController]:
    """Serve a controller with first-in, first-out order, in which the good study's class depends on no later one."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(FABRIC, Path(folder) / "journal.db", "fifo", LIMITS) as controller,
        httpx.Client(base_url=controller.url, timeout=PATIENCE_S, trust_env=False) as http,
    ):
        fuzzed = FuzzedController(controller, http)
        probing = asyncio.run_coroutine_threadsafe(fuzzed.probe.run(), controller.loop)
        try:
            yield fuzzed
        finally:
            probing.cancel()
