"""A lower bound on the mean search time of searches that share GPUs and network, whatever either level decides.

The larger of two. First, no search ends before one trial has run through all of its rungs, at the size at which its iterations
are shortest with all else idle: on one node nothing is sent; beyond it, what a ring sends and receives passes a host's link.
Second, all GPUs together do at most their number of GPU-seconds a second: a machine of that speed that serves whoever has least
left first has the least mean of all schedules with releases [Schrage 1968, Operations Research 16], and each search brings the
GPU-seconds that its trials compute for, however they are placed. Batch sizes are those that are asked for. Where computing
differs from trial to trial, those that compute least are taken to be the ones that later rungs keep.
"""

from statistics import fmean

import numpy as np

from beamer.bounds.instance import Instance
from beamer.bounds.release import release_srpt
from beamer.engines.profiles import DataParallelProfile
from beamer.engines.simulated import SimulatedJob
from beamer.workloads.joint import JointScenario, SearchPlan


def search_bound_s(scenario: JointScenario) -> float:
    """Return seconds that the mean search time of a scenario is not below."""
    gpus = sum(node.gpus for node in scenario.nodes)
    on_one = max(node.gpus for node in scenario.nodes)
    rate_bps = max(link.rate_bps for link in scenario.fabric.links)
    alone = fmean(_alone_s(search, gpus, on_one, rate_bps) for search in scenario.searches)
    works = np.array([_gpu_seconds(search) / gpus for search in scenario.searches])
    arrivals = np.array([search.arrival_s for search in scenario.searches])
    together = Instance(np.ones(len(works)), works[:, None], np.zeros(len(works)), arrivals)
    return max(alone, release_srpt(together) / len(works))


def _profile(job: SimulatedJob) -> DataParallelProfile:
    assert isinstance(job.profile, DataParallelProfile), "as scenarios for both levels make them"
    return job.profile


def _alone_s(search: SearchPlan, gpus: int, on_one: int, rate_bps: float) -> float:
    """Return what a search's shortest trial takes through all rungs at the size at which its iterations are shortest."""
    job = min(search.trials.values(), key=lambda each: _profile(each).compute_s)
    profile = _profile(job)
    traffic = job.request.traffic
    shortest_s = float("inf")
    for size in range(job.request.least, min(job.request.most, gpus) + 1):
        compute_s = profile.compute_s / size + profile.fixed_s
        is_sent = size > on_one and traffic.collective == "ring"
        sent_s = 16 * (traffic.sync_bytes or 0) * (size - 1) / size / rate_bps if is_sent else 0.0
        shortest_s = min(shortest_s, max(compute_s, (1 - traffic.overlap) * compute_s + sent_s))
    return job.start_s + search.rungs[-1].step * shortest_s


def _gpu_seconds(search: SearchPlan) -> float:
    """Return the GPU-seconds that the trials of a search compute for at least."""
    per_step = sorted(_profile(job).compute_s + job.request.least * _profile(job).fixed_s for job in search.trials.values())
    gpu_s, before = 0.0, 0
    for rung in search.rungs:
        gpu_s += (rung.step - before) * sum(per_step[: rung.trials])
        before = rung.step
    return gpu_s
