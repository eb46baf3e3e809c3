"""Runs one simulation inside a checkout of the simulator, started with the interpreter that has the simulator's packages.

`python -m eval.peers.pollux.runner FOLDER RUN.json RESULT.json`; prints how many jobs have ended, DONE TOTAL, as it changes.
"""

import contextlib
import io
import json
import os
import random
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from eval.peers.contender import PeerRun


def build(folder: Path, run: PeerRun) -> tuple[Any, random.Random]:
    """Return the simulator's cluster, with its own policy or ours, and the random numbers of ours."""
    sys.path.insert(0, str(folder))
    simulator, pandas = import_module("simulator"), import_module("pandas")
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


FIXED_BATCH_SIZES = {
    "ncf": 32768
}  # samples; of the application whose batch size is not free under the simulator's Pollux either


def _job(simulator: Any, row: Any, free: bool) -> Any:
    """Return a job as the simulator itself makes it for its Pollux, or for its Tiresias."""
    app = simulator.APPLICATIONS[row.application]
    if free:
        return simulator.Job(row.name, app, row.time, target_batch_size=FIXED_BATCH_SIZES.get(row.application))
    return simulator.Job(row.name, app, row.time, target_num_replicas=row.num_replicas, target_batch_size=row.batch_size)


def simulate(folder: Path, run: PeerRun) -> dict[str, Any]:
    """Run until all jobs have ended and return what came of each, as plain JSON."""
    numpy = import_module("numpy")
    cluster, rng = build(folder, run)
    random.seed(run.seed)
    numpy.random.seed(run.seed)
    before = _drawn(numpy, rng)
    started, done = time.process_time(), -1
    while not cluster.all_complete():
        with contextlib.redirect_stdout(io.StringIO()):
            cluster.step(run.interval_s)
        now_done = sum(job.completion_time is not None for job in cluster.jobs)
        if now_done != done:
            done = now_done
            print(done, len(cluster.jobs), flush=True)
    return {
        "jct_s": {job.name: float(job.completion_time - job.submission_time) for job in cluster.jobs},
        "restarts": {job.name: int(job.num_restarts or 0) for job in cluster.jobs},
        "makespan_s": float(
            max(job.completion_time for job in cluster.jobs) - min(job.submission_time for job in cluster.jobs)
        ),
        "random": _drawn(numpy, rng) != before,
        "cpu_s": time.process_time() - started,
        "versions": {name: import_module(name).__version__ for name in ("numpy", "pandas", "pymoo")},
    }


def _drawn(numpy: Any, rng: random.Random) -> str:
    """Return the states of all generators: they change if a random number is drawn."""
    return repr(
        (
            random.getstate(),
            [part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()],
            rng.getstate(),
        )
    )


def main() -> None:
    """Run what the arguments say, and leave the result in a file that is either whole or absent."""
    warnings.simplefilter("ignore")  # the simulator's, of its old packages
    folder, run_file, result_file = map(Path, sys.argv[1:4])
    result = simulate(folder, PeerRun.model_validate_json(run_file.read_text()))
    partial = result_file.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    os.replace(partial, result_file)


if __name__ == "__main__":
    main()
