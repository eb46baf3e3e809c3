"""What meters make of real bytes: trainers that sum gradients over a cable, counted by an agent on each host."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from beamer.client.lease import describe_process
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Hello, LocalWorker, Port
from beamer.network.traffic_measurement import AttemptMeasurer, TrafficPattern
from beamer.studies.model import Worker
from beamer.testing.fabrics import star
from hostagent.expiry.state import StateDirectory
from tests.netns.bench import end_guard
from tests.support.agent_doubles import FakeController, agent_command
from tests.support.namespaces import Namespace, cabled_namespaces

pytestmark = pytest.mark.netns

RATE_BPS = 20_000_000
SYNC_BYTES = 800_000
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LASTS_S = 15.0  # some windows, at two readings a second
JOB = "s/t"

# A ring all-reduce of two ranks: each sends one half, adds what it gets, and sends the sum back. Before the first step rank 0
# sends as much as five steps do, as frameworks send the weights.
TRAINER = f"""
import socket, sys, threading, time
import numpy as np
rank, size = int(sys.argv[1]), {SYNC_BYTES}
if rank:
    peer = socket.create_server(("", 5001)).accept()[0]
else:
    while True:
        try:
            peer = socket.create_connection(("{ADDRESSES[1]}", 5001))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
def receive(count):
    data = bytearray()
    while len(data) < count: data += peer.recv(count - len(data))
    return data
def exchange(values):
    sending = threading.Thread(target=peer.sendall, args=(values.tobytes(),))
    sending.start()
    got = receive(values.nbytes)
    sending.join()
    return np.frombuffer(got, np.float32)
print("connected", flush=True)
sys.stdin.readline()
receive(5 * size) if rank else peer.sendall(bytes(5 * size))
step = 0
while True:
    time.sleep(0.1)
    halves = np.full((2, size // 8), rank + 1, np.float32)
    total = halves[rank] + exchange(halves[1 - rank])
    assert (exchange(total) == 3).all()
    step += 1
    print(step, flush=True)
"""


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, ...]]:
    with cabled_namespaces("a", "b") as made:
        for space in made:
            space.run("ethtool", "-K", "data", "tx", "off", "tso", "off", "gso", "off")
        yield made


def test_bytes_of_a_synchronisation_are_learnt_from_the_wire(spaces: tuple[Namespace, ...], tmp_path: Path) -> None:
    reports: list[tuple[float, int]] = []
    with ExitStack() as stack:
        controllers = [stack.enter_context(FakeController(space)) for space in spaces]
        trainers = []
        for rank, space in enumerate(spaces):
            trainer = space.popen(sys.executable, "-c", TRAINER, str(rank), stdin=-1, stdout=-1)
            stack.enter_context(trainer)
            stack.callback(trainer.kill)
            trainers.append(trainer)
        for rank, (space, controller, trainer) in enumerate(zip(spaces, controllers, trainers, strict=True)):
            name = f"h{rank + 1}"
            stack.callback(end_guard, StateDirectory(tmp_path / name))
            agent = space.popen(*agent_command(sys.executable, name, controller.url, str(tmp_path), "--counters", "0.5"))
            stack.enter_context(agent)
            stack.callback(agent.kill)
            controller.wait(Hello)
            worker = LocalWorker(job=JOB, rank=rank, process=describe_process(trainer.pid), klass=0)
            port = Port(interface="data", rate_bps=RATE_BPS, classify="mark")
            controller.applied(Assignment(generation=1, ports=(port,), addresses=ADDRESSES, workers=(worker,)))
            seen = controller.wait(Connections, lambda message: bool(message.connections))
            controller.wait(Applied, after=controller.received.index(seen))
        for trainer in trainers:
            assert trainer.stdin
            trainer.stdin.write("go\n")
            trainer.stdin.flush()
        steps = trainers[0].stdout
        assert steps
        assert steps.readline() == "connected\n"
        ends = time.monotonic() + LASTS_S
        while time.monotonic() < ends:
            step = int(steps.readline())
            reports.append((time.time(), step))
        counters = [m for controller in controllers for m in controller.received if isinstance(m, Counters)]
    spec = JobSpec("t", (Worker(0, "h1"), Worker(1, "h2")), 0, SYNC_BYTES)
    fabric = star(2, RATE_BPS)
    meter = AttemptMeasurer(TrafficPattern.of(spec, 0, fabric, Footprints(fabric)))
    counted = [(m.at_s, worker.rank, worker.sent_bytes) for m in counters for worker in m.workers]
    for at_s, rank, value in sorted([*counted, *((at_s, -1, step) for at_s, step in reports)]):
        if rank < 0:
            meter.progressed(at_s, value)
        else:
            meter.read(at_s, rank, value)
    found = meter.measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)
    assert found.compute_s < found.iteration_s
