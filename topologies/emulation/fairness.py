"""A check before the run of `fair`: do equal jobs through one port get equal shares, or would a gain be an artefact of TCP?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from beamer.measures import jain
from beamer.network.job import JobSpec
from beamer.studies.model import Worker
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan

POLICY = "fair"  # Equal jobs are to get equal shares under this policy.
STUDY = "calibration.equal-jobs"
JOBS = 4
SECONDS = 3.0


def equal_jobs(scenario: Scenario) -> Scenario:
    """Return a scenario of equal jobs that all exchange bytes with the last host, for about `SECONDS` on its link."""
    *others, last = [host.name for host in scenario.fabric.hosts]
    link = scenario.fabric.links[scenario.fabric.link_index[last, scenario.fabric.edge_of[last]]]
    size = int(link.rate_bps * SECONDS / 8 / JOBS)
    jobs = tuple(
        JobSpec(f"job{i}", (Worker(0, others[i % len(others)]), Worker(1, last)), iterations=1, sync_bytes=size)
        for i in range(JOBS)
    )
    return replace(scenario, studies=(StudyPlan(STUDY, 1.0, 0.0, (StagePlan("equal", jobs),)),))


def fairness(studies: list[Mapping[str, Any]], start_up_s: float) -> float | None:
    """Return Jain's index of the equal jobs' throughputs once started up, None if they have not run.

    studies: as the API shows them.
    """
    durations = [
        attempt["ended_s"] - attempt["started_s"] - start_up_s
        for study in studies
        if study["name"] == STUDY
        for trial in study["trials"]
        for attempt in trial["attempts"]
    ]
    return jain([1 / duration for duration in durations]) if durations else None
