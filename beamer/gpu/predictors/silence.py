"""Whether a job that reports nothing may hang: policies that try unknown jobs first would leave it the GPUs for ever.

How long it may take to report is not known of a job that never has; the limit is the time after which PyTorch gives up a
collective by default, and with it the process [torch.distributed.init_process_group, `timeout`]. A silent job is not ended for
that, which is for its search to say (`beamer.gpu.limits`): it comes after all others, until it is heard of again.
"""

from beamer.gpu.model import Job

PATIENCE_S = 1800.0
"""Seconds on GPUs without a report."""


def is_silent(job: Job, patience_s: float, now: float) -> bool:
    """Say whether a job has been on GPUs for longer than `patience_s` since it last reported."""
    return job.unheard_at(now) > patience_s


def falls_silent_s(job: Job, patience_s: float, now: float) -> float:
    """Return when a job that runs from now on is silent if it reports nothing: past where it is already."""
    return now + patience_s - job.unheard_at(now) + GRAIN_S


GRAIN_S = 1e-3
"""Added, so that it is silent when a policy is asked again then, whatever was rounded."""
