import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from beamer.clock import SteadyClock
from beamer.network.connection import Connection
from beamer.network.policies import network_policy
from beamer.network.protocol import Applied, Connections, WorkerId, WorkerLease, Workers
from beamer.studies.journal.store import Journal
from beamer.studies.model import Process
from controller.http.api import create_app
from controller.liveness.watch import WatchOptions
from controller.openflow.reports import PairCount
from controller.settings import ControllerSettings
from tests.support.served_controller import SwitchesInMemory, made_runtime
from topologies.single import build

FABRIC = build(hosts=3)
HOSTS = FABRIC.hosts
STUDY = "/v1/studies/mnist"
STAGE = f"{STUDY}/stages/rung0"
TRIAL = f"{STUDY}/trials/trial1"
ATTEMPT = f"{TRIAL}/attempts/one"
PLACED = {
    "workers": [{"rank": 0, "host": HOSTS[0].name}, {"rank": 1, "host": HOSTS[1].name, "role": "worker"}],
    "sync_bytes": 600_000,
}
DECLARED = {"run": "a", "weight": 2.0, "rungs": [{"name": "rung0", "trials": 1, "step": 5}]}


class Api:
    def __init__(self, path: Path, watch: WatchOptions) -> None:
        self.switches = SwitchesInMemory([s.name for s in FABRIC.switches])
        journal = Journal(f"sqlite:///{path / 'journal.db'}")
        self.now = 100.0
        clock = SteadyClock(lambda: self.now, lambda: self.now)
        settings = ControllerSettings(FABRIC, network_policy("beamer"), watch=watch)
        self.runtime = made_runtime(settings, journal, self.switches, clock)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(create_app(self.runtime)), base_url="http://beamer")

    async def put(self, path: str, body: object = None) -> httpx.Response:
        return await self.client.put(path, json=body)

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def register(self) -> None:
        for path, body in (
            (STUDY, DECLARED),
            (STAGE, {}),
            (TRIAL, {}),
            (f"{TRIAL}/target", {"step": 5, "stage": "rung0"}),
            (ATTEMPT, PLACED),
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
def watch() -> WatchOptions:
    return WatchOptions()


@pytest.fixture
def scene(tmp_path: Path, watch: WatchOptions) -> Callable[[Callable[[Api], Coroutine[Any, Any, None]]], None]:
    def run(play: Callable[[Api], Coroutine[Any, Any, None]]) -> None:
        async def run_play() -> None:
            api = Api(tmp_path, watch)
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
        await api.put(f"{TRIAL}/workers/0", {"pid": 77, "start": 5, "namespace": 4026531836})
        await api.put(f"{TRIAL}/progress", {"step": 3, "loss": 0.5})
        await api.put(f"{STAGE}/seal")
        api.now = 112.5
        await api.put(f"{TRIAL}/progress", {"step": 5})
        stage = await api.get(STAGE)
        assert (stage["status"], stage["registered_s"], stage["sealed_s"]) == ("done", 100.0, 100.0)
        assert (stage["ended_s"], stage["sct_s"]) == (112.5, 12.5)
        assert (stage["targets"], stage["missing"]) == ({"trial1": 5}, [])
        await until(lambda: bool(api.runtime.plan.jobs))
        trial = await api.get(TRIAL)
        assert (trial["key"], trial["status"], trial["done"], trial["loss"]) == ("mnist/trial1", "running", 5, 0.5)
        assert trial["class"] is not None
        assert trial["targets"] == [{"step": 5, "stage": "rung0", "set_s": 100.0, "reached_s": 112.5, "time_s": 12.5}]
        [attempt] = trial["attempts"]
        assert [worker["process"] and worker["process"]["pid"] for worker in attempt["workers"]] == [77, None]
        assert (attempt["name"], attempt["profile"]["sync_bytes"], attempt["reason"]) == ("one", 600_000, None)

        await api.put(f"{TRIAL}/status", {"status": "finished"})
        api.now = 113.0
        await api.put(f"{STUDY}/end")
        [study] = (await api.get("/v1/studies"))["studies"]
        assert study == await api.get(STUDY)
        assert (study["name"], study["run"], study["status"], study["weight"]) == ("mnist", "a", "ended", 2.0)
        assert (study["makespan_s"], study["search_s"]) == (12.5, 13.0)
        assert study["stages"] == [stage]
        [ended] = study["trials"]
        assert (ended["status"], ended["class"], ended["ended_s"]) == ("finished", None, 112.5)
        assert ended["attempts"][0]["reason"] == "ended"

    scene(play)


def test_every_write_is_idempotent(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        writes: list[tuple[str, object]] = [
            (f"{TRIAL}/target", {"step": 7}),
            (f"{TRIAL}/workers/1", {"pid": 5}),
            (f"{TRIAL}/progress", {"step": 2}),
            (f"{TRIAL}/progress", {"step": 2, "loss": "nan"}),
            (f"{TRIAL}/workers/1/detach", None),
            (f"{ATTEMPT}/end", {"reason": "paused"}),
            (f"{TRIAL}/attempts/two", PLACED),
            (f"{TRIAL}/pause", None),
            (f"{STAGE}/seal", {}),
            (f"{TRIAL}/status", {"status": "killed"}),
        ]
        for path, body in writes:
            assert (await api.put(path, body)).json() == {"changed": True}, path
            assert (await api.put(path, body)).json() == {"changed": False}, path
        for path, body in ((STUDY, DECLARED), (STAGE, {}), (TRIAL, {}), (ATTEMPT, PLACED)):
            assert (await api.put(path, body)).json() == {"changed": False}, path
        for changed in (True, False):
            assert (await api.put(f"{STUDY}/end", None)).json() == {"changed": changed}
        refused = await api.put(STUDY, DECLARED)
        assert (refused.status_code, refused.json()["error"]["field"]) == (409, "run"), "what has ended does not begin again"

    scene(play)


def test_what_is_missing_of_a_study_stays_as_it_is(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        assert (await api.put(STUDY, {})).json() == {"changed": False}
        assert (await api.put(STUDY, {"weight": 3})).json() == {"changed": True}
        study = await api.get(STUDY)
        assert (study["run"], study["weight"], study["barriers"]) == ("a", 3.0, True)
        assert study["rungs"] == DECLARED["rungs"]
        later = [{"name": "rung1", "trials": 1, "step": 9}]
        assert (await api.put(f"{STUDY}?run=a", {"rungs": later, "barriers": False})).json() == {"changed": True}
        study = await api.get(STUDY)
        assert (study["weight"], study["rungs"], study["barriers"]) == (3.0, later, False)

    scene(play)


def test_a_study_that_is_started_again_begins_anew(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        await api.put(f"{TRIAL}/progress", {"step": 4})
        assert (await api.put(STUDY, {"run": "b"})).json() == {"changed": True}
        study = await api.get(STUDY)
        assert (study["run"], study["past_runs"], study["trials"], study["weight"]) == ("b", ["a"], [], 1.0)
        past = await api.get(f"{STUDY}?run=a")
        assert (past["status"], past["trials"][0]["status"], past["trials"][0]["done"]) == ("ended", "killed", 4)
        assert (await api.get(f"{TRIAL}?run=a"))["status"] == "killed"
        assert (await api.get(f"{STAGE}?run=a"))["status"] == "done"
        writes: list[tuple[str, object]] = [
            (STUDY, {}),
            (f"{STUDY}/end", None),
            (STAGE, {}),
            (f"{STAGE}/seal", None),
            (TRIAL, {}),
            (f"{TRIAL}/target", {"step": 7}),
            (ATTEMPT, PLACED),
            (f"{ATTEMPT}/end", {"reason": "lost"}),
            (f"{TRIAL}/pause", None),
            (f"{TRIAL}/workers/0", {"pid": 5}),
            (f"{TRIAL}/workers/0/detach", None),
            (f"{TRIAL}/progress", {"step": 6}),
            (f"{TRIAL}/status", {"status": "finished"}),
        ]
        for path, body in writes:
            error = await api.refused(409, f"{path}?run=a", body)
            assert (error["field"], error["value"]) == ("run", "a"), path
            assert "got 'a', expected b, the present run of mnist" in error["message"]
        assert "a" in (await api.refused(409, STUDY, {"run": "a"}))["value"]
        assert (await api.get(STUDY))["trials"] == []
        await api.refused(404, f"{STAGE}?run=c", {})
        await api.refused(422, f"{STUDY}?run=c", {"run": "b"})
        assert (await api.put(f"{TRIAL}?run=b", {})).json() == {"changed": True}

    scene(play)


def test_a_trial_moves_resizes_and_goes_further(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        moved = {"workers": [{"rank": 0, "host": HOSTS[2].name}], "sync_bytes": 7}
        for path, body in (
            (f"{TRIAL}/attempts/two", moved),
            (f"{TRIAL}/attempts/three", {**PLACED, "sync_bytes": None}),
            (f"{TRIAL}/target", {"step": 20, "stage": "rung0"}),
            (f"{TRIAL}/progress", {"step": 20}),
            (f"{TRIAL}/target", {"step": 30, "stage": "rung0"}),
            (f"{TRIAL}/progress", {"step": 31}),
        ):
            assert (await api.put(path, body)).json() == {"changed": True}
        trial = await api.get(TRIAL)
        assert [attempt["reason"] for attempt in trial["attempts"]] == ["moved", "moved", None]
        assert [(target["step"], target["time_s"]) for target in trial["targets"]] == [(5, 0.0), (20, 0.0), (30, 0.0)]
        assert (trial["status"], trial["done"]) == ("running", 31)

    scene(play)


def test_bad_input_names_field_value_and_expectation(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        other = f"{TRIAL}/attempts/two"

        error = await api.refused(422, other, {**PLACED, "workers": [{"rank": 0, "host": "hh1"}]})
        assert error["value"] == "hh1"
        assert "did you mean 'h1'" in error["expected"]
        error = await api.refused(422, other, {**PLACED, "sync_bytes": -1})
        assert ("sync_bytes" in error["field"], error["value"]) == (True, -1)
        error = await api.refused(422, other, {"worker": [], "sync_bytes": 3})
        assert (error["field"], "did you mean 'workers'" in error["expected"]) == ("worker", True)
        error = await api.refused(422, other, {**PLACED, "workers": [{"rank": "0", "host": "h1"}]})
        assert (error["field"], error["value"]) == ("workers[0].rank", "0")
        for bad in ({"step": "soon"}, {"step": 3.0}, {"step": True}, {}):
            assert (await api.refused(422, f"{TRIAL}/progress", bad))["field"] == "step"
        error = await api.refused(422, f"{TRIAL}/status", {"status": "running"})
        assert error["field"] == "status"
        error = await api.refused(422, f"{ATTEMPT}/end", {"reason": "moved"})
        assert error["field"] == "reason"
        for pid in (0, 1, -5, 2**23):
            assert (await api.refused(422, f"{TRIAL}/workers/0", {"pid": pid}))["field"] == "pid"
        # A container's first process says this of itself.
        error = await api.refused(422, f"{TRIAL}/workers/0", {"pid": 1, "start": 5, "namespace": 4026531836})
        assert "attach through the agent" in error["expected"]
        await api.refused(422, f"{TRIAL}/workers/first", {"pid": 9})
        await api.refused(422, ATTEMPT)
        await api.refused(422, "/v1/studies/imagenet", {"weight": 0})
        await api.refused(404, "/v1/studies/cifar/stages/rung0")
        await api.refused(404, f"{STUDY}/trials/trial2/progress", {"step": 1})
        await api.refused(404, f"{TRIAL}/workers/7", {"pid": 9})
        missing = await api.client.get(f"{STUDY}/stages/rung9")
        assert (missing.status_code, missing.json()["error"]["field"]) == (404, "stage")
        missing = await api.client.get(f"{STUDY}/trials/trial9")
        assert (missing.status_code, missing.json()["error"]["field"]) == (404, "trial")
        assert (await api.client.get("/v1/nothing")).json()["error"]["message"] == "Not Found"
        assert len((await api.get("/v1/studies"))["studies"]) == 1

    scene(play)


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, 10**400])
def test_a_number_that_nothing_counts_up_to_is_refused_in_words(scene: Scene, number: int) -> None:
    async def play(api: Api) -> None:
        await api.register()
        placed = f"{TRIAL}/attempts/two"
        for path, body in (
            (STUDY, {"rungs": [{"name": "r", "trials": number, "step": 1}]}),
            (STUDY, {"rungs": [{"name": "r", "trials": 1, "step": number}]}),
            (TRIAL, {"budget": number}),
            (f"{TRIAL}/target", {"step": number}),
            (placed, {**PLACED, "sync_bytes": number}),
            (placed, {"workers": [{"rank": number, "host": HOSTS[0].name}]}),
            (f"{TRIAL}/workers/0", {"pid": number}),
            (f"{TRIAL}/workers/0", {"pid": 9, "start": number}),
            (f"{TRIAL}/workers/{number}", {"pid": 9}),
            (f"{TRIAL}/workers/{number}/detach", None),
            (f"{TRIAL}/progress", {"step": number}),
        ):
            error = await api.refused(422, path, body)
            assert error["field"], path
            assert str(number) in str(error["value"]), path
            assert error["expected"], path

    scene(play)


def test_a_number_too_long_to_be_read_is_refused_in_words(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        answer = await api.client.put(
            f"{TRIAL}/progress", content=f'{{"step": 1{"0" * 5000}}}', headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "body")

    scene(play)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_no_number_is_kept(scene: Scene, loss: str) -> None:
    async def play(api: Api) -> None:
        await api.register()
        await api.put(f"{TRIAL}/progress", {"step": 3, "loss": loss})
        assert (await api.get(TRIAL))["loss"] == loss

    scene(play)


@pytest.mark.parametrize("watch", [WatchOptions(grace_s=1e-3)])
def test_a_leased_worker_is_shown_and_its_end_ends_the_attempt(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        held = WorkerLease(study="mnist", trial="trial1", rank=0, run="a", process=Process(7, 7, leased=True))
        agent, tracker = HOSTS[0].agent, api.runtime.tracker
        refused = (WorkerId(job="mnist/trial1", rank=1), "its process belongs to another user")
        api.runtime.on_agent_message(agent, Workers(leases=(held,), refused=(refused,)))  # of a worker on another's host
        api.runtime.on_agent_message(HOSTS[1].agent, Workers(refused=(refused,)))
        attempt = tracker.trials["mnist/trial1"].attempt
        assert attempt is not None
        await until(lambda: 0 in attempt.processes)
        trial = await api.get(TRIAL)
        assert trial["attempts"][0]["workers"][0]["process"] == {
            "pid": 7, "start": 7, "namespace": 0, "uid": None, "leased": True,
        }  # fmt: skip
        assert trial["unattached"] == [{"rank": 1, "agent": HOSTS[1].agent, "reason": refused[1]}]
        api.runtime.on_agent_message(agent, Workers())
        while tracker.running:
            api.now += 1.0
            await asyncio.sleep(0.001)
        trial = await api.get(TRIAL)
        assert (trial["status"], trial["class"], trial["attempts"][0]["reason"]) == ("lost", None, "lost")
        await until(lambda: not api.runtime.plan.jobs)
        api.runtime.on_agent_message(agent, Workers(leases=(held,)))
        await until(lambda: bool(tracker.running and api.runtime.plan.jobs))
        assert (await api.get(TRIAL))["status"] == "running"

    scene(play)


@pytest.mark.parametrize("watch", [WatchOptions(silence_s=0.05)])
def test_what_is_silent_is_taken_up_again_by_a_repeat(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        study = api.runtime.tracker.study("mnist")
        api.now += 1.0
        await until(lambda: study.status == "silent")
        assert {(await api.get(STAGE))["status"], (await api.get(TRIAL))["status"]} == {"silent"}
        await until(lambda: not api.runtime.plan.jobs)
        assert (await api.put(ATTEMPT, PLACED)).json() == {"changed": True}
        assert [(await api.get(path))["status"] for path in (STUDY, STAGE, TRIAL)] == ["active", "open", "running"]
        await until(lambda: bool(api.runtime.plan.jobs))

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
        await until(lambda: bool(runtime.agent_joined(HOSTS[0].agent or "").workers))
        for agent in runtime.installation.agents:
            runtime.on_agent_message(agent, Applied(generation=runtime.agent_joined(agent).generation, changes=0))
        plan = await api.get("/v1/plan")
        assert (plan["policy"], plan["queues"], plan["installed_everywhere"]) == ("beamer", 8, True)
        assert plan["jobs"] == {"mnist/trial1": {"class": 0, "cap_bps": None}}
        everywhere = {*plan["installed"]["switches"].values(), *plan["installed"]["agents"].values()}
        assert everywhere == {plan["generation"]}
        runtime.agent_lost(HOSTS[0].agent)
        assert (await api.get("/v1/plan"))["installed"]["agents"][HOSTS[0].agent] == 0
        assert not (await api.get("/v1/health"))["installed_everywhere"]

        api.now = 100.25
        await api.put(f"{TRIAL}/status", {"status": "finished"})
        await until(lambda: not runtime.plan.jobs)
        wanted = runtime.installation.generation
        for agent in runtime.installation.agents:  # each is sent it when the switch has acknowledged it
            await until(lambda agent=agent: runtime.agent_joined(agent).generation == wanted)
            runtime.on_agent_message(agent, Applied(generation=wanted, changes=0))
        latencies = await api.get("/v1/latencies")
        assert len(latencies["plan_ms"]) >= 1
        assert latencies["p99"] == max(latencies["plan_ms"])
        assert latencies["events"] >= len(latencies["plan_ms"])
        assert latencies["phases_ms"]["agents"]["p99"] is not None

    scene(play)


def test_counters_name_the_job(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        connection = Connection("mnist/trial1", 0, HOSTS[0].ip, 5, HOSTS[1].ip, 6)
        seen = Connections(connections=(connection,), unmatched_bytes={"mnist/trial1": 9})
        api.runtime.on_agent_message(HOSTS[0].agent, seen)
        api.switches.pairs = (PairCount(FABRIC.switches[0].name, 1, HOSTS[0].name, HOSTS[1].name, 2, True, 3028, 2, False),)
        counters = await api.get("/v1/counters")
        [pair] = counters["host_pairs"]
        assert (pair["job"], pair["plane"], pair["class"], pair["final"]) == ("mnist/trial1", FABRIC.plane_of(1), 2, False)
        assert pair["sent_bytes"] == 3028
        assert counters["unmatched_bytes"] == {"mnist/trial1": 9}

    scene(play)


def test_metrics_are_scrapable(scene: Scene) -> None:
    async def play(api: Api) -> None:
        await api.register()
        agent = HOSTS[0].agent or ""
        api.runtime.agents._on_message(agent, Connections(connections=(), left_out={"connections": 205}))
        text = (await api.client.get("/metrics")).text
        assert f'beamer_agent_left_out{{agent="{agent}",message="connections",part="connections"}} 205.0' in text
        assert 'beamer_trials{status="running"} 1.0' in text
        assert 'beamer_installed_generation{kind="switch",name="s1"}' in text

    scene(play)


def test_others_are_answered_while_many_studies_are_written(scene: Scene) -> None:
    async def play(api: Api) -> None:
        rungs = [{"name": f"r{step}", "trials": 0, "step": step} for step in range(1, 501)]  # a study is a part of the answer
        for i in range(50):
            assert (await api.put(f"/v1/studies/s{i}", {"rungs": rungs})).status_code == 200
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        running = asyncio.create_task(others())
        studies = (await api.get("/v1/studies"))["studies"]
        running.cancel()
        assert [study["name"] for study in studies] == [f"s{i}" for i in range(50)]
        assert turns >= 50

    scene(play)
