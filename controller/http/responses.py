"""The HTTP API's responses: the runtime's state as plain data; times are Unix seconds, their differences seconds.

What a study may have many of comes in iterators, worked out as the answer is sent: ten thousand trials take seconds.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from beamer.errors import NotFoundError
from beamer.measures import quantile
from beamer.network.explanation import explain
from beamer.studies.model import TrialStatus, split_key
from beamer.studies.records import AttemptRecord, StageRecord, StudyRecord, TrialRecord
from controller.http.paced_answers import Entries
from controller.http.runs import find_run
from controller.liveness.leases import Unattached
from controller.openflow.reports import PairCount
from controller.runtime import Runtime


class ListedTrials(StrEnum):
    """Which of its trials the answer about a study lists."""

    ALL = "all"
    RUNNING = "running"
    NONE = "none"


def studies_responses(runtime: Runtime, shown: Callable[[str], bool], listed: ListedTrials) -> Iterator[dict[str, Any]]:
    """Yield the present run of every study that is shown, by name, in order of registration, with its stages and trials."""
    found = _Found.of(runtime)
    for study in tuple(runtime.tracker.studies.values()):
        if shown(study.name):
            yield _study(runtime, study, found, listed)


def study_response(runtime: Runtime, study: str, run: str | None, listed: ListedTrials) -> dict[str, Any]:
    """Return a run of a study, present (None) or past. Raises `NotFoundError`."""
    return _study(runtime, find_run(runtime.tracker, study, run), _Found.of(runtime), listed)


def stage_response(runtime: Runtime, study: str, run: str | None, stage: str) -> dict[str, Any]:
    """Return a stage of a run of a study. Raises `NotFoundError`."""
    found = find_run(runtime.tracker, study, run)
    if stage not in found.stages:
        raise NotFoundError("stage", stage, f"a stage of run {found.run} of {study}")
    return _stage(found.stages[stage])


def trial_response(runtime: Runtime, study: str, run: str | None, trial: str) -> dict[str, Any]:
    """Return a trial of a run of a study, with what is learnt of it and why it has its class, which studies leave out.

    Raises `NotFoundError`.
    """
    found = find_run(runtime.tracker, study, run)
    if trial not in found.trials:
        raise NotFoundError("trial", trial, f"a trial of run {found.run} of {study}")
    record = found.trials[trial]
    return {
        **_trial(runtime, record, _Found.of(runtime)),
        "estimates": runtime.estimates.figures(record),
        "decision": _decision(runtime, record),
    }


def hosts_response(runtime: Runtime) -> dict[str, Any]:
    """Return the hosts that a study's trials may run on, each with the address of its data interface."""
    return {"hosts": {host.name: host.ip for host in runtime.fabric.hosts}}


def gpus_response(runtime: Runtime) -> dict[str, Any]:
    """Return the nodes that are up, who decides, the allocation in force, whose engines are connected, and what trials hold."""
    gpus, level = runtime.gpus, runtime.gpu
    return {
        "policy": level.policy if level else None,
        "engines": sorted(level.engines.connected) if level else [],
        "nodes": [{"name": node.name, "gpus": node.gpus, "cpus": node.cpus} for node in gpus.cluster.nodes],
        "generation": gpus.decision.generation if gpus.decision else 0,
        "trials": {key: [list(device) for device in gpus.devices[key]] for key in gpus.granted},
        "held_bytes": {key: held for key, held in sorted(level.engines.held_bytes.items()) if gpus.job(key)} if level else {},
    }


def plan_response(runtime: Runtime) -> dict[str, Any]:
    """Return the plan in force, what it leaves out and why, and which generation of it runs where (0: not known)."""
    installation, fabric = runtime.installation, runtime.fabric
    owned: dict[str, list[str]] = {name: [] for name in sorted(fabric.agents)}
    nodes = [(one.name, one.agent) for one in fabric.hosts] + [(one.name, one.agent) for one in fabric.switches]
    for node, agent in nodes:
        if agent is not None:
            owned[agent].append(node)
    return {
        "policy": runtime.policy,
        "generation": installation.generation,
        "queues": runtime.plan.queues,
        "jobs": Entries((key, {"class": job.klass, "cap_bps": job.cap_bps}) for key, job in runtime.plan.jobs.items()),
        "quarantined": dict(runtime.quarantine.reasons),
        "installed": {"switches": dict(installation.switches), "agents": dict(installation.agents)},
        "installed_everywhere": installation.everywhere and runtime.condition.fits,
        "connected": {"switches": installation.connected_switches, "agents": sorted(runtime.agents.connected)},
        "owned_by_agents": owned,
    }


def latencies_response(runtime: Runtime) -> dict[str, Any]:
    """Return milliseconds from each stage event that changed the network to the change being installed everywhere."""
    samples, phases = runtime.installation.plan_ms, runtime.installation.phases
    quantiles = {name: {"p50": quantile(ms, 0.5), "p99": quantile(ms, 0.99)} for name, ms in phases.samples().items()}
    return {
        "plan_ms": list(samples),
        "p50": quantile(samples, 0.5),
        "p99": quantile(samples, 0.99),
        "events": phases.events,
        "phases_ms": quantiles,
    }


def counters_response(runtime: Runtime, pairs: Iterable[PairCount]) -> dict[str, Any]:
    """Return the counts of edge switches by job, host pair and class, and the latest ones of agents' queues.

    uncounted: by edge switch that counts no host pairs, its hosts. Of those with an agent `agents` has the bytes that each
    worker and each class has sent; of the others nothing is known.
    """
    fabric = runtime.fabric
    uncounted = [name for name, form in runtime.switch_forms.items() if not form.counts]
    edges = {name: [host for host, edge in fabric.edge_of.items() if edge == name] for name in uncounted}
    trials = runtime.tracker.trials.items()
    key_of = {attempt.seq: key for key, trial in trials for attempt in trial.attempts.values()}
    return {
        "host_pairs": (
            {
                "switch": pair.switch,
                "job": key_of.get(pair.job_seq),
                "plane": runtime.fabric.plane_of(pair.job_seq),
                "src": pair.src,
                "dst": pair.dst,
                "class": pair.klass,
                "marked": pair.marked,
                "sent_bytes": pair.sent_bytes,
                "sent_packets": pair.sent_packets,
                "final": pair.final,
            }
            for pair in pairs
        ),
        "unmatched_bytes": runtime.unmatched.by_trial(),
        "uncounted": {name: hosts for name, hosts in edges.items() if hosts},
        "agents": {name: counters.model_dump(exclude={"kind"}) for name, counters in runtime.agents.counters.items()},
    }


def health_response(runtime: Runtime) -> dict[str, Any]:
    """Return whether the journal takes events, and whether everything that the fabric names is connected and up to date.

    network: in what it differs from its file, and remarks, which are no differences; unseen: switches that show no ports;
    unread_queues: those whose queues the controller makes, and has not read back, or of whose use nothing is known.
    not_applied: by agent, why what it is assigned is not as it should be there, of those that are connected.
    switch_forms: of those that are connected.
    """
    installation, journal = runtime.installation, runtime.batches
    return {
        "status": "ok" if journal.failure is None else "read-only",
        "journal": {
            "failure": None if journal.failure is None else str(journal.failure),
            "waiting": journal.waiting,
            "term": journal.term,
        },
        "installed_everywhere": installation.everywhere and runtime.condition.fits,
        "network": {
            "mismatches": [one.text for one in runtime.condition.seen.mismatches],
            "remarks": list(runtime.condition.seen.remarks),
            "dead_cables": [list(ends) for ends in sorted(runtime.condition.seen.dead)],
            "cut_off": list(runtime.condition.cut_off),
            "unseen": sorted(installation.switches.keys() - runtime.condition.seen.switches),
            "unread_queues": sorted(runtime.condition.seen.unread),
            "not_applied": dict(sorted(runtime.not_applied.items())),
        },
        "switch_forms": {
            name: {"form": one.form, "reason": one.reason, "limits": list(one.limits), "able": one.able}
            for name, one in runtime.switch_forms.items()
        },
        "switches": {"expected": len(installation.switches), "installed": sum(g > 0 for g in installation.switches.values())},
        "agents": {"expected": len(installation.agents), "connected": len(runtime.agents.connected)},
    }


@dataclass(frozen=True)
class _Found:
    """What is known of running trials beside their records, by trial.

    unattached: workers whose processes are not found. sent: the bytes that agents have counted, and when, on average.
    """

    unattached: Mapping[str, list[Unattached]]
    sent: Mapping[str, tuple[int, float]]

    @classmethod
    def of(cls, runtime: Runtime) -> "_Found":
        unattached: dict[str, list[Unattached]] = {}
        for one in runtime.watch.unattached():
            unattached.setdefault(one.trial, []).append(one)
        counted: dict[str, list[tuple[int, float]]] = {}
        for counters in runtime.agents.counters.values():
            for worker in counters.workers:
                counted.setdefault(worker.job, []).append((worker.sent_bytes, counters.at_s))
        sent = {key: (sum(n for n, _ in of), sum(at_s for _, at_s in of) / len(of)) for key, of in counted.items()}
        return cls(unattached, sent)


def _study(runtime: Runtime, study: StudyRecord, known: _Found, listed: ListedTrials) -> dict[str, Any]:
    trials = tuple(study.trials.values())
    shown = () if listed is ListedTrials.NONE else trials
    if listed is ListedTrials.RUNNING:
        shown = tuple(trial for trial in trials if trial.status is TrialStatus.RUNNING)
    return {
        "name": study.name,
        "run": study.run,
        "past_runs": [past.run for past in runtime.tracker.past_runs(study.name) if past is not study],
        "status": study.status,
        "weight": study.weight,
        "rungs": [dict(vars(rung)) for rung in study.rungs],
        "barriers": study.barriers,
        "registered_s": study.registered_s,
        "ended_s": study.ended_s,
        "makespan_s": study.makespan_s,
        "search_s": study.search_s,
        "members": [
            {
                "name": member.name,
                "host": member.host,
                "pid": member.pid,
                "joined_s": member.joined_s,
                "heard_s": runtime.watch.members.heard_s(study.name, member.name),
            }
            for member in study.members.values()
        ],
        "trial_counts": dict(Counter(trial.status for trial in trials)),
        "stages": (_stage(stage) for stage in tuple(study.stages.values())),
        "trials": (_trial(runtime, trial, known) for trial in shown),
    }


def _stage(stage: StageRecord) -> dict[str, Any]:
    return {
        "name": stage.name,
        "status": stage.status,
        "registered_s": stage.registered_s,
        "sealed_s": stage.sealed_s,
        "ended_s": stage.ended_s,
        "sct_s": stage.sct_s,
        "targets": dict(stage.targets),
        "missing": [trial for trial in stage.targets if trial in stage.missing],
    }


def _trial(runtime: Runtime, trial: TrialRecord, known: _Found) -> dict[str, Any]:
    # A past run's trial may have the name of one that runs.
    runs = trial.status is TrialStatus.RUNNING
    planned = runtime.plan.jobs.get(trial.key) if runs else None
    attempt = trial.attempt
    sent_bytes, counted_s = known.sent.get(trial.key, (None, None)) if runs else (None, None)
    return {
        "key": trial.key,
        "name": trial.name,
        "status": trial.status,
        "done": trial.done,
        "loss": _number(trial.loss),
        "budget": trial.budget,
        "registered_s": trial.registered_s,
        "ended_s": trial.ended_s,
        "targets": [
            {
                "step": target.step,
                "stage": target.stage,
                "set_s": target.set_s,
                "reached_s": target.reached_s,
                "time_s": target.time_s,
            }
            for target in trial.targets
        ],
        "attempts": (_attempt(attempt) for attempt in tuple(trial.attempts.values())),
        "class": planned.klass if planned else None,
        "quarantined": runtime.quarantine.reasons.get(trial.key) if runs else None,
        "sent_bytes": sent_bytes,
        "counted_s": counted_s,
        "plane": runtime.fabric.plane_of(attempt.seq) if attempt and runs else None,
        "unattached": [
            {"rank": found.rank, "agent": found.agent, "reason": found.reason}
            for found in (known.unattached.get(trial.key, ()) if runs else ())
        ],
    }


def _decision(runtime: Runtime, trial: TrialRecord) -> dict[str, Any] | None:
    """Return why a trial has its class, None of one that the last decision was not about."""
    attempt, basis = trial.attempt, runtime.basis
    # A past run's trial may have the name of one that runs.
    if basis is None or attempt is None or trial.status is not TrialStatus.RUNNING:
        return None
    found = explain(runtime.fabric, basis, trial.key, attempt.started_s)
    if found is None:
        return None
    return {"policy": runtime.policy, **asdict(found), "slowest": split_key(found.slowest)[1]}


def _attempt(attempt: AttemptRecord) -> dict[str, Any]:
    processes = {rank: dict(vars(process)) for rank, process in attempt.processes.items()}
    return {
        "name": attempt.name,
        "workers": ({**vars(worker), "process": processes.get(worker.rank)} for worker in attempt.workers),
        "profile": dict(vars(attempt.profile)),
        "started_s": attempt.started_s,
        "ended_s": attempt.ended_s,
        "reason": attempt.reason,
    }


def _number(value: float | None) -> float | str | None:
    """Return a number, as its name where JSON has none for it."""
    return value if value is None or math.isfinite(value) else str(value)
