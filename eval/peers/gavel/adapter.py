"""A policy of ours in the place of the simulator's choice of jobs, once a round.

Its jobs run on the GPUs that their users asked for, at a known number of steps, and report no losses. Changing a job's GPUs
takes no time in this simulator, and all GPUs of a kind are alike wherever they lie.
"""

from collections.abc import Mapping, Sequence
from math import nan
from random import Random
from typing import Any

from beamer.gpu.model import Cluster, Costs, Job, Node, Report, Request, Speed, check_allocation
from beamer.gpu.policies import GpuPolicy, gpu_policy
from eval.peers.contender import UNKNOWN_END, PeerContender
from eval.peers.job_record import JobRecord


class EqualShares:
    """What the simulator asks for shares of time: all the same, as `PolicyInRounds` chooses the jobs of every round."""

    name = "Beamer"

    def get_allocation(
        self, throughputs: Mapping[Any, Any], scale_factors: Mapping[Any, int], cluster_spec: Mapping[str, int]
    ) -> dict[Any, dict[str, float]]:
        """Return all of the time for every job."""
        return {job: dict.fromkeys(cluster_spec, 1.0) for job in throughputs}


class PolicyInRounds:
    """Chooses the jobs of a round by a policy of ours.

    scheduler: the simulator. kind: of all its GPUs, as our policies know of one. A job is offered to the policy when the
    simulator's own policies would learn of it.
    """

    def __init__(self, contender: PeerContender, scheduler: Any, kind: str, nodes: int, gpus: int, rng: Random) -> None:
        self.policy: GpuPolicy[Any] = gpu_policy(contender.policy, **contender.parameters)
        self._known_end = contender.knows != "nothing"
        self._scheduler = scheduler
        self._kind = kind
        self._cluster = Cluster(tuple(Node(f"{number:04}", gpus) for number in range(nodes)))
        self._rng = rng
        self._state = self.policy.initial()
        self._records: dict[str, JobRecord] = {}

    def choose(self, kinds: Sequence[str]) -> dict[str, list[tuple[Any, int]]]:
        """Return the jobs of the next round with their numbers of GPUs, by kind of GPU."""
        now = float(self._scheduler.get_current_timestamp())
        jobs = {str(job): job for job in self._scheduler._jobs if job in self._scheduler._allocation}
        views = [self._look(key, job, now) for key, job in jobs.items()]
        self._state, grants, _ = self.policy.allocate(self._state, self._cluster, views, now, self._rng)
        check_allocation(self._cluster, views, grants)
        for key in jobs:
            self._records[key].give(grants.get(key), now)
        return {self._kind: [(jobs[key], grant.size) for key, grant in grants.items()]}

    def _look(self, key: str, job: Any, now: float) -> Job:
        scheduler = self._scheduler
        if key not in self._records:
            submitted_s = float(scheduler._per_job_start_timestamps[job])
            self._records[key] = JobRecord.seen_first(key, submitted_s, Costs(), now)
        record, gpus = self._records[key], int(scheduler._jobs[job].scale_factor)
        record.advance(now)
        speeds: tuple[Speed, ...] = ()
        if record.grant:
            if not record.reports:
                record.report(Report(record.since_s, 0.0, nan, 0.0))
            record.report(Report(now, float(scheduler._total_steps_run[job]), nan, record.computed_s))
        if record.reports:
            nodes = -(-gpus // self._cluster.nodes[0].gpus)
            speeds = (Speed(gpus, nodes, 0, gpus, 1.0 / float(scheduler._throughputs[job][self._kind])),)
        # the batch size is fixed, so that one sample per GPU stands for it
        iterations = max(int(scheduler._jobs[job].total_steps), 1) if self._known_end else UNKNOWN_END
        return record.view(Request(iterations, gpus, batch_size=gpus, known_end=self._known_end), speeds)
