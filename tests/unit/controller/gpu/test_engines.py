"""Engines at a controller: what they report, what holds for them, whose GPUs nobody else gets, and what is refused."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import beamer.cli
from beamer.errors import InputError, PlatformError
from beamer.gpu.devices import Devices
from beamer.gpu.events import Allocated, GpusRequested, NodesSeen, RanksSeen, RunFailed, RunFinished, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.link import hosts_of
from beamer.gpu.model import Grant, Node, Report, Request
from beamer.gpu.protocol import EngineHello, EngineLeft, EngineRefused, GpusUsed, SearchAssignment, SearchEvents, to_engine
from beamer.studies.events import (
    Event,
    StageRegistered,
    StudyEnded,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    encode,
)
from beamer.studies.model import Process, Profile, TrialStatus
from beamer.studies.tracker import STUDIES, Tracker
from controller.http.responses import gpus_response
from controller.runtime import Runtime
from tests.support import plain_http
from tests.support.commands import run_here
from tests.support.served_controller import Served, served
from topologies.single import build

PATIENCE_S = 30.0
NODES = (Node("h1", 1), Node("h2", 1))
PAIR = Request(iterations=100, gpus=2, traffic=Profile(1_000_000, compute_s=0.1))


class Engine:
    """The engine of a study, by hand."""

    def __init__(self, controller: Served, study: str, uses: Devices = ()) -> None:
        self.study = study
        url = controller.url.replace("http", "ws")
        self._opened = ExitStack()
        self.socket: ClientConnection = self._opened.enter_context(connect(f"{url}/v1/studies/{study}/engine"))
        self.socket.send(EngineHello(run="r", nodes=NODES).model_dump_json())
        self.sent = 0
        self.assignment = self.receive()
        self.socket.send(GpusUsed(assignment=0, devices=uses).model_dump_json())
        while not self.assignment.settled:
            self.receive()

    def receive(self) -> SearchAssignment:
        message = to_engine.validate_json(self.socket.recv(PATIENCE_S))
        assert isinstance(message, SearchAssignment), message
        self.assignment = message
        return message

    def tell(self, *events: Event) -> SearchAssignment:
        """Report events and wait until they are durable."""
        first, self.sent = self.sent + 1, self.sent + len(events)
        self.socket.send(SearchEvents(first=first, events=tuple(map(encode, events))).model_dump_json())
        while self.assignment.taken < self.sent:
            self.receive()
        return self.assignment

    def submit(self, trial: str, request: Request = PAIR) -> SearchAssignment:
        key = f"{self.study}/{trial}"
        return self.tell(
            StudyRegistered(0.0, self.study, "r"),
            StageRegistered(0.0, self.study, "rung0"),
            TrialRegistered(0.0, self.study, trial, request.iterations),
            TargetSet(0.0, key, request.iterations, "rung0"),
            GpusRequested(0.0, key, request),
        )

    def until(self, *keys: str) -> SearchAssignment:
        """Wait until these trials, and no others, hold GPUs that may be used."""
        while set(self.assignment.grants) != set(keys):
            self.receive()
        return self.assignment

    def use(self, *devices: tuple[str, int]) -> None:
        self.socket.send(GpusUsed(assignment=self.assignment.number, devices=devices).model_dump_json())

    def hold(self, held_bytes: dict[str, int]) -> None:
        """Say what GPU memory trials hold, as an engine of today."""
        self.socket.send(GpusUsed(assignment=self.assignment.number, devices=(), held_bytes=held_bytes).model_dump_json())

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(build(hosts=2), tmp_path / "journal.db", "beamer", gpus="fifo") as one:
        yield one


@pytest.fixture
def engines(controller: Served) -> Iterator[Any]:
    with ExitStack() as opened:

        def join(study: str, *arguments: Any, **keys: Any) -> Engine:
            engine = Engine(controller, study, *arguments, **keys)
            opened.callback(engine.close)
            return engine

        yield join


def decided(controller: Served, *keys: str) -> None:
    """Wait until GPUs are granted to these trials alone, and engines may carry that out."""

    def holds(runtime: Runtime) -> bool:
        assert runtime.gpu is not None
        last = runtime.gpus.decision
        return set(runtime.gpus.granted) == set(keys) and last is not None and runtime.gpu.released == last.generation

    assert controller.until(holds)


def refusal(engine_or_socket: Engine | ClientConnection) -> str:
    socket = engine_or_socket.socket if isinstance(engine_or_socket, Engine) else engine_or_socket
    try:
        while True:
            message = to_engine.validate_json(socket.recv(PATIENCE_S))
            if isinstance(message, EngineRefused):
                return message.reason
    except ConnectionClosed as error:
        return f"closed: {error}"


def test_a_trial_that_is_granted_gpus_has_workers_and_a_class_until_it_ends(controller: Served, engines: Any) -> None:
    engine = engines("s")
    engine.submit("a")
    assignment = engine.until("s/a")
    assert assignment.devices == {"s/a": (("h1", 0), ("h2", 0))}
    assert controller.until(lambda runtime: "s/a" in runtime.plan.jobs)
    found = plain_http.get(f"{controller.url}/v1/studies/s/trials/a").json()
    assert found["status"] == "running"
    [attempt] = found["attempts"]
    assert [worker["host"] for worker in attempt["workers"]] == ["h1", "h2"]
    assert attempt["profile"]["sync_bytes"] == 1_000_000
    engine.tell(TrialReported(0.0, "s/a", Report(0.0, 40.0, 0.5, 1.0)))
    assert plain_http.get(f"{controller.url}/v1/studies/s/trials/a").json()["done"] == 40
    engine.tell(RunFinished(0.0, "s/a", 100), TrialEnded(0.0, "s/a", TrialStatus.FINISHED))
    engine.until()
    assert controller.until(lambda runtime: "s/a" not in runtime.plan.jobs)
    assert plain_http.get(f"{controller.url}/v1/gpus").json() == {
        "policy": "fifo", "engines": ["s"], "nodes": [{"name": n.name, "gpus": 1, "cpus": 0.0} for n in NODES],
        "generation": controller.ask(lambda runtime: runtime.gpus.decision.generation), "trials": {}, "held_bytes": {},
    }  # fmt: skip


def test_gpu_memory_is_shown_of_trials_that_have_not_ended(controller: Served, engines: Any) -> None:
    first, second = engines("s1"), engines("s2")
    first.submit("a")
    second.submit("b")
    first.hold({"s1/a": 3 << 30, "s1/gone": 5})
    second.hold({"s2/b": 1 << 29})
    both = {"s1/a": 3 << 30, "s2/b": 1 << 29}
    assert controller.until(lambda runtime: gpus_response(runtime)["held_bytes"] == both)
    assert plain_http.get(f"{controller.url}/v1/gpus").json()["held_bytes"] == both
    done = run_here(beamer.cli.main, "status", "--url", controller.url)
    assert " on 2 nodes are given by fifo, engines of s1, s2, 3.5 GiB held\n" in done.stdout
    first.close()
    assert controller.until(lambda runtime: gpus_response(runtime)["held_bytes"] == {"s2/b": 1 << 29})


@pytest.mark.parametrize("key", ["s2/b", "s", "s/", "%"])
def test_an_engine_says_what_trials_of_its_own_study_hold(key: str, controller: Served, engines: Any) -> None:
    engine = engines("s1")
    engine.hold({key: 1})
    assert refusal(engine) == f"held_bytes: got {key!r}, expected a trial of study s1"


def test_gpus_of_one_search_go_to_another_once_nothing_computes_on_them(controller: Served, engines: Any) -> None:
    first, second = engines("s1"), engines("s2")
    first.submit("a")
    first.until("s1/a")
    first.use(("h1", 0), ("h2", 0))
    second.submit("b")
    first.tell(RunFinished(0.0, "s1/a", 100), TrialEnded(0.0, "s1/a", TrialStatus.KILLED))
    first.until()
    decided(controller, "s2/b")
    assert second.submit("b").grants == {}, "its processes have not been seen to end"
    first.use(("h2", 0))
    assert second.submit("b").grants == {}, "one of them has not"
    first.use()
    second.until("s2/b")


def test_what_is_cut_off_keeps_its_gpus_and_one_that_leaves_does_not(controller: Served, engines: Any) -> None:
    first, second = engines("s1"), engines("s2")
    first.submit("a")
    first.until("s1/a")
    first.use(("h1", 0), ("h2", 0))
    second.submit("b")
    first.close()
    assert controller.until(lambda runtime: "s1" not in runtime.gpu.engines.connected)
    assert second.submit("b").grants == {}
    again = engines("s1")
    assert (again.assignment.known, set(again.until("s1/a").grants)) == (True, {"s1/a"})
    again.socket.send(EngineLeft().model_dump_json())
    second.until("s2/b")
    while not again.assignment.left:
        again.receive()
    assert controller.ask(lambda runtime: runtime.tracker.trials["s1/a"].status) is TrialStatus.PAUSED
    second.tell(TrialEnded(0.0, "s2/b", TrialStatus.KILLED))
    second.until()
    second.use()
    assert controller.ask(lambda runtime: dict(runtime.gpus.granted)) == {}, "who has left is given nothing"
    engines("s1").until("s1/a")


def test_a_resumed_trial_is_known_by_its_processes_at_once(controller: Served, engines: Any) -> None:
    engine = engines("s")
    engine.submit("a")
    engine.until("s/a")
    processes = {node.name: Process(4000 + rank, 77, 5) for rank, node in enumerate(NODES)}
    engine.tell(RanksSeen(0.0, "s/a", processes))
    engine.socket.send(EngineLeft().model_dump_json())
    assert controller.until(lambda runtime: not runtime.gpus.granted)
    engine.close()
    engines("s").until("s/a")
    attempt = controller.ask(lambda runtime: runtime.tracker.trials["s/a"].attempt)
    assert (attempt.name, dict(attempt.processes)) == ("gpus-3", dict(enumerate(processes.values())))


def test_what_moves_stays_in_its_attempt_until_it_runs_elsewhere() -> None:
    nodes = (Node("h1", 1), Node("h2", 1), Node("h3", 2))
    ledger = GpuLedger()
    tracker = Tracker(ledger)
    request = Request(iterations=100, gpus=2)

    def allocated(generation: int, devices: Devices) -> Allocated:
        counts: dict[str, int] = {}
        for node, _ in devices:
            counts[node] = counts.get(node, 0) + 1
        return Allocated(float(generation), "fifo", generation, None, {"s/a": Grant.of(counts)}, {"s/a": devices})

    def hosts() -> tuple[str, list[str], dict[int, Process]]:
        attempt = tracker.trials["s/a"].attempt
        assert attempt is not None
        return attempt.name, [worker.host for worker in attempt.workers], dict(attempt.processes)

    first, second = Process(1001, 5, 9), Process(1002, 6, 9)
    moved = Process(1003, 7, 9)
    told: list[Event] = [
        NodesSeen(0.0, nodes),
        StudyRegistered(0.0, "s"),
        TrialRegistered(0.0, "s", "a", 100),
        GpusRequested(0.0, "s/a", request),
        allocated(1, (("h1", 0), ("h2", 0))),
        RanksSeen(1.0, "s/a", {"h1": first, "h2": second}),
    ]
    for event in told:
        assert tracker.check(event), event
        tracker.apply(event)
    assert hosts() == ("gpus-1", ["h1", "h2"], {0: first, 1: second})
    tracker.apply(allocated(2, (("h3", 0), ("h3", 1))))
    assert hosts() == ("gpus-1", ["h1", "h2"], {0: first, 1: second}), "it runs there until an iteration boundary"
    tracker.apply(RanksSeen(3.0, "s/a", {"h3": moved}))
    assert hosts() == ("gpus-2", ["h3", "h3"], {0: moved})
    tracker.apply(Allocated(4.0, "fifo", 3, None, {}, {}))
    assert tracker.trials["s/a"].status is TrialStatus.PAUSED
    tracker.apply(allocated(4, (("h3", 0), ("h3", 1))))
    assert hosts() == ("gpus-4", ["h3", "h3"], {0: moved}), "who is resumed is known at once"


def test_events_that_are_sent_again_change_nothing(controller: Served, engines: Any) -> None:
    engine = engines("s")
    engine.submit("a")
    engine.until("s/a")
    told = (
        RanksSeen(0.0, "s/a", {"h1": Process(4000, 77, 5)}),
        TrialReported(0.0, "s/a", Report(0.0, 40.0, 0.5, 1.0)),
        RunFailed(0.0, "s/a", 1, "it was killed"),
        TrialReported(0.0, "s/a", Report(0.0, 60.0, 0.4, 2.0)),
        RunFinished(0.0, "s/a", 100),
        TrialEnded(0.0, "s/a", TrialStatus.FINISHED),
        StudyEnded(0.0, "s"),
    )
    engine.tell(*told[:-1])
    again = engines("s")
    before = controller.ask(lambda runtime: (runtime.tracker.state()[STUDIES.stored_name], runtime.gpus.state()))
    again.submit("a")
    again.tell(*told[:-1])
    assert controller.ask(lambda runtime: (runtime.tracker.state()[STUDIES.stored_name], runtime.gpus.state())) == before
    assert again.tell(told[-1]).ended
    last = engines("s")
    assert last.assignment.ended
    last.submit("a")
    assert last.tell(*told).ended, "what is told again of a study that is over changes nothing"


def test_a_restarted_controller_keeps_back_what_may_be_in_use(tmp_path: Path) -> None:
    with served(build(hosts=2), tmp_path / "journal.db", gpus="fifo") as controller:
        engine = Engine(controller, "s1")
        engine.submit("a")
        engine.until("s1/a")
    with served(build(hosts=2), tmp_path / "journal.db", gpus="fifo") as controller:
        assert controller.ask(lambda runtime: list(runtime.gpus.granted)) == ["s1/a"]
        other = Engine(controller, "s2")
        assert other.submit("b").grants == {}
        engine = Engine(controller, "s1")
        assert engine.until("s1/a").known
        engine.tell(TrialEnded(0.0, "s1/a", TrialStatus.KILLED))
        engine.until()
        engine.use()
        other.until("s2/b")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (TrialRegistered(0.0, "other", "a"), "what happens to s under its engine"),
        (Allocated(0.0, "fifo", 9, None, {}, {}), "what happens to s under its engine"),
        (TrialRegistered(0.0, "s", "no\nname"), "trial: got"),
        (TrialEnded(0.0, "s/none", TrialStatus.KILLED), "trial: got 'none'"),
        (GpusRequested(0.0, "s/none", PAIR), "trial: got 'none'"),
    ],
)
def test_what_an_engine_may_not_tell_is_refused(controller: Served, engines: Any, event: Event, said: str) -> None:
    engine = engines("s")
    engine.submit("a")
    engine.until("s/a")
    engine.socket.send(SearchEvents(first=99, events=(encode(event),)).model_dump_json())
    assert said in refusal(engine)
    assert controller.ask(lambda runtime: list(runtime.gpus.granted)) == ["s/a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "kind"),
        ("[" * 5000, "JSON"),
        ('{"kind": "left"}', "a hello as the first message"),
        (EngineHello(run="r", nodes=(Node("h9", 1),)).model_dump_json(), "nodes[0].name: got 'h9', expected a host"),
        (EngineHello(run="r", nodes=(Node("h1", 1), Node("h1", 1))).model_dump_json(), "a name that no other node has"),
        (EngineHello(run="r", nodes=(Node("h1", 10**9),)).model_dump_json(), "nodes.gpus"),
        (EngineHello(run="r", nodes=()).model_dump_json(), "nodes.gpus"),
    ],
)
def test_a_hello_that_is_none_is_refused(controller: Served, text: str, said: str) -> None:
    with connect(controller.url.replace("http", "ws") + "/v1/studies/s/engine") as socket:
        socket.send(text)
        assert said in refusal(socket)


@pytest.mark.parametrize("event", [["None", "{}"], ["TrialEnded", "{}"], ["TrialEnded", "x"], ["GpusRequested", '{"at_s": 0}']])
def test_an_event_that_is_none_is_refused(engines: Any, event: list[str]) -> None:
    engine = engines("s")
    engine.socket.send(json.dumps({"kind": "events", "first": 1, "events": [event]}))
    assert refusal(engine).startswith("event")


def test_another_run_of_a_study_that_has_not_ended_is_refused(controller: Served, engines: Any) -> None:
    first = engines("s")
    first.submit("a")
    with connect(controller.url.replace("http", "ws") + "/v1/studies/s/engine") as socket:
        socket.send(EngineHello(run="another", nodes=NODES).model_dump_json())
        assert "a name that no other search has: run r of it has not ended" in refusal(socket)
    first.until("s/a")


def test_other_nodes_than_those_that_are_shared_are_refused(controller: Served, engines: Any) -> None:
    engines("s1")
    with connect(controller.url.replace("http", "ws") + "/v1/studies/s2/engine") as socket:
        socket.send(EngineHello(run="r", nodes=(Node("h1", 2), Node("h2", 1))).model_dump_json())
        said = refusal(socket)
        assert "got 'h1 (2 GPUs, 0 cores)', expected the nodes of the engine of s1, which are shared: h1 (1 GPUs" in said


def test_a_controller_without_a_gpu_policy_says_so(tmp_path: Path) -> None:
    with served(build(hosts=2), tmp_path / "journal.db") as controller:
        with connect(controller.url.replace("http", "ws") + "/v1/studies/s/engine") as socket:
            assert refusal(socket) == "this controller decides on no GPUs: start it with --gpu-policy"
        assert plain_http.get(f"{controller.url}/v1/gpus").json()["policy"] is None


def one_gpu() -> Request:
    return Request(iterations=100, gpus=1)


def test_a_lost_node_of_a_search_that_is_cut_off_stops_nobody_else(controller: Served, engines: Any) -> None:
    first, second = engines("s1"), engines("s2")
    first.submit("a", one_gpu())
    node = first.until("s1/a").devices["s1/a"][0][0]
    first.use((node, 0))
    first.close()
    assert controller.until(lambda runtime: "s1" not in runtime.gpu.engines.connected)
    second.tell(NodesSeen(0.0, tuple(one for one in NODES if one.name != node)))
    second.submit("b", one_gpu())
    assert second.until("s2/b").devices["s2/b"][0][0] != node
    assert set(controller.ask(lambda runtime: dict(runtime.gpus.granted))) == {"s1/a", "s2/b"}


def test_another_run_of_a_study_that_has_ended_begins_anew(controller: Served, engines: Any) -> None:
    first = engines("s")
    first.submit("a")
    first.until("s/a")
    first.tell(TrialEnded(0.0, "s/a", TrialStatus.FINISHED), StudyEnded(0.0, "s"))
    first.until()
    first.use()
    first.socket.send(EngineLeft().model_dump_json())
    while not first.assignment.left:
        first.receive()
    first.close()
    assert controller.until(lambda runtime: "s" not in runtime.gpu.engines.connected)
    with connect(controller.url.replace("http", "ws") + "/v1/studies/s/engine") as socket:
        socket.send(EngineHello(run="another", nodes=NODES).model_dump_json())
        message = to_engine.validate_json(socket.recv(PATIENCE_S))
        assert isinstance(message, SearchAssignment)
        assert (message.ended, message.known) == (False, False), "it is the earlier run that has ended"


def test_what_runs_goes_on_over_a_restart_whoever_comes_back_first(tmp_path: Path) -> None:
    with served(build(hosts=2), tmp_path / "journal.db", gpus="fifo") as controller:
        first, second = Engine(controller, "s1"), Engine(controller, "s2")
        first.submit("a", one_gpu())
        [used] = first.until("s1/a").devices["s1/a"]
        first.use(used)
        second.submit("b", one_gpu())
        [own] = second.until("s2/b").devices["s2/b"]
        second.use(own)
    with served(build(hosts=2), tmp_path / "journal.db", gpus="fifo") as controller:
        second = Engine(controller, "s2", (own,))
        assert set(second.assignment.grants) == {"s2/b"}, "it goes on with what it uses"
        second.tell(RunFailed(0.0, "s2/b", 1, "it was killed"))
        second.use()
        decided(controller, "s1/a", "s2/b")
        assert second.submit("b", one_gpu()).grants == {}, "what the others use is not known yet"
        first = Engine(controller, "s1", (used,))
        assert set(first.until("s1/a").grants) == {"s1/a"}
        second.until("s2/b")


def test_an_engine_alone_tells_what_becomes_of_its_trials(controller: Served, engines: Any) -> None:
    engine = engines("s")
    engine.submit("a")
    engine.until("s/a")
    trial = f"{controller.url}/v1/studies/s/trials/a"
    refused = plain_http.put(f"{trial}/status", json={"status": "finished"})
    assert refused.status_code == 409, refused.text
    assert "a study whose trials no engine runs" in refused.text
    assert plain_http.put(f"{trial}/progress", json={"step": 7, "loss": 0.5}).status_code == 200
    assert plain_http.get(trial).json()["done"] == 7
    assert plain_http.put(f"{controller.url}/v1/studies/other").status_code == 200


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(iterations=10, gpus=5000), "request.max_gpus: got 5000, expected at most 4096"),
        (Request(iterations=10, batch_size=10**400), "request.batch_size"),
        (Request(iterations=10, traffic=Profile(1, "nonsense")), "request.traffic.collective: got 'nonsense'"),
        (Request(iterations=10, gpus=2000, traffic=Profile(1, "all-to-all")), "different transfers"),
        (
            Request(iterations=10, gpus=4, min_gpus=2, traffic=Profile(1, "halving-doubling")),
            "runs among 3 workers (a power of two",
        ),
    ],
)
def test_a_request_that_no_policy_should_see_is_refused(engines: Any, request_: Request, said: str) -> None:
    engine = engines("s")
    engine.tell(StudyRegistered(0.0, "s", "r"), TrialRegistered(0.0, "s", "a", 10))
    encoded = encode(GpusRequested(0.0, "s/a", request_))
    engine.socket.send(SearchEvents(first=3, events=(encoded,)).model_dump_json())
    assert said in refusal(engine)


def test_no_more_is_said_to_be_used_than_was_granted(controller: Served, engines: Any) -> None:
    first, second = engines("s1"), engines("s2")
    first.use(("h1", 0), ("h2", 0))
    second.submit("b")
    second.until("s2/b")


def test_an_engine_learns_the_hosts_of_the_network(controller: Served) -> None:
    assert hosts_of(f"http://127.0.0.1:1, {controller.url}", "s", {}, PATIENCE_S) == {
        host.name: host.ip for host in build(hosts=2).hosts
    }
    with pytest.raises(PlatformError, match="no controller answers"):
        hosts_of("http://127.0.0.1:1", "s", {}, 0.0)
    with pytest.raises(InputError, match=r"one that says which hosts its network has: .* 404"):
        hosts_of(f"{controller.url}/elsewhere", "s", {}, PATIENCE_S)
