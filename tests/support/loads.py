"""Jobs on numbered links without a fabric, for tests of the fluid network and its kernels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.fluid.flows import Block
from beamer.network.fluid.network import FluidNetwork
from beamer.network.kernels import fluid as kernels
from beamer.network.kernels.state import World
from beamer.network.snapshot import CoflowColumns, JobColumns, RunningStudy, Snapshot
from tests.support.reference.demand import FlowDemand
from tests.support.reference.network import Flow


@dataclass(frozen=True)
class SyntheticJob:
    """A job: the flows of each of its phases, its iterations, and its computing in each."""

    phases: tuple[tuple[Flow, ...], ...]
    iterations: int = 1
    compute_s: float = 0.0
    overlap: float = 0.0

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The flows of all phases."""
        return tuple(flow for phase in self.phases for flow in phase)


Paths = dict[tuple[tuple[int, float], ...], int]
"""Numbers of paths that are known, which all blocks of a network have in common."""


def block(loads: Sequence[SyntheticJob], known: Paths | None = None) -> Block:
    """Return jobs as the network takes them; new paths are entered into `known`."""
    flows = [flow for load in loads for flow in load.flows]
    hops = [(i, link, use) for i, flow in enumerate(flows) for link, use in flow.usage.items()]
    paths = {} if known is None else known
    owner = np.repeat(np.arange(len(loads)), [len(load.flows) for load in loads]).astype(np.int64) if loads else _ints([])
    pairs = [_links(load) for load in loads]
    load_first = _first(len(links) for links in pairs)
    return Block(
        hop_first=_first(len(flow.usage) for flow in flows),
        hop_link=_ints(link for _, link, _ in hops),
        hop_use=_floats(use for _, _, use in hops),
        path=_ints(paths.setdefault(tuple(flow.usage.items()), len(paths)) for flow in flows),
        size=_floats(flow.size_bits for flow in flows),
        flow_job=owner,
        phase_first=_first(len(phase) for load in loads for phase in load.phases),
        job_phase=_first(len(load.phases) for load in loads),
        iterations=_ints(load.iterations for load in loads),
        compute=_floats(load.compute_s for load in loads),
        overlap=_floats(load.overlap for load in loads),
        load_first=load_first,
        hop_load=_ints(load_first[owner[i]] + pairs[owner[i]].index(link) for i, link, _ in hops),
    )


def snapshot(loads: Sequence[SyntheticJob], capacity: Sequence[float]) -> Snapshot:
    """Return the jobs, named `0`, `1`, ..., as a policy sees them before they start, each a study of its own."""
    keys = tuple(str(i) for i in range(len(loads)))
    links = [_links(load) for load in loads]
    seconds = [
        [sum(flow.size_bits * flow.usage.get(link, 0.0) for flow in load.flows) / capacity[link] for link in of]
        for load, of in zip(loads, links, strict=True)
    ]
    gamma = _floats(max(of, default=0.0) for of in seconds)
    compute, overlap = _floats(load.compute_s for load in loads), _floats(load.overlap for load in loads)
    longest = _floats(max((flow.size_bits for flow in load.flows), default=0.0) for load in loads)
    jobs = JobColumns(
        key=keys,
        stage=np.arange(len(loads)),
        study=np.arange(len(loads)),
        started_s=np.zeros(len(loads)),
        compute_s=compute,
        overlap=overlap,
        iteration_s=np.maximum(compute, (1 - overlap) * compute + gamma),
        size_bits=_floats(sum(flow.size_bits for flow in load.flows) for load in loads),
        longest_bits=longest,
        senders=_ints(len(load.flows) for load in loads),
        receivers=_ints(len(load.flows) for load in loads),
        sender_bps=np.divide(longest, gamma, out=np.zeros(len(loads)), where=gamma > 0),
        first=_first(len(of) for of in links),
        link=_ints(link for of in links for link in of),
        seconds=_floats(s for of in seconds for s in of),
    )
    return Snapshot(
        capacity_bps=np.array(capacity, np.float64),
        studies=tuple(RunningStudy(key, 1.0) for key in keys),
        stages=keys,
        stage_weight=np.ones(len(keys)),
        since_s=np.zeros(len(keys)),
        jobs=jobs,
        remaining=_ints(load.iterations for load in loads),
        klass=np.full(len(loads), -1),
        coflows=CoflowColumns.to_come(jobs),
    )


def advance(network: FluidNetwork, until_s: float) -> None:
    """Run to `until_s` whatever happens, so that rates are those of then."""
    while network.run(until_s, by_coflow=False):
        pass


def world(network: FluidNetwork) -> World:
    """Return the state that a network's kernels work on."""
    return network._world


def next_s(network: FluidNetwork) -> float:
    """Return when the next flow or computing ends, infinite if none does."""
    return max(network.next_s(), network.now_s)


def active(network: FluidNetwork) -> Ints:
    """Return the numbers of the flows that move now."""
    return np.flatnonzero(world(network).flows["active"])


def demands(network: FluidNetwork, positions: Sequence[int], group: Sequence[int]) -> list[FlowDemand]:
    """Return the demands of the moving flows, job after job as in `positions`, with `group` by position as their class.

    Flows come as `active` has them within each job; `FlowDemand.coflow` is the job.
    """
    w = world(network)
    demanded: list[FlowDemand] = []
    for job, klass in zip(positions, group, strict=True):
        for f in active(network).tolist():
            if w.motion["job"][f] == job:
                hops = w.hops[w.flows["hop_first"][f] : w.flows["hop_end"][f]]
                usage = dict(zip(hops["link"].tolist(), hops["use"].tolist(), strict=True))
                demanded.append(FlowDemand(usage, klass, job, kernels.left(w, f)))
    return demanded


def rates(network: FluidNetwork, positions: Sequence[int]) -> Floats:
    """Return the rates of the moving flows, in the order of `demands`."""
    moving = active(network)
    owner = world(network).motion["job"][moving]
    in_order = [f for job in positions for f in moving[owner == job].tolist()]
    of: Floats = network.rates()[in_order]
    return of


def used(demanded: Sequence[FlowDemand], given: Sequence[float], links: int) -> list[float]:
    """Return what flows with rates `given` take of each link, bit/s."""
    total = [0.0] * links
    for demand, rate in zip(demanded, given, strict=True):
        for link, use in demand.usage.items():
            total[link] += use * rate
    return total


def _links(load: SyntheticJob) -> list[int]:
    return sorted({link for flow in load.flows for link in flow.usage})


def _first(widths: Iterable[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(_ints(widths)))).astype(np.int64)


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), np.float64)
