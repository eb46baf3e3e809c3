"""The few lines that a comparison begins with."""

from io import StringIO
from math import inf

import pytest
from rich.console import Console

from beamer.report.summary import compared, searches_compared, summary
from beamer.sim.gpu import JobRun
from beamer.sim.joint import JointRun
from beamer.sim.results import JobResult, RunResult, StageResult
from beamer.studies.model import TrialStatus


@pytest.mark.parametrize(
    ("means_s", "sentence"),
    [
        (
            [("fair", 10.0), ("sebf", 9.0), ("beamer", 8.0)],
            "Under beamer a stage takes 8.00 s in the mean, 20% less than under fair.",
        ),
        ([("fair", 10.0), ("fifo", 11.0)], "Under fifo a stage takes 11.00 s in the mean, 10% more than under fair."),
        ([("fair", 10.0), ("fifo", 9.96)], "Under fifo a stage takes 9.96 s in the mean, as under fair."),
        ([("fair", 10.0)], "Under fair a stage takes 10.00 s in the mean."),
        ([("fair", 10.0), ("fifo", inf)], "Under fifo a stage is not over."),
        ([("fair", inf), ("fifo", 3.0)], "Under fifo a stage takes 3.00 s in the mean; under fair it is not over."),
        ([("fair", 0.0), ("fifo", 3.0)], "Under fifo a stage takes 3.00 s in the mean; under fair it is 0 s."),
    ],
)
def test_the_last_policy_is_compared_with_the_first(means_s: list[tuple[str, float]], sentence: str) -> None:
    assert compared("a stage", means_s) == sentence


def test_the_result_comes_first_and_all_of_it_is_short() -> None:
    def run(policy: str, end_s: float) -> RunResult:
        return RunResult(policy, (StageResult("s", "r0", 0.0, end_s),), (JobResult("s/r0/t", 0.0, end_s),))

    console = Console(width=80, record=True, file=StringIO())
    runs = [run("fair", 4.0), run("sebf", 3.0), run("beamer", 2.0)]
    console.print(summary("work on net, emulated", runs, [{"dropped": f"0.{i}%"} for i in range(3)]))
    lines = console.export_text().splitlines()
    assert lines[0].startswith("Under beamer a stage takes 2.00 s")
    assert len(lines) <= 10
    assert lines[-1].split() == ["beamer", "2.00", "2.00", "2.00", "0.2%"]


def test_an_invalid_run_is_named_before_the_result() -> None:
    run = RunResult("fair", (StageResult("s", "r0", 0.0, 4.0),), (JobResult("s/r0/t", 0.0, 4.0),))
    console = Console(width=200, record=True, file=StringIO())
    console.print(summary("work on net, emulated", [run], invalid=["fair"]))
    job = JobRun("s/t", 0.0, 0.0, 4.0, TrialStatus.FINISHED, 4.0, 0.0)
    searches = [JointRun(gpu, "fair", (job,), run.stages, 4.0, 1) for gpu in ("fifo", "convergence")]
    console.print(searches_compared(searches, searches[1:]))
    lines = console.export_text().splitlines()
    assert lines[0] == "Invalid, for the reasons below: fair. Under fair a stage takes 4.00 s in the mean."
    assert lines[-1].startswith("Invalid, for the reasons below: convergence with fair. Under convergence with fair a search")
