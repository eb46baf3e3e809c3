"""Two hosts with agents, a controller and trainers, all of them processes; the fabric's switch never connects."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from beamer.client.transport import Transport
from beamer.network.codepoints import LOCAL
from beamer.ports import HTTP_PORT
from hostagent.expiry.state import StateDirectory
from hostagent.marks.diagnostics import Diagnostics
from hostagent.marks.socket_marks import UNMARKED, Mark
from tests.netns.bench import end_guard, kill_group, mark_of
from tests.netns.trainer import STEP_BYTES
from tests.support.agent_doubles import agent_command
from tests.support.checkout import ROOT
from tests.support.namespaces import Namespace

HOSTS = {"h1": "10.77.0.1", "h2": "10.77.0.2"}
MANAGEMENT = "10.88.0.1"  # of the first host, where the controller runs
URL = f"http://{MANAGEMENT}:{HTTP_PORT}"
NO_AGENT = "/nonexistent/agent.sock"
PATIENCE_S = 60.0
RATE_BPS = 20_000_000
MANY_STEPS = 1_000_000
NOWHERE: Mapping[int, tuple[str, ...]] = MappingProxyType({})

End = tuple[str, int]
"""A host, and a port of its data address."""


@dataclass
class Trial:
    """A trial's processes by rank, each connected to every other one.

    key: None for processes that Beamer is told nothing of. number: tells its ports from other trials'.
    """

    key: str | None
    number: int
    hosts: tuple[str, ...]
    processes: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def links(self, rank: int) -> dict[End, End]:
        """Return the ends of a rank's connections, its own first."""
        return {self._end(rank, peer): self._end(peer, rank) for peer in range(len(self.hosts)) if peer != rank}

    def _end(self, rank: int, peer: int) -> End:
        return self.hosts[rank], 5000 + 100 * self.number + 10 * rank + peer

    def marks(self, klass: int, *ranks: int) -> dict[End, Mark]:
        """Return the marks that a class gives the connections of some ranks, or else of all, to the other host."""
        links = [link for rank in ranks or range(len(self.hosts)) for link in self.links(rank).items()]
        return {own: mark_of(klass) for own, other in links if own[0] != other[0]}

    def tell(self, command: str, *ranks: int) -> None:
        """Send a command to the processes of some ranks, or else of all."""
        for rank in ranks or range(len(self.hosts)):
            stdin = self.processes[rank].stdin
            assert stdin
            stdin.write(f"{command}\n")
            stdin.flush()

    def kill(self, *ranks: int) -> None:
        """Kill the processes of some ranks, or else of all, and wait for them."""
        for rank in ranks or range(len(self.hosts)):
            self.processes[rank].kill()
            self.processes[rank].wait()


class Cluster:
    """The hosts, their agents and the controller; everything ends with `stack`."""

    def __init__(self, spaces: tuple[Namespace, ...], directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.space = dict(zip(HOSTS, spaces, strict=True))
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self._stack = stack
        self._http = Transport(URL, 10.0)
        self._trials = 0
        stack.callback(self._http.close)
        stack.callback(self._end_queues)
        first, second = spaces
        first.run("ip", "link", "add", "management", "type", "veth", "peer", "name", "management", "netns", second.name)
        for number, space in enumerate(spaces, 1):
            space.run("ip", "addr", "add", f"10.88.0.{number}/24", "dev", "management")
            space.run("ip", "link", "set", "management", "up")
        (directory / "fabric.json").write_text(json.dumps(_fabric()))

    def start(self, *options: str) -> None:
        """Start the controller with `options`, and the agents."""
        self.start_controller(*options)
        for host in HOSTS:
            self.start_agent(host)
        self.until(self.answers)
        self.until(lambda: self.get("/v1/health")["agents"]["connected"] == len(HOSTS))

    def start_controller(self, *options: str) -> None:
        """Start the controller (again), on the journal that there is."""
        # First come, first served: classes follow from the order of registration, not from progress.
        self.controller = self.process(
            "h1",
            *(sys.executable, "-m", "controller.cli", "--policy", "fifo"),
            *("--fabric", str(self.directory / "fabric.json"), "--journal", f"sqlite:///{self.directory}/journal.db"),
            *("--http", URL.removeprefix("http://"), "--openflow", f"{MANAGEMENT}:6653", *options),
            "--insecure",  # in namespaces of its own
            log="controller",
        )

    def start_agent(self, host: str) -> None:
        """Start a host's agent (again)."""
        more = ("--counters", "0.2", "--expiry", "120")
        command = agent_command(sys.executable, host, URL.replace("http", "ws"), str(self.directory), *more)
        self.agents[host] = self.process(host, *command, log=host)

    def process(
        self, host: str, *command: str, outside: tuple[str, ...] = (), log: str = "processes", **env: str
    ) -> "subprocess.Popen[str]":
        """Start a process on a host. outside: what goes before, run in the test's own namespaces. log: for its errors."""
        with (self.directory / f"{log}.log").open("a") as errors:
            started = subprocess.Popen(
                [*outside, "ip", "netns", "exec", self.space[host].name, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if log == "processes" else errors,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=os.environ | env,
            )
        self._stack.enter_context(started)
        self._stack.callback(kill_group, started)
        return started

    def log(self, name: str = "controller") -> str:
        """Return what a process, or all other ones, have logged so far."""
        return (self.directory / f"{name}.log").read_text()

    def agent_socket(self, host: str) -> Path:
        """Return where workers attach on a host."""
        return self.directory / f"{host}.sock"

    def declare(self, key: str, *hosts: str, attempt: str = "first") -> None:
        """Report a trial, and an attempt of it with a rank on each of `hosts`."""
        study, trial = key.split("/")
        self.put(f"/v1/studies/{study}", {})
        self.put(f"/v1/studies/{study}/trials/{trial}", {})
        workers = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]
        self.put(f"/v1/studies/{study}/trials/{trial}/attempts/{attempt}", {"workers": workers, "sync_bytes": STEP_BYTES})

    def processes(
        self,
        key: str | None,
        *hosts: str,
        leased: bool = True,
        steps: int = MANY_STEPS,
        inside: Mapping[int, tuple[str, ...]] = NOWHERE,
        outside: Mapping[int, tuple[str, ...]] = NOWHERE,
    ) -> Trial:
        """Start a process for every rank, and wait until they are connected.

        leased: through the host's agent, or else over HTTP. steps: that they take until told to take more. inside, outside:
        what goes before the command of a rank in its host's network namespace and in the test's own.
        """
        trial = self._numbered(key, hosts)
        for rank, host in enumerate(hosts):
            command = (sys.executable, "-m", "tests.netns.trainer", json.dumps(_task(trial, rank, steps)))
            path = str(self.agent_socket(host)) if leased else NO_AGENT
            before = inside.get(rank, ()), outside.get(rank, ())
            trial.processes.append(self.process(host, *before[0], *command, outside=before[1], BEAMER_AGENT=path))
        for process in trial.processes:
            self._wait_connected(process)
        return trial

    def forked(self, keys: Iterable[str], *hosts: str) -> None:
        """Start processes for every rank of trials whose hosts are all one, as children of one process."""
        trials = [self._numbered(key, hosts) for key in keys]
        tasks = [json.dumps(_task(trial, rank, MANY_STEPS)) for trial in trials for rank in range(len(hosts))]
        command = (sys.executable, "-m", "tests.netns.trainer", *tasks)
        process = self.process(hosts[0], *command, BEAMER_AGENT=str(self.agent_socket(hosts[0])))
        for _ in tasks:
            self._wait_connected(process)

    def _numbered(self, key: str | None, hosts: tuple[str, ...]) -> Trial:
        self._trials += 1
        return Trial(key, self._trials, hosts)

    def _wait_connected(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout
        heard = process.stdout.readline()
        assert heard == "connected\n", f"{heard!r}\n{self.log('processes')}"

    def trial(self, key: str, **options: Any) -> Trial:
        """Report a trial with a rank on each host, and start it."""
        self.declare(key, *HOSTS)
        return self.processes(key, *HOSTS, **options)

    def answers(self) -> bool:
        """Say whether the controller answers."""
        assert self.controller.poll() is None, self.log()
        try:
            self.get("/v1/health")
        except ConnectionError:
            return False
        return True

    def get(self, path: str) -> Any:
        """Return the controller's answer. Raises `ConnectionError` where there is none."""
        answer = self.space["h1"].call(lambda: self._http.request("GET", path))
        assert answer.is_success, answer.text
        return answer.json()

    def put(self, path: str, body: object | None) -> None:
        """Have the controller take something in; it must not refuse it."""
        content = None if body is None else json.dumps(body).encode()
        answer = self.space["h1"].call(lambda: self._http.request("PUT", path, content))
        assert answer.is_success, answer.text

    def known(self, key: str) -> Any:
        """Return what the controller knows of a trial."""
        study, trial = key.split("/")
        return self.get(f"/v1/studies/{study}/trials/{trial}")

    def classes(self) -> dict[str, int]:
        """Return the class of every trial that has one."""
        return {key: job["class"] for key, job in self.get("/v1/plan")["jobs"].items()}

    def marks(self) -> dict[End, Mark]:
        """Return the marks of all connections between the hosts that have one."""
        return {
            (name, port): mark
            for name, space in self.space.items()
            for port, mark in space.call(_read_marks).items()
            if mark != UNMARKED
        }

    def marked(self, host: str) -> int:
        """Return how many connections of a host have a mark: several may have one local port, to different peers' ports."""
        return self.space[host].call(_count_marked)

    def is_in_force(self, *trials: Trial) -> bool:
        """Say whether `trials` and no other ones have classes, and their connections and no other ones the marks of these."""
        classes = self.classes()
        if classes.keys() != {trial.key for trial in trials}:
            return False
        return self.marks() == {end: mark for t in trials for end, mark in t.marks(classes[str(t.key)]).items()}

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"{self.log()}\n{self.marks()}\n{self.answers() and self.get('/v1/studies')}"
            time.sleep(0.05)

    @contextmanager
    def sampled(self, *trials: Trial) -> Iterator[dict[End, set[int | None]]]:
        """Record every codepoint that the connections of `trials` have meanwhile, None for a connection that is not there."""
        seen: dict[End, set[int | None]] = {end: set() for trial in trials for end in trial.marks(0)}
        over = threading.Event()

        def sample(host: str) -> None:
            diagnostics = Diagnostics()
            while not over.wait(0.001):
                found = _connections(diagnostics)
                for (at, port), seen_there in seen.items():
                    if at == host:
                        seen_there.add(found[port].dscp if port in found else None)
            diagnostics.close()

        threads = [threading.Thread(target=space.call, args=(lambda h=h: sample(h),)) for h, space in self.space.items()]
        for thread in threads:
            thread.start()
        try:
            yield seen
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert all(seen.values())

    def _end_queues(self) -> None:
        for host in HOSTS:
            end_guard(StateDirectory(self.directory / host))


def _fabric() -> dict[str, Any]:
    hosts = [
        {"name": name, "ip": ip, "mac": f"02:00:00:00:00:0{port}", "agent": name}
        for port, (name, ip) in enumerate(HOSTS.items(), 1)
    ]
    cables = [(name, "s1", 1, "data") for name in HOSTS] + [
        ("s1", name, port, f"to-{name}") for port, name in enumerate(HOSTS, 1)
    ]
    links = [
        {"src": src, "dst": dst, "rate_bps": RATE_BPS, "port": port, "interface": interface}
        for src, dst, port, interface in cables
    ]
    return {"name": "pair", "hosts": hosts, "switches": [{"name": "s1", "dpid": 1}], "links": links}


def _task(trial: Trial, rank: int, steps: int) -> dict[str, Any]:
    peers = [[(HOSTS[host], port) for host, port in link] for link in trial.links(rank).items()]
    return {"url": URL, "trial": trial.key, "rank": rank, "peers": peers, "steps": steps}


def _read_marks() -> dict[int, Mark]:
    diagnostics = Diagnostics()
    try:
        return _connections(diagnostics)
    finally:
        diagnostics.close()


def _count_marked() -> int:
    diagnostics = Diagnostics()
    try:
        found = diagnostics.tcp_sockets().values()
        return sum(s.mark != UNMARKED for s in found if s.ends[0] in HOSTS.values() and s.ends[3] != 0)
    finally:
        diagnostics.close()


def _connections(diagnostics: Diagnostics) -> dict[int, Mark]:
    """Return the marks of this host's connections on its data address by local port."""
    found = diagnostics.tcp_sockets().values()
    return {s.ends[1]: s.mark for s in found if s.ends[0] in HOSTS.values() and s.ends[3] != 0}


def codepoints(*klasses: int) -> set[int]:
    """Return the codepoints of classes."""
    return {LOCAL.of(klass) for klass in klasses}
