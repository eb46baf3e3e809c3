"""One emulated run from outside its namespace: makes the namespace, starts the main process in it, removes everything."""

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import TypeAdapter

from beamer.client.credentials import without_token
from beamer.errors import EmulationError
from topologies.emulation import tools
from topologies.emulation.exchange import RunConfig, RunMeasurements
from topologies.emulation.runfile import RUN_VARIABLE, RunRecord, record, remove

READY_PATIENCE_S = 90.0
SIGNAL_CHECK_S = 0.5  # A signal that did not wake the main thread, as it came just before a wait, is handled at most so late.
OnProgress = Callable[[str, int, int], None]


class EmulatedRun:
    """A run that is up: its studies can be run, its parts disturbed and inspected with any tool."""

    def __init__(self, run: RunRecord, inside: "subprocess.Popen[str]") -> None:
        self.run = run
        self._inside = inside
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.parts: dict[str, Any] = self._await("ready", READY_PATIENCE_S)

    def start_studies(self) -> None:
        """Let the scenario's studies begin."""
        self._ask({"do": "studies"})

    def finish_studies(self, patience_s: float, on_progress: OnProgress | None = None) -> RunMeasurements:
        """Wait for the end of all studies and return what was measured. Raises `EmulationError`."""
        self._await("finished", patience_s, on_progress)
        return TypeAdapter(RunMeasurements).validate_json((self.run.directory / "measured.json").read_bytes())

    def restart(self, part: str) -> None:
        """Start a controller or an agent (`agent-NAME`) again after it has ended. part: one of `parts["processes"]`."""
        kind, _, name = part.partition("-")
        self._ask({"do": "agent", "name": name} if kind == "agent" else {"do": "controller", "part": part})
        self.parts = self._await("started", 10.0)

    def pid(self, part: str) -> int:
        """Return the process id of a part."""
        pid: int = self.parts["processes"][part]
        return pid

    def enter(self, host: str | None = None) -> list[str]:
        """Return the command prefix that runs a program beside the switches, or on `host`."""
        return ["nsenter", "-n", "-t", str(self.parts["hosts"][host])] if host else ["ip", "netns", "exec", self.run.namespace]

    def execute(self, *command: str, host: str | None = None) -> str:
        """Run `command` beside the switches, or on `host`, and return what it prints."""
        env = {**os.environ, "OVS_RUNDIR": str(self.run.directory / "ovs")}
        done = subprocess.run([*self.enter(host), *command], check=True, capture_output=True, text=True, env=env, timeout=30)
        return done.stdout

    def log(self, part: str) -> str:
        """Return what a part has logged."""
        return (self.run.directory / f"{part}.log").read_text()

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._inside.stdin is not None
        self._inside.stdin.write(json.dumps(request) + "\n")
        self._inside.stdin.flush()

    def _read(self) -> None:
        assert self._inside.stdout is not None
        for line in self._inside.stdout:
            with contextlib.suppress(ValueError):
                self._events.put(json.loads(line))
        self._events.put({"event": "failed", "message": f"the run's main process ended: {self._log_tail()}"})

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return " ".join(self.log("inside").split())[-400:]
        return "no log was written"

    def _await(self, event: str, patience_s: float, on_progress: OnProgress | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                message = self._events.get(timeout=min(SIGNAL_CHECK_S, max(deadline - time.monotonic(), 0.01)))
            except queue.Empty:
                if time.monotonic() < deadline:
                    continue
                raise EmulationError(f"no {event!r} within {patience_s:.0f} s: {self._log_tail()}") from None
            if message["event"] == event:
                return message
            if message["event"] == "failed":
                raise EmulationError(message["message"])
            if message["event"] == "progress" and on_progress is not None:
                on_progress(message["study"], message["done"], message["total"])


@contextlib.contextmanager
def emulated_run(config: RunConfig, keep_logs: Path | None = None) -> Iterator[EmulatedRun]:
    """Bring up a run in fresh namespaces; remove all of it when the block is left, by an exception, too.

    keep_logs: a directory to which the run's logs are copied before they are removed.
    """
    with contextlib.ExitStack() as stack:
        started: list[subprocess.Popen[str]] = []
        with _uninterrupted():
            run = record(secrets.token_hex(3))
            stack.callback(_end, run, started, keep_logs)
        run.directory.mkdir()
        tools.run("ip", "netns", "add", run.namespace)
        file = run.directory / "config.json"
        resolved = replace(config, scenario=config.scenario.resolve())
        file.write_bytes(TypeAdapter(RunConfig).dump_json(resolved))
        with (run.directory / "inside.log").open("w") as log:
            inside = subprocess.Popen(
                ["ip", "netns", "exec", run.namespace, sys.executable, "-m", "topologies.emulation.inside", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**without_token(os.environ), RUN_VARIABLE: run.id},
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the others
            )
        started.append(inside)
        yield EmulatedRun(run, inside)


def _end(run: RunRecord, started: "list[subprocess.Popen[str]]", keep_logs: Path | None) -> None:
    with _uninterrupted():
        try:
            if keep_logs is not None:
                keep_logs.mkdir(parents=True, exist_ok=True)
                for log in run.directory.glob("*.log"):
                    (keep_logs / log.name).write_bytes(log.read_bytes())
        finally:
            remove(run)
        for process in started:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP while the block runs, then raise the last of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []

    def defer(signum: int, frame: FrameType | None) -> None:
        deferred.append(signum)

    previous = {s: signal.signal(s, defer) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
        if deferred:
            signal.raise_signal(deferred[-1])
