"""Records what programs of this tree say to each other: each protocol's messages, as lines of JSON, in a directory.

    PYTHONPATH=CHECKOUT:. python -P -m tests.compat.record DIRECTORY

Run with another checkout's packages first on the path, it records that version. It takes root, as the agents do.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import beamer
import beamer.gpu.events
import beamer.network.events  # The import makes its events known.
from beamer.client import Client
from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.supervisor import control, messages, store
from beamer.engines.local.supervisor.progress import Progress
from beamer.gpu.protocol import from_engine, to_engine
from beamer.network.protocol import Assignment, from_agent
from beamer.studies import events
from beamer.studies.model import Rung
from controller.http import bodies
from hostagent.workers.attach import AttachRequest
from tests.netns.cluster import MANAGEMENT, URL, Cluster
from tests.processes.shared_cluster import SharedCluster
from tests.support.agent_doubles import agent_command
from tests.support.namespaces import Namespace, cabled_namespaces
from tests.support.recordings import TRAINER

RECORDER = Path(__file__).parent / "recorder.py"
AGENT_PROXY, CLIENT_PROXY, ENGINE_PROXY = f"{MANAGEMENT}:9301", f"{MANAGEMENT}:9302", "127.0.0.1:9303"


class RecordedCluster(Cluster):
    """Two hosts whose agents reach the controller through a recorder."""

    def start_agent(self, host: str) -> None:
        more = ("--counters", "0.5", "--expiry", "120")
        command = agent_command(sys.executable, host, f"ws://{AGENT_PROXY}", str(self.directory), *more)
        self.agents[host] = self.process(host, *command, log=host)


def recorder(listen: str, target: str, file: Path, space: Namespace | None = None) -> "subprocess.Popen[str]":
    """Start a recorder."""
    command = [sys.executable, str(RECORDER), listen, target, str(file)]
    started = space.popen(*command) if space else subprocess.Popen(command, text=True)
    time.sleep(1.0)  # it listens by then
    return started


def record_agents(directory: Path) -> None:
    """Record two agents of which one has a trial that ends, and a client; each trial's workers hold leases."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        spaces = stack.enter_context(cabled_namespaces("a", "b"))
        cluster = RecordedCluster(spaces, Path(place), stack)
        for proxy, name in ((AGENT_PROXY, "agents"), (CLIENT_PROXY, "client")):
            started = recorder(proxy, URL.removeprefix("http://"), directory / f"{name}.jsonl", spaces[0])
            stack.callback(started.kill)
        cluster.start()
        trial = cluster.trial("s/t")
        cluster.until(lambda: cluster.is_in_force(trial))
        time.sleep(2.0)
        trial.kill(1)
        time.sleep(3.0)
        spaces[0].call(_speak_http)
        _attach(spaces[0], cluster.agent_socket("h1"), directory / "attach.jsonl")


def _speak_http() -> None:
    os.environ["BEAMER_AGENT"] = "/nonexistent/agent.sock"
    with Client(f"http://{CLIENT_PROXY}", 10.0) as client:
        study = client.study("c", run="one", weight=2.0, rungs=[Rung("r1", 2, 10), Rung("r2", 1, 20)], barriers=True)
        stage = study.stage("first")
        trial = study.trial("a", budget=20)
        stage.add(trial, 10)
        trial.milestone(15)
        trial.start(["h1", "h2"], 4096, "ring", 0.5, 0.25, attempt="one")
        trial.attach(0)
        trial.progress(3, 0.5)
        client.flush(10)
        trial.progress(10, float("nan"))
        trial.detach(0)
        trial.pause()
        client.flush(10)
        stage.remove(trial)
        stage.seal()
        client.flush(10)
        stage.wait(5.0)
        study.trial("b").fail()
        trial.finish()
        study.end()
        client.flush(10)
        client.trial("c", "unknown", run="two").progress(1)
        client.flush(10)


def _attach(space: Namespace, path: Path, file: Path) -> None:
    """Record what a client's lease says to an agent, and what it is answered: taken, and refused."""
    lines = """
import json, socket, sys
from beamer.client import lease
path, file = sys.argv[1:]
with open(file, "a") as out:
    for study, trial, rank, run in (("s", "t", 0, None), ("s", "t", 0, "one"), ("s", "t", -1, None)):
        held = lease.AgentLease({"study": study, "trial": trial, "rank": rank} | ({"run": run} if run else {}), path)
        sends = socket.socket.sendall
        def sendall(sock, data):
            out.write(json.dumps({"from": "client", "line": data.decode()}) + "\\n")
            sends(sock, data)
        socket.socket.sendall = sendall
        reads = lease._read_line
        def read(*given):
            answer = reads(*given)
            out.write(json.dumps({"from": "server", "line": json.dumps(answer) + "\\n"}) + "\\n")
            return answer
        lease._read_line = read
        held._connect()
        held._disconnect()
        socket.socket.sendall, lease._read_line = sends, reads
"""
    space.run(sys.executable, "-P", "-c", lines, str(path), str(file))


def record_engine(directory: Path) -> None:
    """Record the engine of a search that a controller decides for, from its hello to its leaving."""
    with tempfile.TemporaryDirectory() as place:
        shared = SharedCluster(Path(place))
        try:
            shared.start_controller("hermes")
            shared.get("health")
            proxy = recorder(ENGINE_PROXY, f"127.0.0.1:{shared.port}", directory / "engine.jsonl")
            shared.write_search("s1")
            arguments = ["schedule", shared.root / "s1.yaml", "--dir", shared.root / "s1", "--json", shared.root / "s1.json"]
            shared._start("s1", "beamer.cli", *map(str, arguments), "--controller", f"http://{ENGINE_PROXY}")
            shared.ended("s1")
            proxy.kill()
        finally:
            shared.close()


def record_supervisor(directory: Path) -> None:
    """Record every request to a supervisor, with its answer."""
    with tempfile.TemporaryDirectory() as place, (directory / "supervisor.jsonl").open("a") as lines:
        job = Path(place) / "job"
        (Path(place) / "train.py").write_text(TRAINER)
        control.run(control.supervisor_command(str(job), "auto", sys.executable), 10.0)
        spec = LaunchSpec((sys.executable, str(Path(place) / "train.py")), stopped_code=3, iterations=1000, batch_size=64)

        def ask(request: Any) -> Any:
            line = messages.encode(request)
            with store.connect(job, 10.0) as client, client.makefile("rwb") as stream:
                stream.write(line.encode() + b"\n")
                stream.flush()
                answer = stream.readline().decode()
            lines.write(json.dumps({"from": "client", "line": line + "\n"}) + "\n")
            lines.write(json.dumps({"from": "server", "line": answer}) + "\n")
            return messages.read_answer(answer).message

        ask(messages.GetStatus())
        port = ask(messages.GetPort()).port
        ask(messages.Suspend(5.0))
        ask(messages.Launch(1, spec, (0,), (), 1, "127.0.0.1", port, 64, Progress(0.0)))
        time.sleep(2.0)
        ask(messages.GetStatus())
        ask(messages.Suspend(5.0, 60.0))
        ask(messages.GetStatus(1))
        ask(messages.Resume(5.0))
        ask(messages.Checkpoint())
        time.sleep(0.5)
        ask(messages.Stop(5.0))
        time.sleep(2.0)
        ask(messages.GetStatus(2))
        ask(messages.Kill())
        ask(messages.End(forget=True, run=1))


def record_schemas(directory: Path) -> None:
    """Record the JSON schema of every message that this version takes, unknown keys refused."""
    schemas = {
        "agent": _schema(from_agent),
        "assignment": _schema(TypeAdapter(Assignment)),
        "engine": _schema(from_engine),
        "to_engine": _schema(to_engine),
        "attach": _schema(TypeAdapter(AttachRequest)),
        **{f"request.{name}": _schema(TypeAdapter(kind)) for name, kind in messages.REQUESTS.items()},
        **{f"answer.{name}": _schema(TypeAdapter(kind)) for name, kind in messages.ANSWERS.items()},
        **{f"body.{kind.__name__}": _schema(TypeAdapter(kind)) for kind in bodies.Body.__subclasses__()},
        **{f"event.{name}": _schema(TypeAdapter(kind)) for name, kind in sorted(events._KINDS.items())},
    }
    (directory / "schemas.json").write_text(json.dumps(schemas, indent=1, sort_keys=True) + "\n")


def _schema(adapter: "TypeAdapter[Any]") -> Any:
    return _closed(adapter.json_schema())


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(one) for name, one in schema.items()}
    return closed | {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed


def main() -> None:
    """Record everything."""
    directory = Path(sys.argv[1]).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    print("recording", Path(str(beamer.__file__)).parent)
    for kind in (record_agents, record_engine, record_supervisor, record_schemas):
        if len(sys.argv) < 3 or kind.__name__ in sys.argv[2:]:
            kind(directory)


if __name__ == "__main__":
    main()
