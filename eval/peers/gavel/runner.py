"""Runs one simulation inside a checkout of the simulator, as `eval.peers.simulation` says.

What only a physical cluster needs of the simulator's imports is replaced by empty modules.
"""

import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from eval.peers.contender import PeerRun
from eval.peers.simulation import generators, main

KIND = "v100"  # of all GPUs
SOLVER = "ECOS"  # the one that its publication's scripts name


def simulate(folder: Path, run: PeerRun, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Run until all jobs have ended."""
    rng = random.Random(run.seed)
    jobs = int(run.work["jobs"])
    scheduler = build(folder, run, rng)
    restarts: dict[str, int] = {}
    schedule = count_restarts(scheduler._schedule_jobs_on_workers, restarts)

    def followed() -> Any:
        progress(len(scheduler._completed_jobs), jobs)
        return schedule()

    scheduler._schedule_jobs_on_workers = followed
    before = generators(rng)
    scheduler.simulate(
        {KIND: run.nodes * run.gpus},
        lam=run.work["between_arrivals_s"],
        num_total_jobs=jobs,
        generate_multi_gpu_jobs=True,
        num_gpus_per_server={KIND: run.gpus},
    )
    progress(jobs, jobs)
    jct_s = {str(job): float(seconds) for job, seconds in scheduler._job_completion_times.items()}
    return {
        "jct_s": jct_s,
        "restarts": {job: restarts.get(job, 0) for job in jct_s},
        "makespan_s": float(scheduler.get_current_timestamp()),
        "random": generators(rng) != before,
        "versions": {name: import_module(name).__version__ for name in ("numpy", "cvxpy", "ecos")},
    }


def build(folder: Path, run: PeerRun, rng: random.Random) -> Any:
    """Return the simulator, with its own policy or ours. rng: random numbers of ours."""
    simulator, utils = load(folder)

    def scheduler(policy: Any) -> Any:
        return simulator.Scheduler(
            policy,
            simulate=True,
            throughputs_file=str(folder / "simulation_throughputs.json"),
            seed=int(run.workload),
            time_per_iteration=run.interval_s,
        )

    if run.contender.own:
        return scheduler(utils.get_policy(run.contender.policy, solver=SOLVER, seed=run.seed))
    from eval.peers.gavel.adapter import EqualShares, PolicyInRounds

    made = scheduler(EqualShares())
    made._schedule_jobs_on_workers_helper = PolicyInRounds(run.contender, made, KIND, run.nodes, run.gpus, rng).choose
    return made


def count_restarts(schedule: Callable[[], Mapping[Any, Sequence[int]]], restarts: dict[str, int]) -> Callable[[], Any]:
    """Return the simulator's `schedule`, of GPUs by job, which counts in `restarts` how often a job's GPUs are other ones.

    A job that pauses is counted when it continues.
    """
    last: dict[str, frozenset[int]] = {}
    running: set[str] = set()

    def counted() -> Mapping[Any, Sequence[int]]:
        given = schedule()
        for job, gpus in given.items():
            for one in map(str, job.singletons()):
                if one in last and (one not in running or last[one] != frozenset(gpus)):
                    restarts[one] = restarts.get(one, 0) + 1
                last[one] = frozenset(gpus)
        running.clear()
        running.update(str(one) for job in given for one in job.singletons())
        return given

    return counted


def load(folder: Path) -> tuple[Any, Any]:
    """Import the simulator's modules `scheduler` and `utils`."""
    calls, completion = ModuleType("runtime.rpc"), ModuleType("matrix_completion")
    vars(calls).update(scheduler_server=None, scheduler_client=None)
    sys.modules.update({calls.__name__: calls, completion.__name__: completion})
    sys.path.insert(0, str(folder))
    logging.disable(logging.CRITICAL)  # a line per job and round
    return import_module("scheduler"), import_module("utils")


if __name__ == "__main__":
    main(simulate)
