"""The study of packets on a link: which run is shown, what its table says, and that its picture can be drawn."""

from pathlib import Path

import pytest

from beamer.workloads.scenario import load
from eval.packets import INTERFACE, LINK, POLICIES, SCENARIO, CapturedRun, PacketsConfig, PacketsStudy, StageTimes, draw


def run(seconds: float) -> CapturedRun:
    stages = [
        StageTimes(study=study, stage="rung0", start_s=0.0, end_s=seconds * (1 + i))
        for i, study in enumerate(("large", "small"))
    ]
    return CapturedRun(stages=tuple(stages), mbit_per_s={"large": (10.0, 20.0, 5.0), "small": (10.0,)})


@pytest.fixture
def study() -> PacketsStudy:
    return PacketsStudy(PacketsConfig(), {policy: [run(3.0), run(1.0), run(2.0)] for policy in POLICIES})


def test_the_median_run_is_shown(study: PacketsStudy) -> None:
    assert study.median_run("fair").mean_sct_s == 3.0
    (table,) = study.tables()["searches"]
    assert list(table.columns[1].cells) == ["2.00", "4.00", "3.00 (1.50 to 4.50)"]


def test_stages_are_told_by_their_names(study: PacketsStudy) -> None:
    turned = {**study.runs, "beamer": [one.model_copy(update={"stages": one.stages[::-1]}) for one in study.runs["beamer"]]}
    (table,) = PacketsStudy(study.config, turned).tables()["searches"]
    assert list(table.columns[1].cells) == list(table.columns[2].cells)


def test_what_is_written_is_read_back(study: PacketsStudy) -> None:
    assert PacketsStudy.from_json(study.as_json()) == study


def test_the_picture_is_drawn(study: PacketsStudy, tmp_path: Path) -> None:
    draw(study, load(SCENARIO), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_searches_meet_on_the_link_that_is_watched() -> None:
    scenario = load(SCENARIO)
    fabric = scenario.fabric
    link = fabric.link_index[LINK]
    assert fabric.links[link].interface == INTERFACE
    hosts = [
        {worker.host for stage in study.stages for job in stage.jobs for worker in job.workers} for study in scenario.studies
    ]
    assert not hosts[0] & hosts[1], "packets tell by their sender whose they are"
    for study in scenario.studies:
        for job in study.stages[0].jobs:
            assert link in fabric.path(job.workers[0].host, job.workers[1].host)
