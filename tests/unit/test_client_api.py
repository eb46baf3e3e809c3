"""The client and the controller's HTTP API understand each other, over a socket."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from beamer.client import Client
from beamer.network.policies import network_policy
from beamer.studies.journal.store import Journal
from beamer.studies.model import JobStatus, Role, Rung, StageStatus, Worker
from beamer.studies.tracker import Tracker
from controller.api import create_app
from controller.runtime import Runtime
from controller.testing import SwitchesInMemory
from topologies.single import build

FABRIC = build(hosts=2)
PATIENCE_S = 30.0


@contextmanager
def controller(journal: Path) -> Iterator[tuple[str, Tracker]]:
    """Serve the API from a thread; yield its URL and what the controller knows."""
    ready = threading.Event()
    served: list[tuple[uvicorn.Server, Tracker]] = []

    async def serve() -> None:
        names = [switch.name for switch in FABRIC.switches]
        runtime = Runtime(
            FABRIC,
            Journal(f"sqlite:///{journal}"),
            network_policy("fifo"),
            8,
            lambda on_event: SwitchesInMemory(names, on_event),
            0,
            time.time,
        )
        await runtime.start()
        server = uvicorn.Server(uvicorn.Config(create_app(runtime), port=0, log_config=None, ws="none"))
        served.append((server, runtime.tracker))
        asyncio.get_running_loop().call_later(0, ready.set)
        await server.serve()
        await runtime.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    server, tracker = served[0]
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", tracker
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def test_a_search_arrives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hosts = [host.name for host in FABRIC.hosts]
    with controller(tmp_path / "journal.db") as (url, tracker), Client(url, timeout_s=PATIENCE_S) as client:
        with client.study("s", weight=2.0, rungs=[Rung("r", 2, 3)]) as study:
            with study.stage("r") as stage:
                pair = [Worker(0, hosts[0]), Worker(1, hosts[1], Role.SERVER)]
                with stage.job("ps", workers=pair, iterations=3, sync_bytes=10, collective="parameter-server") as job:
                    job.attach(0, pid=77)
                    job.progress(2)
                stage.job("lost", workers=hosts, iterations=3, sync_bytes=10).kill()
            stage.job("late", workers=hosts, iterations=3, sync_bytes=10)
        assert client.wait_stage("s", "r", PATIENCE_S)
        assert client.flush(PATIENCE_S)
    assert tracker.studies["s"].weight == 2.0
    assert tracker.studies["s"].stages["r"].status is StageStatus.DONE
    ended = tracker.jobs["s/r/ps"]
    assert (ended.status, ended.pids, ended.done) == (JobStatus.FINISHED, {0: 77}, 2)
    assert tracker.jobs["s/r/lost"].status is JobStatus.KILLED
    (refused,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert refused.startswith("Beamer refused s/r/late: stage: got 'r', expected an open stage")
