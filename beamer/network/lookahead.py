"""What an order would come to: the running jobs simulated to their end, each coflow as one flow."""

import numpy as np

from beamer.network.allocation.base import Arrangement
from beamer.network.allocation.greedy import Greedy
from beamer.network.arrays import Ints
from beamer.network.fluid.flows import Block
from beamer.network.fluid.network import FluidNetwork
from beamer.network.snapshot import Snapshot
from beamer.network.work import RemainingWork


class Lookahead:
    """Simulates the remaining iterations of a snapshot's jobs under orders of their units; a coflow in flight starts anew.

    A coflow moves as one, at the rate that its scarcest link allows; stages to come count by their critical path.
    """

    def __init__(self, snapshot: Snapshot, units: RemainingWork) -> None:
        jobs = snapshot.jobs
        many = len(jobs.key)
        widths = np.diff(jobs.first)
        sync_s = np.maximum(jobs.iteration_s - (1 - jobs.overlap) * jobs.compute_s, 0.0)
        self._units = units
        self._block = Block(
            hop_first=jobs.first,
            hop_link=jobs.link,
            hop_use=jobs.seconds / np.repeat(np.maximum(sync_s, 1e-300), widths),
            path=np.arange(many),
            size=sync_s,
            flow_job=np.arange(many),
            phase_first=np.arange(many + 1),
            job_phase=np.arange(many + 1),
            iterations=np.maximum(snapshot.remaining, 1),
            compute=jobs.compute_s,
            overlap=jobs.overlap,
            load_first=np.zeros(many + 1, np.int64),
            hop_load=np.full(len(jobs.link), -1),
        )
        self._links = len(snapshot.capacity_bps)
        ends = np.zeros(len(units.name))
        np.maximum.at(ends, units.of_job, units.critical_s)
        self._later_s = np.maximum(units.items.critical_s - ends, 0.0)

    def objective_s(self, urgent_first: Ints) -> float:
        """Return the sum of weight x completion time of the units in this order, seconds from now."""
        place = np.empty(len(urgent_first), np.int64)
        place[urgent_first] = np.arange(len(urgent_first))
        order = np.lexsort((-self._units.critical_s, place[self._units.of_job]))
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
                end_s[self._units.of_job[job]] = network.now_s
        return float(self._units.items.weight @ (end_s + self._later_s))
