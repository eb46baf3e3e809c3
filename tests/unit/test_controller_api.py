import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from beamer.network.connection import Connection
from beamer.network.policies import network_policy
from beamer.network.protocol import Applied, Connections
from beamer.studies.journal.store import Journal
from controller.api import create_app
from controller.openflow.reports import PairCount
from controller.runtime import Runtime
from controller.testing import SwitchesInMemory
from topologies.single import build

FABRIC = build(hosts=3)
HOSTS = FABRIC.hosts
TRIAL = "/v1/studies/mnist/stages/rung0/jobs/trial1"
JOB = {
    "workers": [{"rank": 0, "host": HOSTS[0].name}, {"rank": 1, "host": HOSTS[1].name, "role": "worker"}],
    "iterations": 5,
    "sync_bytes": 600_000,
}


class Api:
    def __init__(self, path: Path) -> None:
        def drive(on_event: Callable[..., None]) -> SwitchesInMemory:
            self.switches = SwitchesInMemory([s.name for s in FABRIC.switches], on_event)
            return self.switches

        journal = Journal(f"sqlite:///{path / 'journal.db'}")
        self.now = 100.0
        self.runtime = Runtime(FABRIC, journal, network_policy("beamer"), 8, drive, 0, lambda: self.now)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(create_app(self.runtime)), base_url="http://beamer")

    async def put(self, path: str, body: object = None) -> httpx.Response:
        return await self.client.put(path, json=body)

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def register(self) -> None:
        for path, body in (
            ("/v1/studies/mnist", {"weight": 2.0, "rungs": [{"name": "rung0", "jobs": 1, "iterations": 5}]}),
            ("/v1/studies/mnist/stages/rung0", {}),
            (TRIAL, JOB),
        ):
            answer = await self.put(path, body)
            assert (answer.status_code, answer.json()) == (200, {"changed": True})

    async def refused(self, status: int, path: str, body: object = None) -> dict[str, Any]:
        answer = await self.put(path, body)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert set(error) == {"field", "value", "expected", "message"}
        return error


@pytest.fixture
def scene(tmp_path: Path) -> Callable[[Callable[[Api], Coroutine[Any, Any, None]]], None]:
    def run(play: Callable[[Api], Coroutine[Any, Any, None]]) -> None:
        async def run_play() -> None:
            api = Api(tmp_path)
            await api.runtime.start()
            try:
                async with api.client:
                    await play(api)
            finally:
                await api.runtime.stop()

        asyncio.run(run_play())

    return run


Scene = Callable[[Callable[[Api], Coroutine[Any, Any, None]]], None]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_a_stage_from_registration_to_its_completion_time(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        await api.put(f"{TRIAL}/workers/0", {"pid": 77})
        await api.put(f"{TRIAL}/progress/3")
        await api.put("/v1/studies/mnist/stages/rung0/seal")
        api.now = 112.5
        await api.put(f"{TRIAL}/status", {"status": "finished"})
        stage = await api.get("/v1/studies/mnist/stages/rung0")
        assert (stage["status"], stage["registered_s"], stage["sealed_s"]) == ("done", 100.0, 100.0)
        assert (stage["ended_s"], stage["sct_s"]) == (112.5, 12.5)
        [job] = stage["jobs"]
        assert (job["key"], job["status"], job["done"], job["ended_s"]) == ("mnist/rung0/trial1", "finished", 3, 112.5)
        [study] = (await api.get("/v1/studies"))["studies"]
        assert (study["name"], study["weight"], study["stages"]) == ("mnist", 2.0, [stage])

    scene(play)


def test_every_write_is_idempotent(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        writes: list[tuple[str, object]] = [
            (f"{TRIAL}/workers/1", {"pid": 5}),
            (f"{TRIAL}/progress/2", None),
            ("/v1/studies/mnist/stages/rung0/seal", {}),
            (f"{TRIAL}/status", {"status": "killed"}),
        ]
        for path, body in writes:
            assert (await api.put(path, body)).json() == {"changed": True}
            assert (await api.put(path, body)).json() == {"changed": False}
        assert (await api.put(TRIAL, JOB)).json() == {"changed": False}

    scene(play)


def test_bad_input_names_field_value_and_expectation(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        other = TRIAL.replace("trial1", "trial2")

        error = await api.refused(422, other, {**JOB, "workers": [{"rank": 0, "host": "hh1"}]})
        assert error["value"] == "hh1"
        assert "did you mean 'h1'" in error["expected"]
        error = await api.refused(422, other, {**JOB, "sync_bytes": -1})
        assert ("sync_bytes" in error["field"], error["value"]) == (True, -1)
        error = await api.refused(422, other, {"worker": [], **{k: v for k, v in JOB.items() if k != "workers"}})
        assert (error["field"], "did you mean 'workers'" in error["expected"]) == ("worker", True)
        error = await api.refused(422, other, {**JOB, "workers": [{"rank": "0", "host": "h1"}]})
        assert (error["field"], error["value"]) == ("workers[0].rank", "0")
        error = await api.refused(422, f"{TRIAL}/progress/soon")
        assert (error["field"], error["value"]) == ("iteration", "soon")
        error = await api.refused(422, f"{TRIAL}/status", {"status": "running"})
        assert error["field"] == "status"
        await api.refused(422, TRIAL)
        await api.refused(422, "/v1/studies/imagenet", {"weight": 0})
        await api.refused(404, "/v1/studies/cifar/stages/rung0")
        await api.refused(404, f"{other}/progress/1")
        error = await api.refused(409, TRIAL, {**JOB, "iterations": 6})
        assert "trial1" in error["message"] or "iterations" in error["message"]
        missing = await api.client.get("/v1/studies/mnist/stages/rung9")
        assert (missing.status_code, missing.json()["error"]["field"]) == (404, "stage")
        assert len((await api.get("/v1/studies"))["studies"]) == 1

    scene(play)


def test_a_number_that_json_cannot_express_is_refused_in_words(scene: Scene) -> None:
    async def play(api: Api) -> None:
        answer = await api.client.put(
            "/v1/studies/mnist", content='{"weight": NaN}', headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422
        assert answer.json()["error"]["value"] in ("nan", "NaN")

    scene(play)


def test_plan_says_what_runs_where(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        await api.put(f"{TRIAL}/workers/0", {"pid": 77})
        runtime = api.runtime
        await until(lambda: runtime.installation.generation > 1)
        for agent in runtime.installation.agents:
            runtime.on_agent_message(agent, Applied(generation=runtime.agent_joined(agent).generation, changes=0))
        plan = await api.get("/v1/plan")
        assert (plan["policy"], plan["queues"], plan["installed_everywhere"]) == ("beamer", 8, True)
        assert plan["jobs"] == {"mnist/rung0/trial1": {"class": 0, "cap_bps": None}}
        everywhere = {*plan["installed"]["switches"].values(), *plan["installed"]["agents"].values()}
        assert everywhere == {plan["generation"]}
        runtime.agent_lost(HOSTS[0].agent)
        assert (await api.get("/v1/plan"))["installed"]["agents"][HOSTS[0].agent] == 0
        assert not (await api.get("/v1/health"))["installed_everywhere"]

        api.now = 100.25
        await api.put(f"{TRIAL}/status", {"status": "finished"})
        await until(lambda: not runtime.plan.jobs)
        for agent in runtime.installation.agents:
            runtime.on_agent_message(agent, Applied(generation=runtime.agent_joined(agent).generation, changes=0))
        latencies = await api.get("/v1/latencies")
        assert len(latencies["plan_ms"]) >= 1
        assert latencies["p99"] == max(latencies["plan_ms"])

    scene(play)


def test_counters_name_the_job(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        connection = Connection("mnist/rung0/trial1", 0, HOSTS[0].ip, 5, HOSTS[1].ip, 6)
        seen = Connections(connections=(connection,), unmatched_bytes={"mnist/rung0/trial1": 9})
        api.runtime.on_agent_message(HOSTS[0].agent, seen)
        api.switches.pairs = (PairCount(FABRIC.switches[0].name, 1, HOSTS[0].name, HOSTS[1].name, 2, True, 3028, 2, False),)
        counters = await api.get("/v1/counters")
        [pair] = counters["host_pairs"]
        assert (pair["job"], pair["class"], pair["sent_bytes"], pair["final"]) == ("mnist/rung0/trial1", 2, 3028, False)
        assert counters["unmatched_bytes"] == {"mnist/rung0/trial1": 9}

    scene(play)


def test_metrics_are_scrapable(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        text = (await api.client.get("/metrics")).text
        assert 'beamer_jobs{status="running"} 1.0' in text
        assert 'beamer_installed_generation{kind="switch",name="s1"}' in text

    scene(play)
