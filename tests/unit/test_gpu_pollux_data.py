from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.gpu.model import Costs, Grant, Node
from beamer.gpu.policies import gpu_policy
from beamer.sim.gpu import Arrival, simulate_gpus
from eval.gpu import pollux_data
from eval.gpu.pollux_data import Application, PolluxProfile, PolluxSubmission, StepTimeCurve, simulated
from tests.inputs import POLLUX_DATA, given

NODES = tuple(Node(f"n{number}", 4) for number in range(4))


@pytest.fixture
def application() -> Application:
    return pollux_data.synthetic(1)["made-up-1"]


def test_curves_are_interpolated_and_go_on_in_proportion() -> None:
    curve = StepTimeCurve((10.0, 20.0), (1.0, 2.0), (0.5, 0.1))
    assert curve.at(15.0) == (1.5, 0.3)
    assert curve.at(5.0) == (1.0, 0.5)
    assert curve.at(40.0) == (4.0, 0.1)


def test_shapes_that_were_measured_are_exact_and_others_near(application: Application) -> None:
    for shape in ((1,), (4,), (1, 2), (2, 4, 4)):
        assert application.step_s(reversed(shape), 64 * sum(shape)) == application.shapes[shape].at(64.0)
    assert application.step_s((4,) * 6, 64 * 24) == application.sizes[6, 24].at(64.0)
    between = application.step_s((4,) * 10, 64 * 40)[0]
    around = [application.step_s((4,) * nodes, 64 * 4 * nodes)[0] for nodes in (6, 16)]
    assert min(around) <= between <= max(around)


def test_one_batch_is_worth_less_than_its_samples(application: Application) -> None:
    for progress in (0.0, 1e3, 1e9):
        gains = [application.gain(size, progress) for size in (64, 100, 256, 2048)]
        assert gains[0] == pytest.approx(1.0)
        assert gains == sorted(gains)
        assert gains[-1] < 2048 / 64


@pytest.mark.parametrize("requested", [64, 512, 2048])
def test_work_is_the_same_at_every_batch_size_requested(application: Application, requested: int) -> None:
    job = PolluxProfile(application, requested)
    assert job.progress(job.iterations) == pytest.approx(application.runs[64].progress[-1], rel=0.01)
    assert job.outcome(0.0).loss == 1.0
    assert job.outcome(job.iterations).accuracy == pytest.approx(application.runs[64].metric[-1], rel=0.01)
    assert job.efficiency(requested, job.iterations / 2) == pytest.approx(1.0)
    assert job.efficiency(64, job.iterations / 2) >= 1.0 >= job.efficiency(2048, job.iterations / 2)


def test_the_noise_scale_does_not_depend_on_the_batch_size_requested(application: Application) -> None:
    scales = []
    for requested in (64, 1024):
        job = PolluxProfile(application, requested)
        sqr, var = job.gradient(requested, job.iterations)
        scales.append(requested * var / sqr)
    assert scales[0] == pytest.approx(scales[1], rel=0.1)


def test_unmeasured_batch_sizes_cannot_be_requested(application: Application) -> None:
    with pytest.raises(InputError, match="requested"):
        PolluxProfile(application, 65)


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


def test_published_data_is_read() -> None:
    measured = given(POLLUX_DATA)
    applications = pollux_data.read(measured)
    for application in applications.values():
        for run in application.runs.values():
            assert 0 <= min(run.metric) <= max(run.metric) <= 1
            assert run.metric[-1] > run.metric[0] or len(run.metric) < 3
            assert run.progress[-1] == pytest.approx(application.runs[application.batch_size].progress[-1], rel=0.01)
        job = PolluxProfile(application, application.max_batch_size)
        step_s, sync_s = job.step_s(Grant((("n0", 4), ("n1", 4))), application.max_batch_size)
        assert 0 <= sync_s < step_s
    for number in range(1, 5):
        jobs = pollux_data.read_workload(measured / "workloads" / f"workload-{number}.csv")
        for row in jobs:
            if row.application in applications:
                simulated(row, applications[row.application], Costs(), tuned=True)
    assert isinstance(jobs[0], PolluxSubmission)
