"""What the jobs of an engine have to know of each other: whose GPU memory is where, and what moving it has taken."""

from collections.abc import Mapping

from beamer.engines.local.job import LocalJob
from beamer.engines.local.move_times import MoveTimes
from beamer.engines.local.spec import LocalCluster
from beamer.engines.local.states import MemoryPlace, Phase
from beamer.gpu.engine import Placement


class Others:
    """What jobs have to know of each other. jobs: by key, those of an engine."""

    def __init__(self, jobs: Mapping[str, LocalJob], cluster: LocalCluster) -> None:
        self.offloads = MoveTimes()
        self.restores = MoveTimes()
        self._jobs = jobs
        self._cluster = cluster

    def have_memory_beside(self, job: LocalJob) -> bool:
        """Look for it."""
        return bool(self.beside(job, job.record.placement))

    def are_on_host(self) -> bool:
        """Look for one."""
        return any(MemoryPlace.HOST in one.places for one in self._suspended)

    def beside(self, job: LocalJob, placement: Placement) -> list[LocalJob]:
        """Return the suspended jobs with memory on GPUs of a placement, also those whose memory is about to leave them."""
        devices = self._devices(placement)
        there = [one for one in self._suspended if one is not job and one.places != {MemoryPlace.HOST}]
        return [one for one in there if devices & self._devices(one.record.placement)]

    @property
    def _suspended(self) -> list[LocalJob]:
        jobs = list(self._jobs.values())
        return [one for one in jobs if one.record.phase is Phase.LAUNCHED and one.suspended and not one.is_ahead]

    def _devices(self, placement: Placement) -> set[tuple[str, str]]:
        """Return what CUDA_VISIBLE_DEVICES calls GPUs, by node: several may be one."""
        there = self._cluster.node
        return {(node, there[node].device(index)) for node, index in placement.devices if node in there}
