"""The plan and the observed connections as switch rules and agents' assignments.

Equal inputs give equal targets, and equal targets need no message.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from beamer.network.connection import Connection, FourTuple
from beamer.network.fabric import Fabric
from beamer.network.plan import Plan
from beamer.network.protocol import Assignment, LocalWorker, Port
from beamer.studies.model import Process
from beamer.studies.records import AttemptRecord, TrialRecord
from beamer.units import segment
from controller.openflow.rules import JobRules

SenderRates = Callable[[TrialRecord], Mapping[str, float]]
"""(trial) -> bit/s by host, as `NetworkLedger.sender_bps`."""


def no_rates(trial: TrialRecord) -> Mapping[str, float]:
    """Return no sender: where no plan has caps."""
    return {}


@dataclass(frozen=True)
class Targets:
    """Everything to install.

    rules: per job that has a class and connections, in order of the attempts' start. assignments: by agent, of generation 0.
    """

    rules: tuple[JobRules, ...]
    assignments: Mapping[str, Assignment]


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
    """Says what plans mean on a fabric: a pure function, but that what it says of a job again is not made anew."""

    def __init__(self, fabric: Fabric) -> None:
        self.ports = agent_ports(fabric)
        self._fabric = fabric
        self._hosts = frozenset(host.ip for host in fabric.hosts)
        self._addresses = tuple(host.ip for host in fabric.hosts)
        self._workers: dict[str, _LocalWorkers] = {}

    def build(
        self,
        running: Iterable[TrialRecord],
        connections: Mapping[str, Iterable[Connection]],
        plan: Plan,
        sender_bps: SenderRates = no_rates,
    ) -> Targets:
        """Return what `plan` means for the trials that run.

        connections: by the agent that sees them, sorted. sender_bps: what each host sends at for a trial that has the fabric to
        itself.
        """
        planned: dict[str, _PlannedJob] = {}
        for trial in running:
            job, attempt = plan.jobs.get(trial.key), trial.attempt
            if job is not None and attempt is not None:
                planned[trial.key] = _PlannedJob(attempt, job.klass, sender_caps(job.cap_bps, sender_bps, trial))
        # Traffic that stays on one host, or leaves the fabric, has no class: it does not cross the fabric.
        crossing = {
            agent: tuple(
                c for c in seen if c.job in planned and c.local_ip != c.remote_ip and {c.local_ip, c.remote_ip} <= self._hosts
            )
            for agent, seen in connections.items()
        }
        return Targets(self._rules(planned, crossing), self._assignments(planned, crossing, plan.queues))

    def _rules(
        self, planned: Mapping[str, "_PlannedJob"], crossing: Mapping[str, Iterable[Connection]]
    ) -> tuple[JobRules, ...]:
        found: dict[str, set[FourTuple]] = {}
        for connection in chain.from_iterable(crossing.values()):
            found.setdefault(connection.job, set()).update((connection.sent, connection.received))
        host = self._fabric.host
        return tuple(
            JobRules(
                key,
                job.attempt.seq,
                self._fabric.plane_of(job.attempt.seq),
                job.klass,
                frozenset(found[key]),
                {name: cap_bps for name, cap_bps in job.cap_bps.items() if host[name].agent is None},
            )
            for key, job in planned.items()
            if key in found
        )

    def _assignments(
        self, planned: Mapping[str, "_PlannedJob"], crossing: Mapping[str, tuple[Connection, ...]], queues: int
    ) -> dict[str, Assignment]:
        workers: dict[str, list[LocalWorker]] = {name: [] for name in self.ports}
        before, self._workers = self._workers, {}
        for key, job in planned.items():
            known = before.get(key)
            if known is None or not known.are_of(job):
                known = _LocalWorkers.of(key, job, self._fabric)
            self._workers[key] = known
            for agent, worker in known.workers:
                workers[agent].append(worker)
        return {
            name: Assignment(
                generation=0,
                queues=queues,
                ports=owned,
                workers=tuple(workers[name]),
                addresses=self._addresses,
                connections=crossing.get(name, ()),
            )
            for name, owned in self.ports.items()
        }


@dataclass(frozen=True)
class _PlannedJob:
    """What a plan says of a trial that runs. cap_bps: by host."""

    attempt: AttemptRecord
    klass: int
    cap_bps: Mapping[str, int]


@dataclass(frozen=True)
class _LocalWorkers:
    """The workers of a job with their hosts' agents, and what they follow from."""

    job: _PlannedJob
    processes: Mapping[int, Process]
    workers: tuple[tuple[str, LocalWorker], ...]

    @classmethod
    def of(cls, key: str, job: _PlannedJob, fabric: Fabric) -> "_LocalWorkers":
        """Return those that have attached, of hosts with an agent."""
        processes = dict(job.attempt.processes)
        attached = ((w, fabric.host[w.host].agent) for w in job.attempt.workers if w.rank in processes)
        workers = tuple(
            (
                agent,
                # Of values that are checked already: ten thousand classes may change at once.
                LocalWorker.model_construct(
                    job=key, rank=w.rank, process=processes[w.rank], klass=job.klass, cap_bps=job.cap_bps.get(w.host)
                ),
            )
            for w, agent in attached
            if agent is not None
        )
        return cls(job, processes, workers)

    def are_of(self, job: _PlannedJob) -> bool:
        """Return whether the same would follow from a job: its attempt's processes are a record that changes."""
        known = self.job
        same = known.attempt is job.attempt and known.klass == job.klass and known.cap_bps == job.cap_bps
        return same and self.processes == job.attempt.processes


def sender_caps(cap_bps: int | None, sender_bps: SenderRates, trial: TrialRecord) -> dict[str, int]:
    """Return what each host may send for a trial whose busiest sender is capped, bit/s; nothing where none is."""
    if cap_bps is None:
        return {}
    alone = sender_bps(trial)
    busiest = max(alone.values(), default=0.0)
    return {host: max(1, round(cap_bps * bps / busiest)) for host, bps in alone.items()}
