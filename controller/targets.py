"""The plan and the observed connections as switch rules and agents' assignments.

Pure: equal inputs give equal targets, and equal targets need no message.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from beamer.network.connection import Connection, FourTuple
from beamer.network.fabric import Fabric
from beamer.network.plan import Plan
from beamer.network.protocol import Assignment, LocalWorker, Port
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


def targets(
    fabric: Fabric,
    ports: Mapping[str, tuple[Port, ...]],
    running: Iterable[TrialRecord],
    connections: Mapping[str, Iterable[Connection]],
    plan: Plan,
    sender_bps: SenderRates = no_rates,
) -> Targets:
    """Return what `plan` means for the trials that run.

    ports: what `agent_ports` returned. connections: by the agent that sees them, sorted. sender_bps: what each host sends at
    for a trial that has the fabric to itself.
    """
    treated = [trial for trial in running if trial.key in plan.jobs]
    planned = {trial.key: trial.attempt for trial in treated if trial.attempt is not None}
    # Traffic that stays on one host, or leaves the fabric, has no class: it does not cross the fabric.
    hosts = {host.ip for host in fabric.hosts}
    crossing = {
        agent: [c for c in seen if c.job in planned and c.local_ip != c.remote_ip and {c.local_ip, c.remote_ip} <= hosts]
        for agent, seen in connections.items()
    }
    caps = {
        trial.key: sender_caps(plan.jobs[trial.key].cap_bps, sender_bps, trial) for trial in running if trial.key in planned
    }
    return Targets(_rules(fabric, planned, crossing, plan, caps), _assignments(fabric, ports, planned, crossing, plan, caps))


def sender_caps(cap_bps: int | None, sender_bps: SenderRates, trial: TrialRecord) -> dict[str, int]:
    """Return what each host may send for a trial whose busiest sender is capped, bit/s; nothing where none is."""
    if cap_bps is None:
        return {}
    alone = sender_bps(trial)
    busiest = max(alone.values(), default=0.0)
    return {host: max(1, round(cap_bps * bps / busiest)) for host, bps in alone.items()}


def _rules(
    fabric: Fabric,
    planned: Mapping[str, AttemptRecord],
    crossing: Mapping[str, Iterable[Connection]],
    plan: Plan,
    caps: Mapping[str, Mapping[str, int]],
) -> tuple[JobRules, ...]:
    found: dict[str, set[FourTuple]] = {}
    for connection in chain.from_iterable(crossing.values()):
        found.setdefault(connection.job, set()).update((connection.sent, connection.received))
    return tuple(
        JobRules(
            key,
            attempt.seq,
            fabric.plane_of(attempt.seq),
            plan.jobs[key].klass,
            frozenset(found[key]),
            {host: cap_bps for host, cap_bps in caps[key].items() if fabric.host[host].agent is None},
        )
        for key, attempt in planned.items()
        if key in found
    )


def _assignments(
    fabric: Fabric,
    ports: Mapping[str, tuple[Port, ...]],
    planned: Mapping[str, AttemptRecord],
    crossing: Mapping[str, Iterable[Connection]],
    plan: Plan,
    caps: Mapping[str, Mapping[str, int]],
) -> dict[str, Assignment]:
    workers: dict[str, list[LocalWorker]] = {name: [] for name in ports}
    for key, attempt in planned.items():
        for worker in attempt.workers:
            agent = fabric.host[worker.host].agent
            if agent is not None and worker.rank in attempt.processes:
                workers[agent].append(
                    LocalWorker(
                        job=key,
                        rank=worker.rank,
                        process=attempt.processes[worker.rank],
                        klass=plan.jobs[key].klass,
                        cap_bps=caps[key].get(worker.host),
                    )
                )
    addresses = tuple(host.ip for host in fabric.hosts)
    return {
        name: Assignment(
            generation=0,
            queues=plan.queues,
            ports=owned,
            workers=tuple(workers[name]),
            addresses=addresses,
            connections=tuple(crossing.get(name, ())),
        )
        for name, owned in ports.items()
    }
