"""Record journals with the Beamer that is on `sys.path`: `PYTHONPATH=CHECKOUT python record_journals.py DIRECTORY`.

CHECKOUT is a checkout of the version to record, with its tests and `eval`; DIRECTORY is where the files go. The
processes are real: `beamer-controller` on SQLite, `beamer schedule`, the client; a switch and two host agents exist in memory.
"""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import yaml

from beamer.client import Client
from beamer.gpu.events import (
    Allocated,
    GpusRequested,
    NodesSeen,
    RanksSeen,
    ReportRefused,
    RunFailed,
    RunFinished,
    TrialReported,
)
from beamer.gpu.model import Costs, Grant, Node, Report, Request, Speed
from beamer.network.connection import Connection
from beamer.network.events import ConnectionsChanged, ConnectionsSeen, Measured, PlanChanged, Planned
from beamer.network.fabric import Fabric
from beamer.network.plan import JobPlan
from beamer.network.protocol import Applied, Connections, Counters, Hello, PortCounters, WorkerBytes
from beamer.studies import events as studies_events
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
    encode,
)
from beamer.studies.journal.store import Journal
from beamer.studies.model import EndReason, Process, Profile, Role, Rung, TrialStatus, Worker
from controller.journal.replay import snapshot
from controller.limits import Limits
from eval.faults.peers import FollowingSwitch, PeerTasks
from eval.faults.site import FABRIC, ControllerProcess, ending
from hostagent.link.controllers import ControllerConnection, ControllerLink
from tests.processes.shared_cluster import SharedCluster

HERE = Path(__file__).parent
PATIENCE_S = 60.0


# The journals of controllers.


class CountingAgent(PeerTasks):
    """A host agent that reports the connections that it is told of, and counts bytes for every job of its assignment."""

    def __init__(self, name: str, controller: ControllerProcess) -> None:
        super().__init__()
        self.name = name
        self.connections: tuple[Connection, ...] = ()
        self._url = controller.url.replace("http", "ws", 1)
        self._sent = 0

    def come(self) -> None:
        link = ControllerLink(self.name, [self._url], None, Random(0))
        self._tasks = [asyncio.create_task(link.stay_connected(self._exchange))]

    async def _exchange(self, connection: ControllerConnection) -> None:
        socket = connection.socket
        await socket.send(Hello(agent=self.name, generation=0).model_dump_json())
        reporting = asyncio.create_task(self._report(socket))
        try:
            async for text in socket:
                generation = json.loads(text).get("generation")
                if generation is None:
                    continue  # From version 2 of the protocol on a controller says this of itself.
                connection.accept()
                await socket.send(Applied(generation=generation, changes=0).model_dump_json())
        finally:
            reporting.cancel()

    async def _report(self, socket: Any) -> None:
        last: tuple[Connection, ...] | None = None
        while True:
            if last != self.connections:
                last = self.connections
                await socket.send(Connections(connections=last).model_dump_json())
            self._sent += 3_000_000
            counted = tuple(WorkerBytes(job=c.job, rank=c.rank, sent_bytes=self._sent) for c in self.connections[:1])
            ports: tuple[PortCounters, ...] = ()
            await socket.send(Counters(at_s=time.time(), ports=ports, workers=counted).model_dump_json())
            await asyncio.sleep(0.05)


def connections_of(trial: str, ports: Iterable[int]) -> tuple[Connection, ...]:
    return tuple(Connection(trial, 0, FABRIC.hosts[0].ip, port, FABRIC.hosts[1].ip, 5000) for port in ports)


async def record_network(root: Path, out: Path) -> None:
    """Two searches under a network policy, with agents' reports, a silent study and kills of the controller."""
    journal = root / "journal.db"
    controller = ControllerProcess(root, "controller", f"sqlite:///{journal}")
    controller.command += ["--policy=beamer", "--silence=3"]
    with ending(controller):
        controller.start()
        await controller.answers()
        agents = [CountingAgent(host.agent, controller) for host in FABRIC.hosts[:2]]
        async with FollowingSwitch([controller]), agents[0], agents[1]:
            await drive(controller, agents[0])
        controller.kill()
    keep("network", journal, out, root / "fabric.json", ["--policy=beamer", "--silence=0"])


async def drive(controller: ControllerProcess, agent: CountingAgent) -> None:
    """Do what searches and trainers do."""
    client = Client(controller.url)
    client.study("forgotten").trial("t").start(["h3", "h4"], sync_bytes=1_000_000)
    halving = client.study("halving", weight=2.0, rungs=[Rung("rung0", 3, 12), Rung("rung1", 1, 24)])
    trials = [halving.trial(f"t{i}", budget=24) for i in range(3)]
    stage = halving.stage("rung0")
    for i, trial in enumerate(trials):
        stage.add(trial, 12)
        trial.start([Worker(0, "h1"), Worker(1, f"h{2 + i % 3}", Role.WORKER)], sync_bytes=2_500_000 * (i + 1), compute_s=0.01)
    stage.seal()
    trials[0].attach(0, os.getpid())
    agent.connections = connections_of("halving/t0", (4000, 4001))
    searching = client.study("searching", barriers=False)
    slow = searching.trial("slow")
    slow.milestone(6)
    slow.start(["h1", "h2"], sync_bytes=None)
    for step in range(1, 13):
        for trial in trials[: 3 if step < 9 else 2]:
            trial.progress(step, 1 / step)
        if step == 4:
            await asyncio.sleep(0.5)
            controller.kill()
            await asyncio.sleep(0.3)
            controller.start()
            await controller.answers()
            agent.connections = connections_of("halving/t0", range(4001, 4007))
        if step == 6:
            agent.connections = connections_of("halving/t0", range(4002, 4007))
            slow.progress(3, float("inf"))
            slow.pause()
        await asyncio.sleep(0.12)
    trials[2].kill()
    stage.wait(10.0)
    trials[0].detach(0)
    again = halving.stage("rung1")
    again.add(trials[0], 24)
    again.add(trials[1], 24)
    again.remove(trials[1])
    again.seal()
    trials[1].fail()
    slow.start(["h3", "h4"], sync_bytes=4_000_000, collective="all-to-all")
    controller.kill()
    controller.start()
    await controller.answers()
    for step in range(4, 7):
        slow.progress(step, 0.5)
        trials[0].progress(9 + step)
        await asyncio.sleep(0.3)
    restarted = Client(controller.url)
    for run in ("first", "second"):
        study = restarted.study("restarted", run=run)
        study.trial("t").start(["h2", "h3"], sync_bytes=1_000_000)
    deadline = time.monotonic() + PATIENCE_S
    while not any(t["status"] == "silent" for t in get(controller.url, "/v1/studies")["studies"][0]["trials"]):
        assert time.monotonic() < deadline
        slow.progress(6, 0.5)
        trials[0].progress(16)
        restarted.trial("restarted", "t", run="second").progress(1)
        await asyncio.sleep(0.5)
    searching.trial("slow").finish()
    searching.end()
    for one in (client, restarted):
        one.close(10.0)


def record_gpus(root: Path, out: Path) -> None:
    """Two searches that share GPUs under a policy: a kill while both run, a snapshot, and on to the end."""
    shared = SharedCluster(root)
    journal, fabric = root / "controller.db", root / "fabric.json"
    options = ["--policy=beamer", "--gpu-policy=tiresias"]
    try:
        shared.start_controller("tiresias")
        for name in ("s1", "s2"):
            rungs = [{"iterations": 10, "keep": 1}, {"iterations": 40}]
            shared.write_search(name, {"a": 0.0001, "d": 0.2}, rungs=rungs, retries=1)
            data = yaml.safe_load((root / f"{name}.yaml").read_text())
            data["configurations"].append({"name": "broken", "lr": "not-a-number"})
            (root / f"{name}.yaml").write_text(yaml.safe_dump(data))
            shared.start_search(name)
        deadline = time.monotonic() + PATIENCE_S
        while len({key.split("/")[0] for key in shared.get("gpus")["trials"]}) < 2:
            assert time.monotonic() < deadline
        time.sleep(1.2)
        shared.kill("controller")
        keep("shared", journal, out, fabric, options)
        command = [sys.executable, "-m", "beamer.cli", "journal", "compact", f"sqlite:///{journal}", "--fabric", str(fabric)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        shared.start_controller("tiresias")
        for name in ("s1", "s2"):
            print(shared.processes[name].communicate(timeout=120)[0][-800:])
        shared.kill("controller")
        keep("compacted", journal, out, fabric, options)
    finally:
        shared.close()


def keep(name: str, journal: Path, out: Path, fabric: Path, options: list[str]) -> None:
    """Write a journal down as SQL, and beside it what this version says of it."""
    (out / f"{name}.sql").write_text(dump(journal))
    shutil.copy(fabric, out / f"{name}.fabric.json")
    with TemporaryDirectory() as directory:
        copied = Path(directory) / "journal.db"
        with closing(sqlite3.connect(copied)) as database:
            database.executescript((out / f"{name}.sql").read_text())
        url = f"sqlite:///{copied}"
        command = [sys.executable, "-m", "beamer.cli", "journal", "check", url, "--fabric", str(fabric)]
        checked = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with closing(Journal(url, writes=False)) as opened:
            made = snapshot(opened, Fabric.from_dict(json.loads(fabric.read_text())), Limits().kept)
        said = {
            "options": options,
            "check": checked,
            "events": made.link.number,
            "state": {part: json.loads(text) for part, text in json.loads(made.content).items()},
            "answers": answers(url, fabric, options),
        }
    (out / f"{name}.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


def answers(url: str, fabric: Path, options: list[str]) -> dict[str, Any]:
    """Return what a controller that is started on a journal answers, before anything else happens."""
    port = 18423
    command = [sys.executable, "-m", "controller.cli", f"--fabric={fabric}", f"--journal={url}", "--openflow=127.0.0.1:0"]
    process = subprocess.Popen([*command, f"--http=127.0.0.1:{port}", *options], stderr=subprocess.DEVNULL)
    try:
        return {path: get(f"http://127.0.0.1:{port}", path) for path in ("/v1/studies", "/v1/gpus")}
    finally:
        process.kill()
        process.wait()


def get(url: str, path: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(httpx.TransportError):
            return httpx.get(url + path, trust_env=False).raise_for_status().json()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def dump(journal: Path) -> str:
    with closing(sqlite3.connect(journal)) as database:
        return "".join(f"{line}\n" for line in database.iterdump())


# The directory of `beamer schedule`.


def record_search(root: Path, out: Path) -> None:
    """A search that is interrupted and saves every trial."""
    (root / "search.yaml").write_text((HERE / "search.yaml").read_text())
    shutil.copy(HERE / "train.py", root)
    command = [sys.executable, "-m", "beamer.cli", "schedule", str(root / "search.yaml"), "--dir", str(root / "dir")]
    with subprocess.Popen([*command, "--policy", "tiresias"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="")
            if "rung0" in line:
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        printed = process.communicate()[0]
        print(printed)
        assert process.returncode == 130
    (out / "search.sql").write_text(dump(root / "dir" / "journal.db"))
    kept = out / "search-directory"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(root / "dir", kept, ignore=shutil.ignore_patterns("lock", "journal.db*", "log", "output", "ranks"))
    for path in kept.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace(str(root), "@ROOT@").replace(sys.executable, "@PYTHON@"))


# One example or more of every kind of event.

PROCESS = Process(4711, 123_456, 4_026_531_836, 1000, leased=True)
CONNECTION = Connection("s/t", 1, "10.0.0.1", 40_000, "10.0.0.2", 5_001)
REPORT = Report(1_700_000_000.5, 7.0, 3.25, 0.75, 0.5)
EXAMPLES: tuple[Event, ...] = (
    StudyRegistered(1.5, "s"),
    StudyRegistered(1.5, "s", "run-2", 2.5, (Rung("rung0", 4, 10), Rung("rung1", 0, 30)), barriers=False),
    StudyEnded(2.0, "s"),
    StageRegistered(3.0, "s", "rung0"),
    StageSealed(4.0, "s", "rung0"),
    TrialRegistered(5.0, "s", "t"),
    TrialRegistered(5.0, "s", "t", 100),
    TargetSet(6.0, "s/t", 10, "rung0"),
    TargetSet(6.0, "s/t", 10),
    TargetDropped(7.0, "s/t", "rung0"),
    TargetDropped(7.0, "s/t"),
    AttemptStarted(8.0, "s/t", "1", (Worker(0, "h1"), Worker(1, "h2", Role.SERVER)), Profile(10**12, "tree", 0.25, 0.5), True),
    AttemptStarted(8.0, "s/t", "2", (Worker(0, "h1"),)),
    *(AttemptEnded(9.0, "s/t", "1", reason) for reason in EndReason),
    WorkerAttached(10.0, "s/t", 1, PROCESS),
    WorkerAttached(10.0, "s/t", 0, Process(1)),
    WorkerDetached(11.0, "s/t", 1, 123_456),
    Progressed(12.0, "s/t", 5),
    Progressed(12.0, "s/t", 5, 0.125),
    Progressed(12.0, "s/t", 5, float("inf")),
    Progressed(12.0, "s/t", 5, float("-inf")),
    *(TrialEnded(13.0, "s/t", status) for status in (TrialStatus.FINISHED, TrialStatus.KILLED, TrialStatus.FAILED)),
    FellSilent(14.0, "s"),
    FellSilent(14.0, "s", "rung0"),
    FellSilent(14.0, "s", None, "t"),
    ConnectionsSeen(15.0, "h1", (CONNECTION,)),
    ConnectionsChanged(16.0, "h1", (CONNECTION,), (CONNECTION,)),
    Planned(17.0, "beamer", 3, {"ranks": {"s/t": 1}}, 8, {"s/t": JobPlan(0), "s/u": JobPlan(7, 10**9)}),
    PlanChanged(18.0, "beamer", 4, {"set": []}, 3, 8, {"s/t": JobPlan(1, 5)}, ("s/u",)),
    Measured(19.0, "s/t", "1", 1.5e6, 0.25, 0.125),
    Measured(19.0, "s/t", "1", None, None, None),
)


def gpu_examples() -> tuple[Event, ...]:
    grant = Grant((("h1", 2), ("h2", 1)), (("h2", 1),), 96)
    request = Request(iterations=100, gpus=3, epoch=5)
    speed = Speed(gpus=3, nodes=2, servers=1, batch_size=96, step_s=0.5, sync_s=0.125)
    return (
        NodesSeen(1.0, (Node("h1", 2, 8.0), Node("h2", 1))),
        GpusRequested(2.0, "s/t", request),
        TrialReported(3.0, "s/t", REPORT, (speed,), Costs()),
        TrialReported(3.0, "s/t"),
        RunFinished(4.0, "s/t", 100),
        RunFailed(5.0, "s/t", 2, "exit 3"),
        ReportRefused(6.0, "s/t", "a number"),
        RanksSeen(7.0, "s/t", {"h1": PROCESS}),
        Allocated(8.0, "tiresias", 5, {"queue": {"s/t": 0}}, {"s/t": grant}, {"s/t": (("h1", 0), ("h1", 1), ("h2", 0))}),
    )


def record_kinds(out: Path) -> None:
    """Write every kind of event down: how it is stored, and the values of its fields."""
    made = (*EXAMPLES, *gpu_examples())
    missing = studies_events._KINDS.keys() - {type(event).__name__ for event in made}
    assert not missing, missing
    lines = []
    for event in made:
        kind, content = encode(event)
        values = {field.name: repr(getattr(event, field.name)) for field in fields(event)}
        lines.append(json.dumps({"kind": kind, "content": content, "values": values}))
    (out / "kinds.jsonl").write_text("".join(f"{line}\n" for line in lines))


def main() -> None:
    out, parts = Path(sys.argv[1]), sys.argv[2:] or ["kinds", "search", "network", "gpus"]
    out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        with TemporaryDirectory(prefix="recorded-") as directory:
            if part == "kinds":
                record_kinds(out)
            elif part == "search":
                record_search(Path(directory), out)
            elif part == "network":
                asyncio.run(record_network(Path(directory), out))
            elif part == "gpus":
                record_gpus(Path(directory), out)


if __name__ == "__main__":
    main()
