"""What a grant of GPUs means for a trial's attempt: its workers, their traffic, the processes that they are, its end. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from beamer.gpu.devices import Devices
from beamer.gpu.model import Grant, Job
from beamer.studies.events import AttemptEnded, Event, WorkerAttached
from beamer.studies.model import EndReason, Process, Profile, Role, Worker
from beamer.studies.records import TrialRecord


def workers_on(grant: Grant, devices: Devices) -> tuple[Worker, ...]:
    """Return a worker per GPU, then the parameter servers."""
    servers = [node for node, count in grant.servers for _ in range(count)]
    of_gpus = (Worker(rank, node) for rank, (node, _) in enumerate(devices))
    return (*of_gpus, *(Worker(rank, node, Role.SERVER) for rank, node in enumerate(servers, len(devices))))


def traffic_on(job: Job, grant: Grant) -> Profile:
    """Return what a job does in a step on a grant: it computes as long as was measured there, or in proportion to samples."""
    request = job.request
    batch_size = grant.batch_size or request.batch_size
    shape = (grant.size, grant.nodes, grant.served, batch_size)
    for speed in job.speeds:
        if speed.sync_s > 0 and (speed.gpus, speed.nodes, speed.servers, speed.batch_size) == shape:
            return replace(request.traffic, compute_s=speed.step_s - speed.sync_s)
    if request.traffic.compute_s is None:
        return request.traffic
    samples = batch_size / request.batch_size * request.gpus / grant.size
    return replace(request.traffic, compute_s=request.traffic.compute_s * samples)


def runs_on(devices: Devices, processes: Mapping[str, Process]) -> bool:
    """Say whether processes are on the nodes of some GPUs, and on no others."""
    return {node for node, _ in devices} == processes.keys()


def attached(at_s: float, key: str, devices: Devices, processes: Mapping[str, Process]) -> Iterator[Event]:
    """Yield that the process of each node is the worker of the first rank there: an agent finds all that descend from it."""
    first = {node: rank for rank, (node, _) in reversed(list(enumerate(devices)))}
    for node, process in processes.items():
        if node in first:
            yield WorkerAttached(at_s, key, first[node], process)


def attempt_end(at_s: float, trial: TrialRecord, reason: EndReason = EndReason.PAUSED) -> Iterator[Event]:
    """Yield the end of the attempt of a trial that loses its GPUs, unless it has ended."""
    assert trial.attempt, "it has GPUs"
    if trial.attempt.ended_s is None:  # The trial's processes may have been missed before the engine said so.
        yield AttemptEnded(at_s, trial.key, trial.attempt.name, reason)
