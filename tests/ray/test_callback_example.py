"""The stock example of Ray Tune, and the two lines by which docs/tuners/ray-tune-callback.md tells Beamer of it."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import added_lines, with_diff

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")

from eval.ray_cluster import LocalRayCluster
from tests.support.served_controller import served
from topologies.single import build

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

STOCK = (ROOT / "examples" / "ray_tune_asha.py").read_text("utf-8")
PAGE = (ROOT / "docs" / "tuners" / "ray-tune-callback.md").read_text("utf-8")


def test_two_lines_differ_and_one_but_for_the_import() -> None:
    added = added_lines(PAGE, STOCK)
    assert len(added) == 2
    assert len([line for line in added if not line.lstrip().startswith(("import ", "from "))]) == 1


@pytest.mark.long
def test_the_example_runs_and_the_controller_knows_its_search(
    cluster: LocalRayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "search.py"
    program.write_text(with_diff(PAGE, STOCK))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(program)])
    with served(build(hosts=2), tmp_path / "journal.db") as controller:
        monkeypatch.setenv("BEAMER_URL", controller.url)
        runpy.run_path(str(program), run_name="__main__")
        assert controller.until(lambda runtime: {one.status.value for one in runtime.tracker.studies.values()} == {"ended"})
        study = controller.ask(lambda runtime: runtime.tracker.studies["descent"])
    assert [rung.step for rung in study.rungs] == [1, 4, 16]
    assert len(study.trials) == 4
    assert max(trial.done for trial in study.trials.values()) == 16
