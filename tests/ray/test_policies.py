"""Every registered policy runs a search on a Ray cluster to its end, with the results of undisturbed trials."""

from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.gpu.model import Request
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from eval.ray_cluster import LocalRayCluster
from tests.ray.searches import overlaps, run, steps, undisturbed
from tests.support.tiers import long

# Tune does not close its trials' result files when a search ends before they do.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

RATES = (0.01, 0.05, 0.1, 0.2, 0.4)
ITERATIONS = 3
SLICES = {"round-robin": {"quantum_s": 1.0}, "pollux": {"interval_s": 3.0}}


@pytest.mark.parametrize("name", long(*GPU_POLICIES))
def test_every_policy_finishes_a_search(name: str, cluster: LocalRayCluster, tmp_path: Path) -> None:
    request = Request(ITERATIONS, max_gpus=2, batch_size=8)
    scheduler = BeamerScheduler(gpu_policy(name, **SLICES.get(name, {})), request)
    results = run(tmp_path, scheduler, RATES, reuse=True)
    assert not results.errors
    done = steps(tmp_path)
    assert sorted(lines[-1].loss for lines in done.values()) == sorted(undisturbed(rate, ITERATIONS)[-1] for rate in RATES)
    assert all([line.step for line in lines] == list(range(1, ITERATIONS + 1)) for lines in done.values())
    assert overlaps(line for lines in done.values() for line in lines) == []
    assert "0 of 0 jobs" in scheduler.debug_string()
