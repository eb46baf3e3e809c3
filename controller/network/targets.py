"""The plan and the observed connections as switch rules and agents' assignments.

Equal inputs give equal targets, and equal targets need no message.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.connection import Connection
from beamer.network.fabric import Fabric
from beamer.network.observed_connections import ObservedConnections
from beamer.network.plan import Plan
from beamer.network.protocol import Assignment, LocalWorker, Port
from beamer.studies.model import Process
from beamer.studies.records import AttemptRecord, TrialRecord
from beamer.units import segment
from controller.event_loop.time_slices import CHEAP, Work, batched
from controller.openflow.rules import JobRules

SenderRates = Callable[[TrialRecord], Mapping[str, float]]
"""(trial) -> bit/s by host, as `NetworkLedger.sender_bps`."""


@dataclass(frozen=True)
class Targets:
    """Everything to install.

    rules: per job that has a class and connections, in order of the attempts' start. assignments: by agent, of generation 0.
    """

    rules: tuple[JobRules, ...]
    assignments: Mapping[str, Assignment]

    def renewed_from(self, before: "Targets") -> list[str]:
        """Return the agents whose assignment differs."""
        return [agent for agent, content in self.assignments.items() if content != before.assignments[agent]]


def agent_ports(fabric: Fabric) -> dict[str, tuple[Port, ...]]:
    """Return by agent the interfaces whose queues it owns: hosts classify by mark, switches by DSCP."""
    _, frame = segment(fabric.mtu)
    ports: dict[str, list[Port]] = {name: [] for name in fabric.agents}
    for link in fabric.links:
        at_host = link.src in fabric.host
        owner = fabric.host[link.src].agent if at_host else fabric.switch[link.src].agent
        if owner is not None:
            classify: Literal["mark", "dscp"] = "mark" if at_host else "dscp"
            port = Port(interface=link.interface, rate_bps=link.rate_bps, classify=classify, frame_bytes=frame)
            ports[owner].append(port)
    return {name: tuple(owned) for name, owned in ports.items()}


class TargetBuilder:
    """Says what plans mean on a fabric: a pure function, but that what it says of a job or an agent again is not made anew."""

    def __init__(self, fabric: Fabric, codepoints: Codepoints = LOCAL) -> None:
        self.ports = agent_ports(fabric)
        self._codepoints = codepoints
        self._fabric = fabric
        further = chain.from_iterable(host.addresses for host in fabric.hosts)
        self._addresses = (*(host.ip for host in fabric.hosts), *further)
        self._own_addresses: dict[str, tuple[tuple[str, ...], ...]] = {}
        for host in fabric.hosts:
            if host.addresses and host.agent is not None:
                known = self._own_addresses.get(host.agent, ())
                self._own_addresses[host.agent] = (*known, host.every_address)
        self._jobs: dict[str, _JobTargets] = {}
        # The jobs that concern each agent, by key.
        self._of_agent: dict[str, dict[str, _JobTargets]] = {name: {} for name in self.ports}
        self._queues: int | None = None
        self._targets = Targets((), {})

    def build(
        self, running: Sequence[TrialRecord], seen: ObservedConnections, plan: Plan, sender_bps: SenderRates
    ) -> Work[Targets]:
        """Return what `plan` means for the trials that run; to be done to its end, one after the other.

        seen: their connections. sender_bps: what each host sends at for a trial that has the fabric to itself. What changes
        meanwhile is taken in or not: it calls for targets anew.
        """
        before, jobs = self._jobs, dict[str, _JobTargets]()
        for trials in batched(running, CHEAP):
            made = 0
            for trial in trials:
                planned, attempt = plan.jobs.get(trial.key), trial.attempt
                if planned is None or attempt is None:
                    continue
                basis = _Basis(
                    attempt,
                    planned.klass,
                    sender_caps(planned.cap_bps, sender_bps, trial),
                    attempt.processes,
                    seen.of_job(trial.key),
                )
                known = before.get(trial.key)
                if known is None or known.basis != basis:
                    known = self._targets_of(trial.key, basis.copied())
                    made += known.size
                jobs[trial.key] = known
            yield 1 + made
        touched = self._take(jobs)
        yield 1 + len(jobs) // CHEAP
        if plan.queues != self._queues:
            touched, self._queues = dict.fromkeys(self.ports), plan.queues
        assignments = dict(self._targets.assignments)
        for agent in touched:
            assignments[agent] = made_for = self._assignment(agent, plan.queues)
            yield 1 + (len(made_for.workers) + len(made_for.connections)) // CHEAP
        self._targets = Targets(tuple(job.rules for job in jobs.values() if job.rules is not None), assignments)
        return self._targets

    def _take(self, jobs: dict[str, "_JobTargets"]) -> dict[str, None]:
        """Take in the targets of all jobs, and return the agents that others concern than before."""
        touched: dict[str, None] = {}
        for key, known in self._jobs.items():
            if jobs.get(key) is not known:
                for agent in known.agents & self.ports.keys():
                    touched[agent] = None
                    del self._of_agent[agent][key]
        for key, job in jobs.items():
            if self._jobs.get(key) is not job:
                for agent in job.agents & self.ports.keys():  # Another fabric may have had other agents.
                    touched[agent] = None
                    self._of_agent[agent][key] = job
        self._jobs = jobs
        return touched

    def _targets_of(self, key: str, basis: "_Basis") -> "_JobTargets":
        attempt, fabric = basis.attempt, self._fabric
        # Traffic that stays on one host, or leaves the fabric, has no class: it does not cross the fabric.
        crossing = {agent: tuple(filter(self._crosses, seen)) for agent, seen in basis.seen.items()}
        connections = {agent: found for agent, found in crossing.items() if found}
        both_ways = chain.from_iterable((c.sent, c.received) for c in chain.from_iterable(connections.values()))
        caps = {name: cap_bps for name, cap_bps in basis.cap_bps.items() if fabric.host[name].agent is None}
        plane = fabric.plane_of(attempt.seq)
        rules = JobRules(key, attempt.seq, plane, basis.klass, frozenset(both_ways), caps) if connections else None
        workers: dict[str, list[LocalWorker]] = {}
        for worker in attempt.workers:
            agent, process = fabric.host[worker.host].agent, basis.processes.get(worker.rank)
            if agent is not None and process is not None:
                # The values are checked already, and ten thousand classes may change at once.
                local = LocalWorker.model_construct(
                    job=key, rank=worker.rank, process=process, klass=basis.klass, cap_bps=basis.cap_bps.get(worker.host)
                )
                workers.setdefault(agent, []).append(local)
        return _JobTargets(basis, rules, workers, connections)

    def _crosses(self, connection: Connection) -> bool:
        """Say whether a connection's ends are two hosts: one may have several addresses."""
        position_at = self._fabric.position_at
        local, remote = position_at.get(connection.local_ip), position_at.get(connection.remote_ip)
        return local is not None and remote is not None and local != remote

    def _assignment(self, agent: str, queues: int) -> Assignment:
        jobs = self._of_agent[agent]
        in_order = sorted(jobs.values(), key=lambda job: job.basis.attempt.seq)
        return Assignment.model_construct(
            generation=0,
            queues=queues,
            ports=self.ports[agent],
            workers=tuple(chain.from_iterable(job.workers.get(agent, ()) for job in in_order)),
            addresses=self._addresses,
            connections=tuple(chain.from_iterable(jobs[key].connections.get(agent, ()) for key in sorted(jobs))),
            codepoints=self._codepoints,
            own_addresses=self._own_addresses.get(agent, ()),
        )


@dataclass(frozen=True)
class _Basis:
    """What the targets of a job follow from. cap_bps: by host. seen: its connections by agent."""

    attempt: AttemptRecord
    klass: int
    cap_bps: Mapping[str, int]
    processes: Mapping[int, Process]
    seen: Mapping[str, tuple[Connection, ...]]

    def copied(self) -> "_Basis":
        """Return the same apart from records that change."""
        return replace(self, processes=dict(self.processes), seen=dict(self.seen))

    def __eq__(self, other: object) -> bool:
        """Compare attempts by identity: a record equals another one only where all that it holds does."""
        return (
            isinstance(other, _Basis)
            and self.attempt is other.attempt
            and self.klass == other.klass
            and self.processes == other.processes
            and self.seen == other.seen
            and self.cap_bps == other.cap_bps
        )


@dataclass(frozen=True, eq=False)
class _JobTargets:
    """What a job asks of switches and of agents, by agent."""

    basis: _Basis
    rules: JobRules | None
    workers: Mapping[str, Sequence[LocalWorker]]
    connections: Mapping[str, tuple[Connection, ...]]

    @property
    def agents(self) -> AbstractSet[str]:
        """The agents that it concerns."""
        return self.workers.keys() | self.connections.keys()

    @property
    def size(self) -> int:
        """How many things it consists of."""
        return sum(map(len, self.workers.values())) + sum(map(len, self.connections.values()))


def sender_caps(cap_bps: int | None, sender_bps: SenderRates, trial: TrialRecord) -> dict[str, int]:
    """Return what each host may send for a trial whose busiest sender is capped, bit/s; nothing where none is."""
    if cap_bps is None:
        return {}
    alone = sender_bps(trial)
    busiest = max(alone.values(), default=0.0)
    return {host: max(1, round(cap_bps * bps / busiest)) for host, bps in alone.items()}
