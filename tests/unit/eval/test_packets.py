"""The study of packets on a link: which run is shown, what its table says, and that its picture can be drawn."""

from itertools import zip_longest
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from beamer.workloads.scenario import load
from eval.packets import (
    COMMITTED,
    INTERFACE,
    LINK,
    POLICIES,
    SCENARIO,
    CapturedRun,
    PacketsConfig,
    PacketsStudy,
    StageTimes,
    draw,
)


def run(seconds: float) -> CapturedRun:
    stages = [
        StageTimes(study=study, stage="rung0", start_s=0.0, end_s=seconds * (1 + i))
        for i, study in enumerate(("large", "small"))
    ]
    return CapturedRun(stages=tuple(stages), first_s=0.0, mbit_per_s={"large": (10.0, 20.0, 5.0), "small": (10.0,)})


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


def test_the_picture_shows_each_search_and_the_ends_of_its_stages(
    study: PacketsStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    draw(study, load(SCENARIO), tmp_path / "picture.png")
    for panel in drawn[0].axes:
        tops = [collection.get_paths()[0].vertices[:, 1].max() for collection in panel.collections]
        assert tops == [20.0, 20.0]
        assert {tuple(line.get_xdata()) for line in panel.lines} == {(2.0, 2.0), (4.0, 4.0)}


def test_the_committed_runs_are_within_the_rate_of_the_link() -> None:
    study, scenario = COMMITTED.read(), load(SCENARIO)
    rate = scenario.fabric.links[scenario.fabric.link_index[LINK]].rate_bps / 1e6
    for runs in study.runs.values():
        assert len(runs) == study.config.repetitions
        for one in runs:
            for sent in zip_longest(*one.mbit_per_s.values(), fillvalue=0.0):
                assert sum(sent) <= 1.1 * rate, "a queue may send a burst at the end of an interval"


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
