"""Jobs of which a test states what matters to it; the rest is as of a job that was heard of when its grant last changed."""

from collections.abc import Sequence

from beamer.gpu.model import NOT_MEASURED, Costs, Grant, Job, Report, Request, Speed, Stage


def known_job(
    key: str,
    request: Request,
    submitted_s: float,
    stage: Stage,
    reports: Sequence[Report] = (),
    speeds: Sequence[Speed] = (),
    grant: Grant | None = None,
    last: Grant | None = None,
    since_s: float = 0.0,
    service_s: float = 0.0,
    gpu_s: float = 0.0,
    costs: Costs = NOT_MEASURED,
    heard_s: float | None = None,
) -> Job:
    """Return a job. heard_s: None: heard of when its grant last changed."""
    heard_s = service_s if heard_s is None else heard_s
    return Job(
        key, request, submitted_s, stage, tuple(reports), tuple(speeds), grant, last, since_s, service_s, gpu_s, costs, heard_s
    )
