"""Our fluid network and SimGrid give every job the same end, on a cluster and on whatever the driver can be told."""

from pathlib import Path

import numpy as np
import pytest

from beamer.errors import PlatformError
from beamer.network.allocation import MaxMin
from eval.bench.scale import cluster
from eval.bench.simgrid.comparison import AGREEMENT, JITTER, NetworkLoad, differ, ends_of, load_of, whole
from eval.bench.simgrid.description import describe
from eval.bench.simgrid.program import MODES, build, run
from tests.support.loads import SyntheticJob, block
from tests.support.reference.network import Flow

LINKS = 12
ROUNDING = 1e-12  # of sums in another order


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("simgrid"))
    except PlatformError as missing:
        pytest.skip(str(missing))


def drawn(seed: int) -> NetworkLoad:
    """Jobs of several phases that start one after another and overlap their computing; some flows move nothing."""
    rng = np.random.default_rng(seed)

    def flow() -> Flow:
        links = rng.choice(LINKS, rng.integers(0, 5), replace=False).tolist()
        return Flow(dict.fromkeys(links, 1.0), float(rng.choice([0.0, 1.0], p=[0.1, 0.9]) * rng.lognormal(18.0, 2.0)))

    def job() -> SyntheticJob:
        phases = tuple(tuple(flow() for _ in range(rng.integers(0, 6))) for _ in range(rng.integers(1, 5)))
        return SyntheticJob(phases, int(rng.integers(1, 8)), float(rng.uniform(0.01, 2.0)), float(rng.choice([0.0, 0.4, 1.0])))

    return NetworkLoad(rng.uniform(1e8, 4e9, LINKS), block([job() for _ in range(40)]), rng.uniform(0.0, 5.0, 40))


@pytest.mark.parametrize("mode", MODES)
def test_jobs_of_a_cluster_end_when_they_end_in_simgrid(driver: Path, mode: str, tmp_path: Path) -> None:
    load = load_of(cluster(10, 32, JITTER))
    agrees(load, driver, mode, tmp_path)
    in_step = load_of(cluster(10, 32))
    assert len(set(load.block.compute.tolist())) > 10 * len(set(in_step.block.compute.tolist()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_drawn_jobs_end_when_they_end_in_simgrid(driver: Path, mode: str, seed: int, tmp_path: Path) -> None:
    agrees(drawn(seed), driver, mode, tmp_path)


def agrees(load: NetworkLoad, driver: Path, mode: str, folder: Path) -> None:
    description = folder / "load.txt"
    description.write_text(describe(load.capacity, load.block, load.start_s))
    _, end_s = ends_of(load)
    assert differ(end_s, run(driver, description, mode).end_s) <= AGREEMENT


def test_the_load_is_the_one_that_is_simulated() -> None:
    scenario = cluster(3, 32, JITTER)
    _, end_s = ends_of(load_of(scenario))
    simulated = whole(scenario, "fair", MaxMin())
    assert [job.end_s for job in simulated.jobs] == pytest.approx(end_s.tolist(), rel=ROUNDING)


def test_a_description_that_ends_early_is_refused(driver: Path, tmp_path: Path) -> None:
    description = tmp_path / "load.txt"
    description.write_text("largest 1.0\nlinks 2\n1.0\n")
    with pytest.raises(RuntimeError, match="ends early"):
        run(driver, description, "full")
