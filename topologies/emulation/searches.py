"""Runs the searches of a scenario for both levels: each is a `beamer schedule` of its own, on the hosts of the network.

Their engines launch real processes in the hosts' namespaces, as the controller's GPU policy decides.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from beamer.client.credentials import without_token
from beamer.engines.local.spec import COLLECTIVE_TIMEOUT_S
from beamer.engines.profiles import DataParallelProfile
from beamer.engines.simulated import SimulatedJob
from beamer.errors import EmulationError, InputError
from beamer.gpu.model import Node
from beamer.lazy_commands import DISTRIBUTION
from beamer.workloads.joint import JointScenario, SearchPlan
from beamer.workloads.programs import DIGITS, PROGRAMS, STAND_IN, digits_hidden
from beamer.workloads.scenario import Scenario, TransportSettings
from beamer.yaml_files import dump_yaml
from topologies.emulation.collectives import STALL_PATIENCE_S

POLL_S = 0.25  # An engine looks at its jobs again after so long.
# A program takes so long from its launch until it is connected: a part of what a start or a restart takes in all.
LAUNCH_S = 0.4
RETRIES = 10  # A trial is retried so often: ranks may be killed to see what becomes of a run.
LOOK_S = 0.05
PATIENCE_S = 900.0


@dataclass(frozen=True)
class HostEntry:
    """How a search reaches a host. ip: its address. pid: of the process whose namespaces are the host's."""

    ip: str
    pid: int


def check_searches(scenario: JointScenario) -> None:
    """Check that searches can be run on real packets. Raises `InputError`."""
    for i, plan in enumerate(scenario.searches):
        for job in plan.trials.values():
            if job.request.traffic.collective != "ring":
                raise InputError(f"searches[{i}].job.collective", job.request.traffic.collective, "ring, on real packets")


def network_of(searches: JointScenario) -> Scenario:
    """Return the network of a scenario of searches, without anything that runs on it."""
    return Scenario(searches.name, searches.fabric, searches.seed, searches.queues, ())


@dataclass(frozen=True)
class SearchProgram:
    """How a program of `beamer.workloads.programs` is run."""

    module: str
    """The module that runs."""
    options: Callable[[SearchPlan, TransportSettings, Path], dict[str, Any]]
    """Options that not all programs have, of a search and the file of `prepare`.

    They may have {placeholders} of a configuration.
    """
    values: Callable[[SearchPlan, str], dict[str, int | float]]
    """The values of a configuration, of a search and a trial."""
    launch_s: float
    """Seconds of what a start or a restart takes in all that the program does not know of."""
    timeout_s: float
    """The time-out of its collectives, seconds."""
    prepare: Callable[[Path], None] = lambda path: None
    """Writes what its ranks read into a file."""


def _stand_in_options(plan: SearchPlan, transport: TransportSettings, prepared: Path) -> dict[str, Any]:
    return {
        "--sync-bytes": _first(plan).request.traffic.sync_bytes,
        "--start": "{start}",
        "--floor": "{floor}",
        "--half": "{half}",
        "--congestion-control": transport.congestion_control,
        "--window-bytes": transport.window_bytes,
    }


def _stand_in_values(plan: SearchPlan, trial: str) -> dict[str, int | float]:
    loss = _profile(plan, trial).loss
    return {"start": loss.start, "floor": loss.floor, "half": loss.half}


def _digits_options(plan: SearchPlan, transport: TransportSettings, prepared: Path) -> dict[str, Any]:
    return {
        "--timeout-s": COLLECTIVE_TIMEOUT_S,
        "--data": prepared,
        "--learning-rate": "{learning_rate}",
        "--momentum": "{momentum}",
        "--channels": "{channels}",
        "--hidden": "{hidden}",
    }


def _digits_values(plan: SearchPlan, trial: str) -> dict[str, int | float]:
    configuration = plan.configurations[trial]
    sync_bytes = _first(plan).request.traffic.sync_bytes
    assert sync_bytes is not None, "as scenarios for both levels declare it"
    hidden = digits_hidden(int(configuration["channels"]), sync_bytes)
    return {**configuration, "hidden": hidden}


def _store_digits(path: Path) -> None:
    from topologies.emulation import digits_data  # This module needs scikit-learn.

    digits_data.store(path)


SEARCH_PROGRAMS: Mapping[str, SearchProgram] = {
    STAND_IN: SearchProgram(
        "topologies.emulation.program", _stand_in_options, _stand_in_values, LAUNCH_S, STALL_PATIENCE_S
    ),
    DIGITS: SearchProgram(
        "topologies.emulation.digits", _digits_options, _digits_values, 0.0, COLLECTIVE_TIMEOUT_S, _store_digits
    ),
}  # fmt: skip


def with_stand_ins(
    scenario: JointScenario, is_installed: Callable[[str], bool] = lambda module: bool(importlib.util.find_spec(module))
) -> tuple[JointScenario, tuple[str, ...]]:
    """Return a scenario whose searches run the stand-in where their program cannot be run here, and a line for each program."""
    used = {plan.program: PROGRAMS[plan.program] for plan in scenario.searches}
    missing = {name: [module for module in one.requires if not is_installed(module)] for name, one in used.items()}
    plans = [replace(plan, program=STAND_IN) if missing[plan.program] else plan for plan in scenario.searches]
    lines = [
        f"{STAND_IN} runs in place of {name}, which needs {' and '.join(modules)}: "
        f"pip install '{DISTRIBUTION}[{used[name].extra}]'"
        for name, modules in missing.items()
        if modules
    ]
    return replace(scenario, searches=tuple(plans)), tuple(lines)


def search_file(
    plan: SearchPlan,
    nodes: tuple[Node, ...],
    hosts: Mapping[str, HostEntry],
    transport: TransportSettings,
    prepared: Path = Path(),
) -> dict[str, Any]:
    """Return the content of the file of a search, whose configurations are its trials. prepared: as of `SearchProgram`."""
    first, program = _first(plan), SEARCH_PROGRAMS[plan.program]
    profile, request, costs = _profile(plan), first.request, first.costs
    traffic = {name: value for name, value in vars(request.traffic).items() if value is not None}
    traffic["compute_s"] = "{iteration_s}"
    options: dict[str, Any] = {
        "--iterations": "{iterations}",
        "--compute-s": "{compute_s}",
        "--fixed-s": profile.fixed_s,
        "--overlap": request.traffic.overlap,
        "--epoch": request.epoch,
        "--start-s": max(first.start_s - program.launch_s, 0.0),
        "--restart-s": max(costs.restart_s - program.launch_s, 0.0),
        **program.options(plan, transport, prepared),
    }
    return {
        "name": plan.name,
        "nodes": [
            {
                "name": node.name,
                "gpus": node.gpus,
                "address": hosts[node.name].ip,
                "launcher": {"kind": "mininet", "pid": hosts[node.name].pid},
            }
            for node in nodes
        ],
        "job": {
            "command": ["{python}", "-m", program.module, *(str(part) for pair in options.items() for part in pair)],
            "cwd": os.getcwd(),
            "env": {"OMP_NUM_THREADS": "1"},  # ranks share processors
            "request": {
                "gpus": request.gpus,
                "min_gpus": request.min_gpus,
                "max_gpus": request.max_gpus,
                "epoch": request.epoch,
                "batch_size": request.batch_size,
                "traffic": traffic,
            },
        },
        "configurations": [{"name": name, **_computing(plan, name), **program.values(plan, name)} for name in plan.trials],
        "rungs": _rungs(plan),
        "poll_s": POLL_S,
        "retries": RETRIES,
        "collective_timeout_s": program.timeout_s,  # A trial is parked before it is suspended for so long.
    }


class SearchRunner:
    """All searches of a scenario, each from its arrival on; one that is killed is continued.

    hosts: by name. url: of the controller. directory: where each search has one of its own. log, tail: open and read a log.
    emit: tells of progress.
    """

    def __init__(
        self,
        scenario: JointScenario,
        transport: TransportSettings,
        hosts: Mapping[str, HostEntry],
        url: str,
        directory: Path,
        log: Callable[[str], IO[str]],
        tail: Callable[[str], str],
        emit: Callable[..., None],
    ) -> None:
        self._scenario = scenario
        self._transport = transport
        self._hosts = hosts
        self._url = url
        self._directory = directory
        self._log = log
        self._tail = tail
        self._emit = emit
        self._commands: dict[str, subprocess.Popen[str]] = {}
        for name in {plan.program for plan in scenario.searches}:
            SEARCH_PROGRAMS[name].prepare(self._prepared(name))

    def pids(self) -> list[int]:
        """Return the process ids of the searches' engines."""
        return [command.pid for command in self._commands.values()]

    def run(self) -> None:
        """Run all searches to their end. Raises `EmulationError` if one fails or none ends in time."""
        began = time.monotonic()
        due = sorted(self._scenario.searches, key=lambda plan: plan.arrival_s)
        ended: set[str] = set()
        while len(ended) < len(self._scenario.searches):
            passed_s = time.monotonic() - began
            if passed_s > PATIENCE_S:
                raise EmulationError(f"the searches did not end within {PATIENCE_S:.0f} s")
            while due and due[0].arrival_s <= passed_s:
                self._start(due.pop(0))
            for name, command in tuple(self._commands.items()):
                if name in ended or command.poll() is None:
                    continue
                if command.returncode == -signal.SIGKILL:  # Whoever watches over a service would start it again, too.
                    self._launch(name)
                    continue
                if command.returncode:
                    why = self._tail(f"search-{name}")
                    raise EmulationError(f"search {name} ended with status {command.returncode}: {why}")
                ended.add(name)
                self._emit("progress", study=name, done=1, total=1)
            time.sleep(LOOK_S)

    def _start(self, plan: SearchPlan) -> None:
        prepared = self._prepared(plan.program)
        content = search_file(plan, self._scenario.nodes, self._hosts, self._transport, prepared)
        (self._directory / f"{plan.name}.yaml").write_text(dump_yaml(content))
        self._launch(plan.name)

    def _prepared(self, program: str) -> Path:
        return self._directory / f"{program}.npz"

    def _launch(self, name: str) -> None:
        path = self._directory / f"{name}.yaml"
        command = [sys.executable, "-m", "beamer.cli", "schedule", path, "--dir", self._directory / name]
        self._commands[name] = subprocess.Popen(
            [*map(str, command), "--controller", self._url],
            stdin=subprocess.DEVNULL,
            stdout=self._log(f"search-{name}"),
            stderr=subprocess.STDOUT,
            env=without_token(os.environ),
            text=True,
        )


def _first(plan: SearchPlan) -> SimulatedJob:
    """Return the job of one of its trials, which differ in their losses and computing alone."""
    return next(iter(plan.trials.values()))


def _profile(plan: SearchPlan, trial: str | None = None) -> DataParallelProfile:
    profile = (_first(plan) if trial is None else plan.trials[trial]).profile
    assert isinstance(profile, DataParallelProfile), "as scenarios for both levels make them"
    return profile


def _computing(plan: SearchPlan, trial: str) -> dict[str, float]:
    """Return how long a trial computes for in an iteration, on one GPU and on as many as it asks for."""
    declared_s = plan.trials[trial].request.traffic.compute_s
    assert declared_s is not None, "as scenarios for both levels declare it"
    return {"compute_s": _profile(plan, trial).compute_s, "iteration_s": declared_s}


def _rungs(plan: SearchPlan) -> list[dict[str, int]]:
    """Return the rungs as files declare them: how far trials run, and how many go on."""
    following = [rung.trials for rung in plan.rungs[1:]]
    declared = [{"iterations": rung.step} for rung in plan.rungs]
    return [{**rung, "keep": keep} for rung, keep in zip(declared, following, strict=False)] + declared[len(following) :]
