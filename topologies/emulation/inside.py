"""The process of an emulated run inside the run's network namespace: it starts network, controller, agents, trainers, studies.

Started as `python -m topologies.emulation.inside CONFIG` by `supervisor`. It prints one JSON object a line (`event`: ready,
progress, finished, failed) and takes one request a line on standard input (`do`: studies, controller, agent). It removes
nothing: the supervisor ends every process of the run and deletes the namespace.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import httpx
from pydantic import TypeAdapter

from beamer.client.controllers import NOT_LEADING
from beamer.errors import BeamerError, EmulationError
from beamer.network.plan_modes import plan_mode
from beamer.ports import HTTP_PORT
from beamer.workloads import joint
from beamer.workloads.joint import JointScenario
from beamer.workloads.scenario import Scenario, load
from topologies.emulation import fairness, vswitch
from topologies.emulation.accounting import PairBytes
from topologies.emulation.exchange import RunConfig, RunMeasurements
from topologies.emulation.network import CONTROLLER_ADDRESS, EmulatedNetwork
from topologies.emulation.priority import AGENTS_NICE, CONTROLLER_PRIORITY, prefer_session
from topologies.emulation.run_queue import AGENTS, CONTROLLER, SWITCHES, TRAINERS
from topologies.emulation.sampling import READER, Health, Sampler, queue_bytes
from topologies.emulation.searches import HostEntry, SearchRunner, network_of, with_stand_ins
from topologies.emulation.studies import Launchers, StudyRunner

OPENFLOW_PORT = 6653
READY_PATIENCE_S = 60.0
SETTLE_S = 1.5  # queues drain and the switches' last counters arrive before they are read


class NamespacedRun:
    """One emulated run, step by step."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        self.config = config
        self.directory = directory
        self.searches = joint.load(config.scenario) if config.gpu_policy else None
        self.scenario: Scenario = network_of(self.searches) if self.searches else load(config.scenario)
        self.controllers = {
            f"beamer-controller{f'-{number + 1}' if number else ''}": (HTTP_PORT + number, OPENFLOW_PORT + number)
            for number in range(config.controllers)
        }
        self.urls = {part: f"http://{CONTROLLER_ADDRESS}:{port}" for part, (port, _) in self.controllers.items()}
        self.url = next(iter(self.urls.values()))
        self.network = EmulatedNetwork(self.scenario.fabric, self.scenario.transport)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.vswitchd = 0
        self._queues = config.queues or self.scenario.queues
        self._caps = plan_mode(config.mode).caps
        self.http = httpx.Client(base_url=self.url, timeout=5.0)

    def start(self) -> None:
        """Bring up all parts, and wait until the first plan is installed everywhere."""
        (self.directory / "fabric.json").write_text(json.dumps(self.scenario.fabric.to_dict()))
        os.environ.update(vswitch.environment(self.directory / "ovs"))
        self.vswitchd = vswitch.start(self.directory / "ovs")
        self.network.start()
        self.network.point_at_controllers(self._targets()[:1])
        leader, *followers = self.controllers
        self.start_controller(leader)
        agents = {h.agent: h.name for h in self.scenario.fabric.hosts if h.agent}
        for name in [*agents, *sorted({s.agent for s in self.scenario.fabric.switches if s.agent})]:
            self.start_agent(name)
        sockets = {host: self._agent_socket(agent) for agent, host in agents.items()}
        self.runner = self._searches(self.searches) if self.searches else self._studies(sockets)
        self._wait_installed()
        for follower in followers:  # Followers start only once the first controller leads.
            self.start_controller(follower)
            self._wait_following(follower)
        if followers:
            self.network.point_at_controllers(self._targets())
        self.network.shorten_pauses()
        self._enlarge_buffers()

    def _studies(self, sockets: Mapping[str, Path]) -> StudyRunner:
        """Return what runs the scenario's studies, with its trainers forked ahead. sockets: of agents, by host."""
        launchers = Launchers(self.network, self.scenario.fabric, sockets, self._log, self._tail)
        launchers.prepare(self.scenario, self.url)
        return StudyRunner(self.scenario, launchers, self.url, emit)

    def _searches(self, searches: JointScenario) -> SearchRunner:
        """Return what runs the scenario's searches."""
        hosts = {host.name: HostEntry(host.ip, self.network.shell_pid(host.name)) for host in searches.fabric.hosts}
        runnable, _ = with_stand_ins(searches)
        return SearchRunner(
            runnable, self.scenario.transport, hosts, self.url, self.directory, self._log, self._tail, emit
        )  # fmt: skip

    def _enlarge_buffers(self) -> None:
        """Enlarge the daemon's buffers: a socket per port, and the one for sending that its first packet makes it open."""
        first, second = self.scenario.fabric.hosts[:2]
        sockets = 1 + sum(link.src in self.scenario.fabric.switch for link in self.scenario.fabric.links)
        deadline = time.monotonic() + READY_PATIENCE_S
        while (found := vswitch.enlarge_buffers(self.vswitchd)) < sockets:
            if time.monotonic() > deadline:
                raise EmulationError(f"Open vSwitch has {found} packet sockets, expected {sockets}")
            command = ["bash", "-c", f"echo > /dev/udp/{second.ip}/9"]
            subprocess.run([*self.network.enter(first.name), *command], check=True, stderr=subprocess.DEVNULL)
            time.sleep(0.05)

    def start_controller(self, part: str) -> None:
        """Start a controller on the management address (again)."""
        http, openflow = (f"{CONTROLLER_ADDRESS}:{port}" for port in self.controllers[part])
        self.processes[part] = subprocess.Popen(
            [
                *CONTROLLER_PRIORITY.command([sys.executable, "-m", "controller.cli"]),
                *("--fabric", str(self.directory / "fabric.json")),
                *("--journal", self.config.journal or f"sqlite:///{self.directory}/journal.db"),
                *("--policy", self.config.policy, "--queues", str(self._queues), "--seed", str(self.config.seed)),
                *("--mode", self.config.mode),
                *("--http", http, "--openflow", openflow),
                *(("--gpu-policy", self.config.gpu_policy) if self.config.gpu_policy else ()),
                *(("--joint", self.config.joint) if self.config.joint else ()),
                "--insecure",  # the address is in the run's own network namespace, which nothing outside reaches
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log(part),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_agent(self, name: str) -> None:
        """Start the agent called `name` (again): in its host's namespace, or in this one for the switches' ports."""
        command = [
            *("nice", "-n", str(AGENTS_NICE), sys.executable, "-m", "hostagent.cli"),
            *("--name", name, "--controller", ",".join(url.replace("http", "ws", 1) for url in self.urls.values())),
            *("--expiry", str(self.config.expiry_s), "--state-dir", str(self.directory / "agents")),
            *("--attach", str(self._agent_socket(name))),
        ]
        hosts = {h.agent: h.name for h in self.scenario.fabric.hosts}
        self.processes[f"agent-{name}"] = subprocess.Popen(
            [*self.network.enter(hosts.get(name)), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log(f"agent-{name}"),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _targets(self) -> list[str]:
        """Return where switches connect, by controller."""
        return [f"tcp:{CONTROLLER_ADDRESS}:{port}" for _, port in self.controllers.values()]

    def _agent_socket(self, agent: str) -> Path:
        return self.directory / f"{agent}.sock"

    def describe(self) -> dict[str, Any]:
        """Return the process ids by which a caller can enter or disturb the run."""
        return {
            "hosts": {h.name: self.network.shell_pid(h.name) for h in self.scenario.fabric.hosts},
            "processes": {name: process.pid for name, process in self.processes.items()},
            "vswitchd": self.vswitchd,
            "url": self.url,
            "urls": self.urls,
            "targets": dict(zip(self.controllers, self._targets(), strict=True)),
            "addresses": {h.name: h.ip for h in self.scenario.fabric.hosts},
            "sockets": {h.name: str(self._agent_socket(h.agent)) for h in self.scenario.fabric.hosts if h.agent},
        }

    def run_studies(self) -> RunMeasurements:
        """Run all studies to their end and read every counter."""
        if self.config.calibrate and isinstance(self.runner, StudyRunner):
            self.runner.beside(fairness.equal_jobs(self.scenario)).run()
        fabric = self.scenario.fabric
        readers = [
            subprocess.Popen([*self.network.enter(host), *READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for host in (None, *fabric.host)
        ]
        # Packets that wait on a host may wait for a cap, which says nothing of its link.
        judged = [link for link in fabric.links if link.src in fabric.switch or not self._caps]
        rates = {link.interface: link.rate_bps for link in judged}
        sampler = Sampler(self.vswitchd, rates, readers, self._parts)
        sampler.start()
        events = self._get("/v1/latencies")["events"]
        started = time.time()
        self.runner.run()
        ended = time.time()
        health = sampler.stop()
        time.sleep(SETTLE_S)
        return self._measure(started, ended - started, health, events)

    def _parts(self) -> dict[int, str]:
        """Return what part of the run each process of now and its children are, by process id."""
        processes = tuple(self.processes.items())  # a restart replaces one while the sampling thread is here
        own = {process.pid: AGENTS if name.startswith("agent-") else CONTROLLER for name, process in processes}
        return {self.vswitchd: SWITCHES, **own, **dict.fromkeys(self.runner.pids(), TRAINERS)}

    def _measure(self, started: float, duration: float, health: Health, events_before: int) -> RunMeasurements:
        fabric = self.scenario.fabric
        latencies = self._get("/v1/latencies")
        counters = self._get("/v1/counters")
        studies = self._get("/v1/studies")["studies"]
        switch_queues = [q for link in fabric.links if link.src in fabric.switch for q in queue_bytes(link.interface)]
        host_queues = [
            q
            for link in fabric.links
            if link.src in fabric.host and not self._caps  # the counters of capped classes go with their classes
            for q in queue_bytes(link.interface, self.network.enter(link.src))
        ]
        return RunMeasurements(
            started_s=started,
            studies=[study for study in studies if study["name"] != fairness.STUDY],
            latencies_ms=latencies["plan_ms"],
            pairs=[
                PairBytes(c["job"], c["src"], c["dst"], c["plane"], c["class"], c["marked"], c["sent_bytes"])
                for c in counters["host_pairs"]
            ],
            unmatched_bytes=counters["unmatched_bytes"],
            host_queues=host_queues,
            switch_queues=switch_queues,
            health=health,
            duration_s=duration,
            jain=fairness.fairness(studies, self.scenario.start_up_s),
            events=max(latencies["events"] - events_before, 0),  # A controller that took over has counted from none.
            phases_ms=latencies["phases_ms"],
        )

    def _get(self, path: str) -> Any:
        answer = self.http.get(path)
        answer.raise_for_status()
        return answer.json()

    def _wait_installed(self) -> None:
        deadline = time.monotonic() + READY_PATIENCE_S
        last = "the controller did not answer"
        while time.monotonic() < deadline:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise EmulationError(f"{name} ended with status {process.returncode}: {self._tail(name)}")
            with contextlib.suppress(httpx.HTTPError):
                plan = self._get("/v1/plan")
                if plan["installed_everywhere"]:
                    return
                last = f"installed: {plan['installed']}"
            time.sleep(0.1)
        raise EmulationError(f"the first plan was not installed everywhere within {READY_PATIENCE_S:.0f} s; {last}")

    def _wait_following(self, part: str) -> None:
        """Wait until a controller follows, so that switches find it listening when they try it first."""
        deadline = time.monotonic() + READY_PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if self.http.get(f"{self.urls[part]}/v1/health").status_code == NOT_LEADING:
                    return
            time.sleep(0.1)
        raise EmulationError(f"{part} did not follow within {READY_PATIENCE_S:.0f} s: {self._tail(part)}")

    def _log(self, name: str) -> IO[str]:
        return (self.directory / f"{name}.log").open("a")

    def _tail(self, name: str) -> str:
        return " ".join((self.directory / f"{name}.log").read_text().split())[-400:]


_emitting = threading.Lock()


def emit(event: str, **content: Any) -> None:
    """Print one event for the supervisor."""
    with _emitting:
        print(json.dumps({"event": event, **content}), flush=True)


def _requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def _report_failure(error: BaseException) -> None:
    traceback.print_exc()
    emit("failed", message=str(error) if isinstance(error, BeamerError) else f"{type(error).__name__}: {error}")


def _studies(inside: NamespacedRun) -> None:
    try:
        measured = inside.run_studies()
        (inside.directory / "measured.json").write_text(json.dumps(asdict(measured)))
        emit("finished")
    except Exception as error:  # noqa: BLE001  every failure is reported to the supervisor
        _report_failure(error)


def main(config_file: Path) -> None:
    """Make the run that a configuration file in the run's directory describes, until standard input ends."""
    config = TypeAdapter(RunConfig).validate_json(config_file.read_bytes())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides when to end
    prefer_session(os.getpid(), AGENTS_NICE)  # The supervisor made this process the leader of a session.
    try:
        inside = NamespacedRun(config, config_file.parent)
        inside.start()
    except Exception as error:  # noqa: BLE001  every failure is reported to the supervisor
        _report_failure(error)
        return
    emit("ready", **inside.describe())
    for request in _requests():
        match request["do"]:
            case "studies":
                threading.Thread(target=_studies, args=(inside,), daemon=True).start()
            case "controller":
                inside.start_controller(request["part"])
                emit("started", **inside.describe())
            case "agent":
                inside.start_agent(request["name"])
                emit("started", **inside.describe())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
