"""Runs the scenario's studies: registers studies, stages and trials as a tuner does, starts trainers on their hosts."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from beamer.client import Client, StudyHandle, TrialHandle
from beamer.errors import EmulationError, InputError
from beamer.network.collectives import PARAMETER_SERVER
from beamer.network.fabric import Fabric
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan
from topologies.emulation.network import EmulatedNetwork
from topologies.emulation.priority import TRAINER_PRIORITY
from topologies.emulation.trainer import TrainerTask

FIRST_PORT = 20000
STAGE_PATIENCE_S = 600.0
START_PATIENCE_S = 60.0
EMULATED = ("ring", PARAMETER_SERVER)
MIN_START_UP_S = 0.5
MAX_PREPARED = 40  # At most so many processes on one host wait for a task.


def check_emulable(scenario: Scenario) -> None:
    """Check that the emulation can run `scenario` as it is. Raises `InputError`: the simulator can do more."""
    if scenario.failures:
        raise InputError("failures", len(scenario.failures), "none: cables fail in the simulator only")
    for i, host in enumerate(scenario.fabric.hosts):
        if host.agent is None:
            raise InputError(f"fabric.hosts[{i}].agent", None, "an agent, which every emulated host runs")
    if scenario.start_up_s < MIN_START_UP_S:
        expected = f"at least {MIN_START_UP_S}, or first bytes leave before the network knows their class"
        raise InputError("start_up_s", scenario.start_up_s, expected)
    for study in scenario.studies:
        for stage in study.stages:
            if stage.finish is not None:
                field = f"{study.name}/{stage.name}.finish"
                raise InputError(field, stage.finish, "no such key: jobs are killed in the simulator only")
            for job in stage.jobs:
                if job.collective not in EMULATED:
                    field = f"{study.name}/{stage.name}/{job.name}.collective"
                    raise InputError(field, job.collective, f"{' or '.join(EMULATED)}, which the emulated trainer implements")


class Launchers:
    """The launcher of every host, and the ends of the processes that they started.

    sockets: at which the processes of each host attach to its agent. log, tail: open a log, and return the end of one.
    """

    def __init__(
        self,
        network: EmulatedNetwork,
        fabric: Fabric,
        sockets: Mapping[str, Path],
        log: Callable[[str], IO[str]],
        tail: Callable[[str], str],
    ) -> None:
        self.fabric = fabric
        self._tail = tail
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ended: dict[str, int] = {}
        self._prepared: set[str] = set()
        self._gone: set[str] = set()
        self._host_of: dict[str, str] = {}
        self._changed = threading.Condition()
        for host in fabric.host:
            process = subprocess.Popen(
                [*network.enter(host), *TRAINER_PRIORITY.command([sys.executable, "-m", "topologies.emulation.launcher"])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log(f"trainers-{host}"),
                env={**os.environ, "BEAMER_AGENT": str(sockets[host])},
                text=True,
            )
            self._processes[host] = process
        for host, process in self._processes.items():
            assert process.stdout is not None
            if "ready" not in process.stdout.readline():
                raise EmulationError(f"the launcher of trainers on {host} did not start: {tail(f'trainers-{host}')}")
            threading.Thread(target=self._listen, args=(host, process.stdout), daemon=True).start()

    def pids(self) -> list[int]:
        """Return the process ids of the launchers, whose children the trainers are."""
        return [process.pid for process in self._processes.values()]

    def prepare(self, scenario: Scenario, url: str) -> None:
        """Fork ahead, on every host, the processes that the scenario will start there, for a controller at `url`."""
        starts = Counter(
            worker.host
            for study in scenario.studies
            for stage in study.stages
            for spec in stage.jobs
            for worker in spec.workers
        )
        for host, count in starts.items():
            self._ask(host, {"prepare": min(count, MAX_PREPARED), "controller": url})
        with self._changed:
            if not self._changed.wait_for(lambda: self._prepared >= starts.keys(), START_PATIENCE_S):
                missing = sorted(starts.keys() - self._prepared)
                raise EmulationError(f"the trainers of {missing} were not forked within {START_PATIENCE_S:.0f} s")

    def start(self, identity: str, host: str, task: TrainerTask) -> None:
        """Start `task` on `host` under the name `identity`."""
        self._host_of[identity] = host
        self._ask(host, {"start": identity, "task": asdict(task)})

    def _ask(self, host: str, request: dict[str, Any]) -> None:
        stream = self._processes[host].stdin
        assert stream is not None
        stream.write(json.dumps(request) + "\n")
        stream.flush()

    def wait(self, identities: list[str], patience_s: float) -> None:
        """Wait until all these have ended. Raises `EmulationError` if one failed or none ends in time."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            while True:
                for identity in identities:
                    host = self._host_of[identity]
                    if self._ended.get(identity, 0):
                        what = f"trainer {identity} on {host} ended with status {self._ended[identity]}"
                        raise EmulationError(f"{what}: {self._tail(f'trainers-{host}')}")
                    if host in self._gone and identity not in self._ended:
                        raise EmulationError(f"the launcher of trainers on {host} ended: {self._tail(f'trainers-{host}')}")
                missing = [i for i in identities if i not in self._ended]
                if not missing:
                    return
                if not self._changed.wait(deadline - time.monotonic()):
                    raise EmulationError(f"trainers {missing} did not end within {patience_s:.0f} s")

    def _listen(self, host: str, output: IO[str]) -> None:
        for line in output:
            message = json.loads(line)
            with self._changed:
                if "prepared" in message:
                    self._prepared.add(host)
                else:
                    self._ended[message["ended"]] = message["status"]
                self._changed.notify_all()
        with self._changed:
            self._gone.add(host)
            self._changed.notify_all()


class StudyRunner:
    """All studies of a scenario, each in a thread of its own from its arrival on."""

    def __init__(self, scenario: Scenario, launchers: Launchers, url: str, emit: Callable[..., None]) -> None:
        self._scenario = scenario
        self._launchers = launchers
        self._url = url
        self._emit = emit
        self._ports = iter(range(FIRST_PORT, 60000))
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._ended_studies = {study.name: threading.Event() for study in scenario.studies}

    def pids(self) -> list[int]:
        """Return the process ids of the launchers, whose children the trainers are."""
        return self._launchers.pids()

    def beside(self, scenario: Scenario) -> "StudyRunner":
        """Return what runs another scenario's studies with the same launchers, and tells nobody."""
        return StudyRunner(scenario, self._launchers, self._url, lambda *_, **__: None)

    def run(self) -> None:
        """Run all studies to their end. Raises the first error of any."""
        threads = [threading.Thread(target=self._run_study, args=(study,), daemon=True) for study in self._scenario.studies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run_study(self, study: StudyPlan) -> None:
        try:
            if study.after is not None:
                self._ended_studies[study.after].wait()
                if self._errors:
                    return
            time.sleep(study.arrival_s)
            self._run_stages(study)
        except Exception as error:  # noqa: BLE001  `run` raises the error again.
            self._errors.append(error)
        finally:
            self._ended_studies[study.name].set()

    def _run_stages(self, plan: StudyPlan) -> None:
        with Client(self._url) as client:
            study = client.study(plan.name, weight=plan.weight, rungs=plan.rungs)
            trials: dict[str, TrialHandle] = {}
            done: Counter[str] = Counter()
            for number, stage_plan in enumerate(plan.stages):
                self._register(study, stage_plan, trials, done)
                # A worker's first report about its trial must not overtake the trial's registration.
                if not client.flush(5.0):
                    raise EmulationError(f"study {plan.name}: the controller did not accept its registrations in time")
                self._launchers.wait(self._launch(study, stage_plan, done), STAGE_PATIENCE_S)
                if not client.wait_stage(plan.name, stage_plan.name, STAGE_PATIENCE_S):
                    raise EmulationError(f"stage {plan.name}/{stage_plan.name}: its trainers ended, the stage did not")
                done.update({spec.name: spec.iterations for spec in stage_plan.jobs})
                surviving = {spec.name for later in plan.stages[number + 1 :] for spec in later.jobs}
                for name in [name for name in trials if name not in surviving]:
                    trial = trials.pop(name)
                    if number + 1 == len(plan.stages):
                        trial.finish()
                    else:
                        trial.kill()
                self._emit("progress", study=plan.name, done=number + 1, total=len(plan.stages))
            study.end()

    def _register(
        self, study: StudyHandle, plan: StagePlan, trials: dict[str, TrialHandle], done: Mapping[str, int]
    ) -> None:  # fmt: skip
        """Register a stage with its trials, each in an attempt that has the stage's name."""
        with study.stage(plan.name) as stage:
            for spec in plan.jobs:
                trial = trials.setdefault(spec.name, study.trial(spec.name))
                stage.add(trial, step=done[spec.name] + spec.iterations)
                trial.start(
                    attempt=plan.name,
                    workers=spec.workers,
                    sync_bytes=spec.sync_bytes,
                    collective=spec.collective,
                    compute_s=spec.compute_s,
                    overlap=spec.overlap,
                )

    def _launch(self, study: StudyHandle, stage: StagePlan, done: Mapping[str, int]) -> list[str]:
        identities = []
        for spec in stage.jobs:
            with self._lock:
                ports = tuple(next(self._ports) for _ in spec.workers)
            addresses = tuple(self._launchers.fabric.host[w.host].ip for w in spec.workers)
            for worker in spec.workers:
                task = TrainerTask(
                    study.name, study.run, spec, worker.rank, addresses, ports, self._url, self._scenario.start_up_s,
                    self._scenario.transport, done[spec.name],
                )  # fmt: skip
                identity = f"{study.name}/{stage.name}/{spec.name}#{worker.rank}"
                self._launchers.start(identity, worker.host, task)
                identities.append(identity)
        return identities
