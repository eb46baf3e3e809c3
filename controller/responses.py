"""The HTTP API's responses: the runtime's state as plain data; times are Unix seconds."""

from collections.abc import Iterable
from typing import Any

from beamer.measures import quantile
from beamer.studies.records import JobRecord, StageRecord, StudyRecord
from controller.openflow.reports import PairCount
from controller.runtime import Runtime


def studies_response(runtime: Runtime) -> dict[str, Any]:
    """Return all studies in order of registration, with their stages and jobs."""
    return {"studies": [_study(runtime, study) for study in runtime.tracker.studies.values()]}


def stage_response(runtime: Runtime, study: str, stage: str) -> dict[str, Any]:
    """Return one stage with its jobs. Raises `NotFoundError`."""
    return _stage(runtime, runtime.tracker.stage(study, stage))


def plan_response(runtime: Runtime) -> dict[str, Any]:
    """Return the plan in force and which generation of it runs where (0: not known)."""
    installation = runtime.installation
    return {
        "policy": runtime.policy,
        "generation": installation.generation,
        "queues": runtime.plan.queues,
        "jobs": {key: {"class": job.klass, "cap_bps": job.cap_bps} for key, job in runtime.plan.jobs.items()},
        "installed": {"switches": dict(installation.switches), "agents": dict(installation.agents)},
        "installed_everywhere": installation.everywhere,
    }


def latencies_response(runtime: Runtime) -> dict[str, Any]:
    """Return milliseconds from each stage event that changed the network to the change being installed everywhere."""
    samples = runtime.installation.plan_ms
    return {"plan_ms": list(samples), "p50": quantile(samples, 0.5), "p99": quantile(samples, 0.99)}


def counters_response(runtime: Runtime, pairs: Iterable[PairCount]) -> dict[str, Any]:
    """Return the counts of edge switches by job, host pair and class, and the latest ones of agents' queues."""
    key_of = {job.seq: key for key, job in runtime.tracker.jobs.items()}
    return {
        "host_pairs": [
            {
                "switch": pair.switch,
                "job": key_of.get(pair.job_seq),
                "src": pair.src,
                "dst": pair.dst,
                "class": pair.klass,
                "marked": pair.marked,
                "sent_bytes": pair.sent_bytes,
                "sent_packets": pair.sent_packets,
                "final": pair.final,
            }
            for pair in pairs
        ],
        "unmatched_bytes": runtime.unmatched_bytes(),
        "agents": {name: counters.model_dump(exclude={"kind"}) for name, counters in runtime.agents.counters.items()},
    }


def health_response(runtime: Runtime) -> dict[str, Any]:
    """Return whether everything that the fabric names is connected and up to date."""
    installation = runtime.installation
    return {
        "status": "ok",
        "installed_everywhere": installation.everywhere,
        "switches": {"expected": len(installation.switches), "installed": sum(g > 0 for g in installation.switches.values())},
        "agents": {"expected": len(installation.agents), "connected": len(runtime.agents.connected)},
    }


def _study(runtime: Runtime, study: StudyRecord) -> dict[str, Any]:
    return {
        "name": study.name,
        "weight": study.weight,
        "registered_s": study.registered_s,
        "rungs": [{"name": r.name, "jobs": r.jobs, "iterations": r.iterations} for r in study.rungs],
        "stages": [_stage(runtime, stage) for stage in study.stages.values()],
    }


def _stage(runtime: Runtime, stage: StageRecord) -> dict[str, Any]:
    return {
        "name": stage.name,
        "status": stage.status,
        "registered_s": stage.registered_s,
        "sealed_s": stage.sealed_s,
        "ended_s": stage.ended_s,
        "sct_s": None if stage.ended_s is None else stage.ended_s - stage.registered_s,
        "jobs": [_job(runtime, runtime.tracker.jobs[key]) for key in stage.jobs],
    }


def _job(runtime: Runtime, job: JobRecord) -> dict[str, Any]:
    planned = runtime.plan.jobs.get(job.key)
    return {
        "key": job.key,
        "name": job.spec.name,
        "status": job.status,
        "iterations": job.spec.iterations,
        "done": job.done,
        "registered_s": job.registered_s,
        "ended_s": job.ended_s,
        "class": planned.klass if planned else None,
        "plane": runtime.fabric.plane_of(job.seq),
    }
