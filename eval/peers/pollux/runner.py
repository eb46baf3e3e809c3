"""Runs one simulation inside a checkout of the simulator, as `eval.peers.simulation` says."""

import random
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from eval.peers.contender import PeerRun
from eval.peers.pollux.equivalents import install
from eval.peers.simulation import generators, main

FIXED_BATCH_SIZES = {"ncf": 32768}  # samples; of the application whose batch size is not free under its own Pollux either


def build(folder: Path, run: PeerRun) -> tuple[Any, random.Random]:
    """Return the simulator's cluster, with its own policy or ours, and the random numbers of ours."""
    sys.path.insert(0, str(folder))
    simulator: Any = import_module("simulator")
    pandas = import_module("pandas")
    if not run.original:
        install(simulator)
    workload = pandas.read_csv(folder / "workloads" / f"workload-{run.workload}.csv")
    rng = random.Random(run.seed)
    if run.contender.own:
        # its Tiresias asks for the time of the cluster that is made with it
        made: list[Any] = []
        policy = {
            "pollux": lambda: simulator.PolluxPolicy(),
            "tiresias": lambda: simulator.TiresiasPolicy(lambda: made[0].current_time),
            "optimus": lambda: simulator.OptimusPolicy(),
        }[run.contender.policy]()
        made.append(simulator.Cluster(workload, policy, run.nodes, num_gpus=run.gpus))
        return made[0], rng
    from eval.peers.pollux.adapter import PolicyInSimulator

    ours = PolicyInSimulator(run.contender, lambda: cluster.current_time, rng)
    cluster = simulator.Cluster(workload, ours, run.nodes, num_gpus=run.gpus)
    cluster.jobs = [_job(simulator, row, run.contender.sizes == "free") for row in workload.itertuples()]
    cluster.get_job_infos = lambda: {
        job.name: job for job in cluster.jobs if cluster.current_time >= job.submission_time and job.completion_time is None
    }
    return cluster, rng


def _job(simulator: Any, row: Any, free: bool) -> Any:
    """Return a job as the simulator itself makes it for its Pollux, or for its Tiresias."""
    app = simulator.APPLICATIONS[row.application]
    if free:
        return simulator.Job(row.name, app, row.time, target_batch_size=FIXED_BATCH_SIZES.get(row.application))
    return simulator.Job(row.name, app, row.time, target_num_replicas=row.num_replicas, target_batch_size=row.batch_size)


def simulate(folder: Path, run: PeerRun, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Run until all jobs have ended."""
    cluster, rng = build(folder, run)
    random.seed(run.seed)  # again: what its modules draw when they are imported is no part of the run
    import_module("numpy").random.seed(run.seed)
    before = generators(rng)
    while not cluster.all_complete():
        cluster.step(run.interval_s)
        progress(sum(job.completion_time is not None for job in cluster.jobs), len(cluster.jobs))
    ended_s, submitted_s = ([getattr(job, name) for job in cluster.jobs] for name in ("completion_time", "submission_time"))
    return {
        "jct_s": {job.name: float(job.completion_time - job.submission_time) for job in cluster.jobs},
        "restarts": {job.name: int(job.num_restarts or 0) for job in cluster.jobs},
        "makespan_s": float(max(ended_s) - min(submitted_s)),
        "random": generators(rng) != before,
        "versions": {name: import_module(name).__version__ for name in ("numpy", "pandas", "pymoo")},
    }


if __name__ == "__main__":
    main(simulate)
