"""Plots of the docs: what they show is that of the committed figures, and how they are drawn."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from eval.committed import FOLDER, IMAGES
from eval.gpu import plots as gpu_plots
from eval.gpu.results_file import read_results
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, PanelBand, draw, draw_all, drawn_digest, single
from eval.peers import results_file
from eval.statistics import Interval, Ratio
from eval.studies import STUDIES

RENEW = "run `python -m eval report --docs`"
OF_NO_PLOT = re.compile(r"gpu-regions-\w+|two-searches")  # drawn by other modules
SHOWN = re.compile(r"!\[[^\]]*\]\((?:\.\./)*(?:docs/)?images/([\w-]+)\.png\)")


@pytest.fixture(scope="module")
def committed() -> Mapping[str, IntervalPlot]:
    """Return every plot of the committed figures by the name of its file."""
    found = gpu_plots.plots(read_results(), results_file.read_results())
    for study in STUDIES:
        found |= study.plots(study.read())
    return found


def plot(**series: dict[str, IntervalEstimate]) -> IntervalPlot:
    return single(["a", "b"], Panel("ratio", series))


def points(figure: Figure) -> list[list[tuple[float, float]]]:
    """Return the points of each series of each panel."""
    return [
        [(float(x), float(y)) for x, y in zip(*container[0].get_data(), strict=True)]
        for axes in figure.axes
        for container in axes.containers
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return the figures that are saved."""
    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: (figures.append(self), save(self, *args, **kwargs)))
    return figures


def test_pictures_are_of_the_committed_figures(committed: Mapping[str, IntervalPlot]) -> None:
    assert len(committed) > 20
    older = [name for name, one in committed.items() if drawn_digest(IMAGES / f"{name}.png") != one.digest]
    assert not older, RENEW


def test_every_plot_is_shown_once_and_every_picture_is_a_plot(committed: Mapping[str, IntervalPlot]) -> None:
    pages = [FOLDER.parent / "README.md", *FOLDER.rglob("*.md")]
    shown = [name for page in pages for name in SHOWN.findall(page.read_text("utf-8"))]
    assert sorted(name for name in shown if not OF_NO_PLOT.fullmatch(name)) == sorted(committed)
    assert {path.stem for path in IMAGES.glob("*.png")} == set(shown)


def test_no_plot_is_empty(committed: Mapping[str, IntervalPlot]) -> None:
    for name, one in committed.items():
        for panel in (panel for band in one.bands for panel in band.panels):
            assert any(panel.series.values()), (name, panel.axis)


def test_estimates_are_drawn_in_their_rows(tmp_path: Path, drawn: list[Figure]) -> None:
    one = plot(x={"a": IntervalEstimate(1.0, 0.9, 1.1), "b": IntervalEstimate(2.0, 1.5, 2.5)})
    draw(one, tmp_path / "one.png")
    assert points(drawn[0]) == [[(1.0, 0.0), (2.0, 1.0)]]
    assert drawn_digest(tmp_path / "one.png") == one.digest


def test_series_of_one_row_stand_apart_and_those_of_different_rows_in_the_middle(tmp_path: Path, drawn: list[Figure]) -> None:
    here = IntervalEstimate(1.0, 0.9, 1.1)
    draw_all({"both": plot(x={"a": here}, y={"a": here}), "each": plot(x={"a": here}, y={"b": here})}, tmp_path)
    both, each = map(points, drawn)
    assert both[0][0][1] < 0 < both[1][0][1]
    assert [of[0][1] for of in each] == [0.0, 1.0]


def test_a_panel_without_any_estimate_is_drawn_empty(tmp_path: Path, drawn: list[Figure]) -> None:
    draw(single(["a"], Panel("s", {"": {}}, line=None)), tmp_path / "p.png")
    assert points(drawn[0]) == []


def test_what_is_not_finite_is_left_out(tmp_path: Path, drawn: list[Figure]) -> None:
    never = IntervalEstimate(math.inf, math.inf, math.inf)
    draw(
        plot(x={"a": never, "b": IntervalEstimate(1.0, 1.0, 1.0)}, y={"a": IntervalEstimate(math.nan, 1.0, 1.0)}),
        tmp_path / "p.png",
    )
    assert points(drawn[0]) == [[(1.0, pytest.approx(0.815))]]


def test_panels_of_the_same_axis_have_the_same_scale(tmp_path: Path, drawn: list[Figure]) -> None:
    few, many = ({"x": {"a": IntervalEstimate(to, 1.0, to)}} for to in (1.1, 20.0))
    bands = (PanelBand(["a"], (Panel("ratio", few), Panel("other", few))), PanelBand(["a"], (Panel("ratio", many),)))
    draw(IntervalPlot(bands), tmp_path / "p.png")
    first, other, second = drawn[0].axes
    assert first.get_xlim() == second.get_xlim() != other.get_xlim()
    assert [axes.get_xscale() for axes in drawn[0].axes] == ["log", "linear", "log"]


def test_other_figures_have_another_digest() -> None:
    one = plot(x={"a": IntervalEstimate(1.0, 0.9, 1.1)})
    assert one.digest == plot(x={"a": IntervalEstimate(1.0 + 1e-9, 0.9, 1.1)}).digest
    others = (
        plot(x={"a": IntervalEstimate(1.01, 0.9, 1.1)}),
        plot(y={"a": IntervalEstimate(1.0, 0.9, 1.1)}),
        replace(one, strong=("a",)),
    )
    assert one.digest not in {other.digest for other in others}
    assert len({other.digest for other in others}) == 3


def test_a_picture_that_says_nothing_of_its_figures_has_no_digest(tmp_path: Path) -> None:
    Figure().savefig(tmp_path / "p.png")
    assert drawn_digest(tmp_path / "p.png") == ""


def test_intervals_are_those_of_means_and_ratios() -> None:
    assert IntervalEstimate.of(Ratio(2.0, 1.0, 4.0)) == (2.0, 1.0, 4.0)
    assert IntervalEstimate.of(Interval(2.0, 0.5)) == (2.0, 1.5, 2.5)
