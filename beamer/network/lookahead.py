"""Evaluate an order by simulation: the running jobs to their end, each coflow as one flow."""

import numpy as np

from beamer.network.allocation.base import Arrangement
from beamer.network.allocation.greedy import Greedy
from beamer.network.arrays import Ints
from beamer.network.fluid.flows import Block
from beamer.network.fluid.network import FluidNetwork
from beamer.network.snapshot import Snapshot
from beamer.network.work import RemainingWork


class Lookahead:
    """Simulate the remaining iterations of a snapshot's jobs under orders of the work items; a coflow in flight starts anew.

    A coflow moves as one flow, at the rate that its bottleneck allows; declared rungs count by their critical path alone.
    """

    def __init__(self, snapshot: Snapshot, work: RemainingWork) -> None:
        jobs = snapshot.jobs
        count = len(jobs.key)
        widths = np.diff(jobs.first)
        sync_s = np.maximum(jobs.iteration_s - (1 - jobs.overlap) * jobs.compute_s, 0.0)
        self._work = work
        self._block = Block(
            hop_first=jobs.first,
            hop_link=jobs.link,
            hop_use=jobs.seconds / np.repeat(np.maximum(sync_s, 1e-300), widths),
            path=np.arange(count),
            size=sync_s,
            flow_job=np.arange(count),
            phase_first=np.arange(count + 1),
            job_phase=np.arange(count + 1),
            iterations=np.maximum(snapshot.remaining, 1),
            compute=jobs.compute_s,
            overlap=jobs.overlap,
            load_first=np.zeros(count + 1, np.int64),
            hop_load=np.full(len(jobs.link), -1),
        )
        self._links = len(snapshot.capacity_bps)
        ends = np.zeros(len(work.name))
        np.maximum.at(ends, work.item_of_job, work.critical_s)
        self._later_s = np.maximum(work.items.critical_s - ends, 0.0)

    def objective_s(self, urgent_first: Ints) -> float:
        """Return the sum of weight x completion time of the work items in this order, seconds from now."""
        rank = np.empty(len(urgent_first), np.int64)
        rank[urgent_first] = np.arange(len(urgent_first))
        order = np.lexsort((-self._work.critical_s, rank[self._work.item_of_job]))
        network = FluidNetwork(np.ones(self._links), Greedy())
        network.add(self._block)
        running = order.tolist()
        network.start(running)
        end_s = np.zeros(len(self._later_s))
        while running:
            now_served = np.array(running, np.int64)
            network.arrange(Arrangement(now_served, np.arange(len(running))))
            for _, job in network.run(np.inf, by_coflow=False):
                running.remove(job)
                end_s[self._work.item_of_job[job]] = network.now_s
        return float(self._work.items.weight @ (end_s + self._later_s))
