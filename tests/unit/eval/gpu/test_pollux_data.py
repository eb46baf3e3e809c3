from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from beamer.errors import InputError
from beamer.gpu.model import Costs, Grant, Node, Request
from beamer.gpu.policies import gpu_policy
from beamer.sim.gpu import Arrival, simulate_gpus
from eval.gpu import pollux_data, study
from eval.gpu.claims import Inputs
from eval.gpu.claims.pollux import PolluxClaim
from eval.gpu.command import gpu
from eval.gpu.pollux_data import Application, PolluxProfile, PolluxSubmission, StepTimeCurve, simulated
from tests.support.inputs import POLLUX_DATA, given

NODES = tuple(Node(f"n{number}", 4) for number in range(4))


@pytest.fixture
def application() -> Application:
    return pollux_data.synthetic(1)["made-up-1"]


def test_curves_are_interpolated_and_go_on_in_proportion() -> None:
    curve = StepTimeCurve((10.0, 20.0), (1.0, 2.0), (0.5, 0.1))
    assert curve.at(15.0) == (1.5, 0.3)
    assert curve.at(5.0) == (1.0, 0.5)
    assert curve.at(40.0) == (4.0, 0.1)


def test_shapes_that_were_measured_are_exact_and_others_linear_in_between(application: Application) -> None:
    for shape in ((1,), (4,), (1, 2), (2, 4, 4)):
        assert application.step_s(reversed(shape), 64 * sum(shape)) == application.shapes[shape].at(64.0)
    assert application.step_s((4,) * 6, 64 * 24) == application.sizes[6, 24].at(64.0)
    between = application.step_s((4,) * 10, 64 * 40)
    around = [application.step_s((4,) * nodes, 64 * 4 * nodes) for nodes in (8, 12)]
    assert between == pytest.approx(np.mean(around, axis=0), rel=0.05)
    assert application.step_s((4,) * 10, 40 * 10_000) == application.step_s((4,) * 10, 40 * application.max_local_batch_size)


def test_gradients_are_linear_between_batch_sizes_and_a_step_is_worth_what_they_say(application: Application) -> None:
    small, large = application.runs[64], application.runs[128]
    assert application.gradient(64, 3) == (small.gradient_sqr[3], small.gradient_var[3])
    assert application.gradient(112, 3) == pytest.approx(
        (
            0.25 * small.gradient_sqr[3] + 0.75 * large.gradient_sqr[3],
            0.25 * small.gradient_var[3] + 0.75 * large.gradient_var[3],
        )
    )
    for epoch in (0, 20, 39):
        sqr, var = application.gradient(256, epoch)
        assert application.gain(256, epoch) == pytest.approx((var + sqr) / (var / 4 + sqr))
        gains = [application.gain(size, epoch) for size in (64, 100, 256, 2048)]
        assert gains[0] == pytest.approx(1.0)
        assert gains == sorted(gains)
        assert gains[-1] < 2048 / 64


@pytest.mark.parametrize("requested", [64, 512, 2048])
def test_work_is_the_same_at_every_batch_size_requested(application: Application, requested: int) -> None:
    job = PolluxProfile(application, requested)
    assert job.progress(job.iterations) == pytest.approx(application.epoch_ends[-1], rel=0.01)
    assert job.outcome(0.0).loss == 1.0
    assert job.outcome(job.iterations).accuracy == pytest.approx(application.runs[64].metric[-1], rel=0.01)
    assert job.efficiency(requested, job.iterations / 2) == pytest.approx(1.0)
    assert job.efficiency(64, job.iterations / 2) >= 1.0 >= job.efficiency(2048, job.iterations / 2)


def test_jobs_end_after_their_last_epoch_and_rates_change_with_epochs(application: Application) -> None:
    job, request = PolluxProfile(application, 64), Request(10_000)
    ends = [0.0]
    while (end := job.epoch_end(request, ends[-1])) < float("inf"):
        ends.append(end)
    assert ends[1:] == pytest.approx(application.epoch_ends)
    assert (len(ends) - 1, job.iterations) == (job.epochs, round(application.epoch_ends[-1]))
    for start, end in pairwise(ends):
        assert job.epoch(start) == job.epoch((start + end) / 2)
        assert job.efficiency(512, start) == job.efficiency(512, (start + end) / 2) > job.efficiency(512, 0.0) * 0.99


def test_one_gpu_accumulates_twice_above_the_first_batch_size(application: Application) -> None:
    job, request = PolluxProfile(application, 512), Request(10, batch_size=512, max_local_batch_size=256, accumulates=True)
    assert [job.sub_steps(request, *at) for at in ((1, 64), (1, 65), (1, 512), (1, 1024), (2, 512), (2, 1024))] == [
        1,
        2,
        2,
        4,
        1,
        2,
    ]


def test_users_get_what_they_asked_for_and_free_jobs_start_small(application: Application) -> None:
    row = PolluxSubmission("a", 0.0, application.name, 2, 2048)
    asked = simulated(row, application, Costs(), tuned=True).request
    assert (asked.gpus, asked.least, asked.most, asked.batch_size, asked.max_batch_size) == (2, 1, 64, 2048, 0)
    assert asked.accumulates
    free = simulated(row, application, Costs(), tuned=False).request
    assert (free.gpus, free.most, free.batch_size, free.max_batch_size) == (1, 64, 64, 2048)


def test_the_noise_scale_does_not_depend_on_the_batch_size_requested(application: Application) -> None:
    scales = []
    for requested in (64, 1024):
        job = PolluxProfile(application, requested)
        sqr, var = job.gradient(requested, job.iterations - 1)
        scales.append(requested * var / sqr)
    assert scales[0] == pytest.approx(scales[1], rel=0.1)


def test_batch_sizes_beyond_those_measured_cannot_be_requested(application: Application) -> None:
    with pytest.raises(InputError, match="requested"):
        PolluxProfile(application, 63)


def test_synthetic_work_repeats_by_its_seed_and_runs() -> None:
    applications = pollux_data.synthetic(2)
    assert applications == pollux_data.synthetic(2)
    jobs = pollux_data.synthetic_workload(2, applications, jobs=6, span_s=600.0)
    assert jobs == pollux_data.synthetic_workload(2, applications, jobs=6, span_s=600.0)
    for policy, tuned in (("fifo", True), ("pollux", False)):
        arrivals = [
            Arrival(job.at_s, "study", job.name, simulated(job, applications[job.application], Costs(), tuned)) for job in jobs
        ]
        run = simulate_gpus(gpu_policy(policy), NODES, arrivals)
        assert len(run.jobs) == 6
        assert all(job.ended_s for job in run.jobs)


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="traces"):
        pollux_data.read(tmp_path)
    (tmp_path / "workload.csv").write_text("name,time\na,1\n")
    with pytest.raises(InputError, match="num_replicas"):
        pollux_data.read_workload(tmp_path / "workload.csv")


def write_measured(folder: Path) -> Path:
    """Write data like Pollux': workloads with jobs of `a` and `b`, and traces of `a` alone."""
    traces = folder / "pollux" / "traces" / "a"
    traces.mkdir(parents=True)
    times = ((8, 0.1), (16, 0.2))
    near = [f"{gpus},{size},{step_s},0.0" for gpus in range(1, 5) for size, step_s in times]
    (traces / "placements.csv").write_text("\n".join(["placement,local_bsz,step_time,sync_time", *near]))
    far = [f"{n},{n * each},{size},{step_s},0.1" for n in range(1, 17) for each in (1, 4) for size, step_s in times]
    (traces / "scalability.csv").write_text("\n".join(["num_nodes,num_replicas,local_bsz,step_time,sync_time", *far]))
    for size, _ in times:
        (traces / f"validation-{size}.csv").write_text("progress,metric,grad_sqr,grad_var\n10,0.5,1,1\n20,0.8,1,1\n")
    (folder / "pollux" / "workloads").mkdir()
    rows = "a-0,0,a,1,8\nb-0,30,b,1,8\na-1,60,a,2,16\n"
    (folder / "pollux" / "workloads" / "workload-1.csv").write_text(f"name,time,application,num_replicas,batch_size\n{rows}")
    return folder


@pytest.mark.parametrize("name", ["pollux", "elastic"])
def test_jobs_of_an_application_without_traces_are_left_out_only_where_the_config_says_so(name: str, tmp_path: Path) -> None:
    inputs = Inputs(write_measured(tmp_path))
    config = study.read()
    with pytest.raises(InputError, match=r"^--data: got .*expected .*traces/b/.*`without: \[b\]`"):
        config.claim(name).check_data(inputs)
    with pytest.raises(InputError, match=r"^without: got 'c', expected one of a, b"):
        config.claim(name, {"without": ["b", "c"]}).check_data(inputs)
    claim = config.claim(name, {"without": ["b"]})
    claim.check_data(inputs)
    assert " without b;" in claim.describe(inputs)
    assert " without" not in claim.describe(Inputs())


def test_a_workload_runs_without_the_jobs_that_are_left_out(tmp_path: Path) -> None:
    inputs = Inputs(write_measured(tmp_path))
    claim = study.read().claim("pollux", {"without": ["b"]})
    assert isinstance(claim, PolluxClaim)
    contender = next(one for one in claim.contenders(PolluxClaim.cell) if one.name == "fifo")
    assert claim.run(PolluxClaim.cell, contender, 1, inputs)["jct_s"] > 0
    with pytest.raises(InputError, match="traces/b/"):
        study.read().claim("pollux").run(PolluxClaim.cell, contender, 1, inputs)


def test_the_command_refuses_data_without_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_measured(tmp_path / "data")
    with pytest.raises(InputError, match=r"^--data: got .*traces/b/"):
        gpu(claim=["pollux"], data=data, measure=False, json_file=tmp_path / "gpu.json", plots=tmp_path / "plots")
    assert list(tmp_path.iterdir()) == [data]


def test_published_data_is_read() -> None:
    measured = given(POLLUX_DATA)
    applications = pollux_data.read(measured)
    for application in applications.values():
        for run in application.runs.values():
            assert 0 <= min(run.metric) <= max(run.metric) <= 1
            assert run.metric[-1] > run.metric[0] or len(run.metric) < 3
            assert run.progress[-1] == pytest.approx(application.epoch_ends[-1], rel=0.01)
        profile = PolluxProfile(application, application.max_batch_size)
        step_s, sync_s = profile.step_s(Grant((("n0", 4), ("n1", 4))), application.max_batch_size)
        assert 0 <= sync_s < step_s
    for number in range(1, 5):
        jobs = pollux_data.read_workload(measured / "workloads" / f"workload-{number}.csv")
        for row in jobs:
            if row.application in applications:
                job = simulated(row, applications[row.application], Costs(), tuned=True)
                assert (job.request.gpus, job.request.batch_size) == (row.gpus, row.batch_size)
                if row.application == "ncf":
                    assert job.request.most == 1
    assert isinstance(jobs[0], PolluxSubmission)
