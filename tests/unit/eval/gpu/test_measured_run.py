"""What experiments measure of a simulated run of a GPU policy."""

import math

from beamer.sim.gpu import JobRun
from beamer.studies.model import TrialStatus
from eval.gpu.measured_run import MeasuredGpuRun


def test_quantiles_of_completion_times_with_jobs_that_never_end() -> None:
    def jobs(*ended_s: float | None) -> MeasuredGpuRun:
        runs = tuple(JobRun(f"s/{one}", 0.0, 0.0, one, TrialStatus.RUNNING, 0.0, 0.0) for one in ended_s)
        return MeasuredGpuRun("p", runs, 9.0)

    assert jobs(1.0, 2.0, 3.0).quantile_jct_s(0.5) == 2.0
    assert jobs(1.0, None, None).quantile_jct_s(0.0) == 1.0
    assert jobs(1.0, None, None).quantile_jct_s(0.9) == math.inf
    assert jobs(None, None).quantile_jct_s(0.5) == math.inf
