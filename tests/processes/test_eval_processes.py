"""The measurement of the local engine's costs."""

from eval.gpu.processes import Quantiles, measure


def test_quantiles_are_measurements() -> None:
    assert Quantiles.of([3.0, 1.0, 2.0]) == Quantiles(2.0, 3.0, 3)


def test_a_small_measurement() -> None:
    measured = measure(suspensions=4, restarts=2)
    assert (measured.suspend.count, measured.resume.count, measured.restart.count) == (4, 4, 2)
    assert measured.suspended_cpu == 0.0
    assert 0.0 < measured.suspend.p50_s <= measured.suspend.p99_s
    assert measured.restart.p50_s > measured.resume.p50_s, "a restart starts programs"
