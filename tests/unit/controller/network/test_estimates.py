"""What the controller learns of trials and shows: counters and progress in, an order that follows, figures out."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from beamer.clock import SteadyClock
from beamer.errors import PlatformError
from beamer.network.events import Measured
from beamer.network.policies import network_policy
from beamer.network.protocol import Counters, WorkerBytes
from beamer.studies.events import Event
from beamer.studies.journal.store import Journal
from beamer.studies.records import TrialRecord
from controller.http.api import create_app
from controller.runtime import Runtime
from controller.settings import ControllerSettings
from tests.support.served_controller import made_runtime
from topologies.single import build

FABRIC = build(hosts=4)
A, B = FABRIC.hosts[:2]
MB = 1_000_000
TRIALS = "/v1/studies/s/trials"


class Api:
    """A controller behind its HTTP API, with a clock that stands until it is moved."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.path = path
        self.runtime = self.controller()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(create_app(self.runtime)), base_url="http://beamer")

    def controller(self) -> Runtime:
        journal = Journal(f"sqlite:///{self.path / 'journal.db'}")
        clock = SteadyClock(lambda: self.now, lambda: self.now)
        return made_runtime(ControllerSettings(FABRIC, network_policy("sebf")), journal, clock=clock)

    async def put(self, path: str, body: object = None) -> None:
        answer = await self.client.put(path, json=body)
        assert answer.status_code == 200, answer.text

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def start(self, trial: str, **profile: object) -> None:
        await self.put("/v1/studies/s", {"barriers": False})
        await self.put(f"{TRIALS}/{trial}")
        await self.put(f"{TRIALS}/{trial}/target", {"step": 1000})
        workers = [{"rank": 0, "host": A.name}, {"rank": 1, "host": B.name}]
        await self.put(f"{TRIALS}/{trial}/attempts/1", {"workers": workers, **profile})

    async def go_on(self, sent: dict[str, int], lasts: int = 30, reported: bool = True) -> None:
        """Let trials take a step a second. sent: by each rank in a step. reported: whether progress is."""
        for step in range(lasts):
            self.now += 1.0
            counts = {
                rank: tuple(WorkerBytes(job=f"s/{name}", rank=rank, sent_bytes=step * size) for name, size in sent.items())
                for rank in (0, 1)
            }
            for rank, host in enumerate((A, B)):
                self.runtime.on_agent_message(host.agent, Counters(at_s=self.now, ports=(), workers=counts[rank]))
            for name in sent if reported else ():
                await self.put(f"{TRIALS}/{name}/progress", {"step": step})

    async def estimates(self, trial: str) -> Any:
        return (await self.get(f"{TRIALS}/{trial}"))["estimates"]


def scene(path: Path, play: Callable[[Api], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        api = Api(path)
        await api.runtime.start()
        try:
            async with api.client:
                await play(api)
        finally:
            await api.runtime.stop()

    asyncio.run(run())


def test_each_figure_is_shown_with_its_source_and_error(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.start("a")
        assert await api.estimates("a") == {
            "sync_bytes": {"value": 100 * MB, "source": "predicted", "error": None, "overruled": False, "declared": None},
            "compute_s": {"value": 0.0, "source": "predicted", "error": None, "overruled": False, "declared": None},
            "remaining_steps": {"value": 1000, "source": "declared", "error": None, "overruled": False, "declared": 1000},
        }
        await api.go_on({"a": MB})
        shown = await api.estimates("a")
        assert shown["sync_bytes"]["source"] == shown["compute_s"]["source"] == "measured"
        assert shown["sync_bytes"]["value"] == pytest.approx(MB, rel=0.01)
        assert shown["sync_bytes"]["error"] == pytest.approx(0.0, abs=0.1)
        assert shown["remaining_steps"]["value"] == 1000 - 29

    scene(tmp_path, play)


def test_estimates_are_shown_at_one_trial_and_not_worked_out_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(api: Api) -> None:
        await api.start("a")
        figures, asked = api.runtime.estimates.figures, list[str]()

        def counted(trial: TrialRecord) -> dict[str, Any] | None:
            asked.append(trial.key)
            return figures(trial)

        monkeypatch.setattr(api.runtime.estimates, "figures", counted)
        [study] = (await api.get("/v1/studies"))["studies"]
        of_one = await api.get("/v1/studies/s")
        assert ["estimates" in trial for trial in (*study["trials"], *of_one["trials"])] == [False, False]
        assert asked == []
        assert await api.estimates("a") is not None

    scene(tmp_path, play)


def test_a_contradicted_declaration_is_overruled_shown_and_logged_once(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.start("a", sync_bytes=MB // 10, compute_s=0.0)
        with capture_logs() as logged:
            await api.go_on({"a": MB}, lasts=60)
        shown = (await api.estimates("a"))["sync_bytes"]
        assert (shown["source"], shown["overruled"], shown["declared"]) == ("measured", True, MB // 10)
        [line] = [line for line in logged if line["log_level"] == "warning"]
        assert (line["trial"], line["field"], line["declared"]) == ("s/a", "sync_bytes", MB // 10)
        assert line["measured"] == pytest.approx(MB, rel=0.01)

    scene(tmp_path, play)


def test_a_declaration_without_progress_is_overruled_shown_and_logged_once(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.start("a", sync_bytes=1)
        with capture_logs() as logged:
            await api.go_on({"a": 40 * MB}, lasts=120, reported=False)
        shown = (await api.estimates("a"))["sync_bytes"]
        assert (shown["value"], shown["source"], shown["overruled"], shown["declared"]) == (100 * MB, "predicted", True, 1)
        [line] = [line for line in logged if line["log_level"] == "warning"]
        assert (line["trial"], line["field"], line["declared"], line["measured"]) == ("s/a", "sync_bytes", 1, None)

    scene(tmp_path, play)


def test_an_event_of_one_trial_does_not_go_through_what_is_overruled_of_all(tmp_path: Path) -> None:
    class NotWalked(set[tuple[str, str]]):
        def __iter__(self) -> Iterator[tuple[str, str]]:
            raise AssertionError("all that is overruled is gone through")

    async def play(api: Api) -> None:
        await api.start("a", sync_bytes=MB // 10)
        profiles = api.runtime.network.profiles
        profiles.overruled = NotWalked(profiles.overruled)
        with capture_logs() as logged:
            await api.go_on({"a": MB})
            await api.start("b")
        assert [line["trial"] for line in logged if line["log_level"] == "warning"] == ["s/a"]

    scene(tmp_path, play)


def test_who_declares_too_little_loses_its_class_by_it(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.start("honest", sync_bytes=2 * MB)
        await api.start("liar", sync_bytes=4 * MB // 10)

        async def first_is(trial: str) -> bool:
            jobs = (await api.get("/v1/plan"))["jobs"]
            return len(jobs) == 2 and min(jobs, key=lambda key: jobs[key]["class"]) == trial

        while not await first_is("s/liar"):
            await asyncio.sleep(0.01)
        await api.go_on({"honest": 2 * MB, "liar": 4 * MB})
        while not await first_is("s/honest"):
            await asyncio.sleep(0.01)

    scene(tmp_path, play)


def test_a_controller_that_starts_again_knows_what_was_learnt(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.start("a", sync_bytes=MB // 10)
        await api.go_on({"a": MB})
        before = await api.estimates("a")
        await api.runtime.stop()
        with capture_logs() as logged:
            again = api.controller()
        try:
            after = again.estimates.figures(again.tracker.trial("s/a"))
            assert after is not None
            for name in ("sync_bytes", "compute_s", "remaining_steps"):
                assert {**after[name], "error": None} == {**before[name], "error": None}
            assert [line for line in logged if line["log_level"] == "warning"] == []
        finally:
            await again.stop()

    scene(tmp_path, play)


def test_a_journal_that_takes_nothing_loses_no_measurement(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.start("a")
        record, refused = api.runtime.estimates._record, list[Event]()

        def refusing(event: Event) -> bool:
            refused.append(event)
            raise PlatformError("the disk is full", "free some space")

        api.runtime.estimates._record = refusing
        await api.go_on({"a": MB})
        assert isinstance(refused[0], Measured)
        assert (await api.estimates("a"))["sync_bytes"]["source"] == "predicted"
        api.runtime.estimates._record = record
        for rank, host in enumerate((A, B)):
            count = WorkerBytes(job="s/a", rank=rank, sent_bytes=30 * MB)
            api.runtime.on_agent_message(host.agent, Counters(at_s=api.now, ports=(), workers=(count,)))
        assert (await api.estimates("a"))["sync_bytes"]["source"] == "measured"

    scene(tmp_path, play)


def test_a_trial_that_ended_shows_what_was_measured_of_it(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        for trial in "ab":
            await api.start(trial)
        await api.go_on({"a": MB})
        for trial in "ab":
            await api.put(f"{TRIALS}/{trial}/status", {"status": "finished"})
        assert (await api.estimates("a"))["sync_bytes"]["source"] == "measured"
        assert await api.estimates("b") is None

    scene(tmp_path, play)


def test_a_past_runs_trial_has_no_estimates(tmp_path: Path) -> None:
    async def play(api: Api) -> None:
        await api.put("/v1/studies/s", {"run": "first", "barriers": False})
        await api.put(f"{TRIALS}/a")
        assert await api.estimates("a") is None
        await api.put("/v1/studies/s", {"run": "second", "barriers": False})
        await api.put(f"{TRIALS}/a")
        assert (await api.get(f"{TRIALS}/a?run=first"))["estimates"] is None

    scene(tmp_path, play)
