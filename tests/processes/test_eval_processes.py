"""The measurement of the local engine's costs."""

import pytest

from eval.gpu.processes import TRAINERS, Quantiles, measure, this_machine
from eval.gpu.starts import searched


def test_quantiles_are_measurements() -> None:
    assert Quantiles.of([3.0, 1.0, 2.0]) == Quantiles(2.0, 3.0, 3)


def test_a_small_measurement() -> None:
    measured = measure(suspensions=4, restarts=1)
    assert (measured.suspend.count, measured.resume.count, measured.restart.count) == (4, 4, 2)
    assert measured.suspended_cpu == 0.0
    assert 0.0 < measured.suspend.p50_s <= measured.suspend.p99_s
    assert measured.restart.p50_s > measured.resume.p50_s, "a restart starts programs"
    assert [(one.before, one.after, one.restart.count) for one in measured.restarts] == [(2, 2, 2), (1, 4, 1), (4, 1, 1)]


@pytest.mark.long
@pytest.mark.skipif(not TRAINERS["ddp"].is_installed, reason="PyTorch is not installed")
def test_a_ddp_job_restarts_at_another_size_and_loses_no_step() -> None:
    # `measure` raises where a step is missing or done twice
    measured = measure("ddp", suspensions=2, restarts=1, sizes=((2, 2), (1, 4)))
    assert [(one.before, one.after) for one in measured.restarts] == [(2, 2), (1, 4), (4, 1)]
    assert "torch" in this_machine().packages


@pytest.mark.long
@pytest.mark.parametrize("ahead", [True, False])
def test_a_search_of_programs_that_take_long_to_start_reaches_its_target(ahead: bool) -> None:
    run = searched("three good", "hermes", ahead, seed=2, start_s=0.3)
    assert run.reached_s > 0.3
    assert 0.0 <= run.idle < 1.0
