"""A controller process, and commands of several searches that it decides for, on declared GPUs that each program locks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from beamer.engines.local.supervisor.ports import KeptPort
from tests.processes.site import of_directory, until
from tests.support import plain_http
from topologies.single import build

NODES = [{"name": name, "gpus": 2, "devices": [f"{name}-{i}" for i in range(2)]} for name in ("h1", "h2")]
RATES = {"a": 0.0001, "b": 0.01, "c": 0.05, "d": 0.2}
RUNGS = [{"iterations": 40, "keep": 2}, {"iterations": 80, "keep": 1}, {"iterations": 120}]
TIMEOUT_S = 240
EXCLUSIVE = """
# Takes a lock on its GPU, and says so where another program has it; then it is the trainer.
import fcntl, os, runpy, sys
gpu = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
locks = sys.argv.pop(1)
lock = open(f"{locks}/{gpu}", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(f"{locks}/violations", "a").write(f"{os.environ['BEAMER_STUDY']}/{os.environ['BEAMER_TRIAL']} on {gpu}\\n")
told = {name: os.environ[name] for name in ("BEAMER_URL", "BEAMER_RUN", "BEAMER_STAGE")}
assert all(told.values()), told
sys.argv[0] = "trainer"
runpy.run_module("beamer.testing.trainer", run_name="__main__")
"""


class SharedCluster:
    """A controller, and commands of several searches that it decides for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._port = KeptPort()
        self.port = self._port.take()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        (root / "fabric.json").write_text(json.dumps(build(hosts=2).to_dict()))
        (root / "exclusive.py").write_text(EXCLUSIVE)
        (root / "locks").mkdir()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_controller(self, policy: str) -> None:
        options = {
            "fabric": self.root / "fabric.json",
            "journal": f"sqlite:///{self.root / 'controller.db'}",
            "http": f"127.0.0.1:{self.port}",
            "openflow": "127.0.0.1:0",
            "gpu-policy": policy,
        }
        self._start("controller", "controller.cli", *(f"--{name}={value}" for name, value in options.items()))

    def get(self, path: str) -> Any:
        """Return an answer of the controller, once it answers."""

        def asked() -> httpx.Response | None:
            try:
                answer = plain_http.get(f"{self.url}/v1/{path}", timeout=5.0)
            except httpx.HTTPError:
                return None
            return answer if answer.status_code == 200 else None

        return until(asked, f"the controller's {path}").json()

    def write_search(self, name: str, rates: Mapping[str, float] = RATES, **keys: Any) -> None:
        command = ["{python}", self.root / "exclusive.py", self.root / "locks", "--learning-rate", "{lr}"]
        command += ["--iterations", "{iterations}", "--pause-s", 0.02]
        data = {
            "name": name,
            "nodes": NODES,
            "job": {
                "command": [one if isinstance(one, float) else str(one) for one in command],
                "env": {"OPENBLAS_NUM_THREADS": 1},
                "request": {"batch_size": 64, "epoch": 5},
            },
            "configurations": [{"name": trial, "lr": rate} for trial, rate in rates.items()],
            "rungs": RUNGS,
            "memory": "none",  # so that a program that is suspended has left its GPU
            "retries": 30,
            **keys,
        }
        (self.root / f"{name}.yaml").write_text(yaml.safe_dump(data))

    def start_search(self, name: str, *options: str) -> subprocess.Popen[str]:
        arguments = ["schedule", self.root / f"{name}.yaml", "--dir", self.root / name, "--json", self.root / f"{name}.json"]
        return self._start(name, "beamer.cli", *map(str, arguments), "--controller", self.url, *options)

    def ended(self, name: str, code: int = 0) -> dict[str, Any]:
        """Wait for a search's command and return the figures that it has written."""
        output = self.processes[name].communicate(timeout=TIMEOUT_S)[0]
        assert self.processes[name].returncode == code, output
        figures: dict[str, Any] = json.loads((self.root / f"{name}.json").read_text())
        return figures

    @property
    def violations(self) -> str:
        path = self.root / "locks" / "violations"
        return path.read_text() if path.exists() else ""

    def start_program(self, name: str, module: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a search that is a Python program."""
        return self._start(name, module, *arguments)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].communicate()

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *arguments]
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return self.processes[name]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._port.release()
        for pid in of_directory(self.root):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not of_directory(self.root), "all processes to be gone")
