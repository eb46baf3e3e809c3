"""Plots for the docs: estimates with their intervals, a row per name, panels beside and above each other.

A study returns its plots as plain values, which follow from its figures alone, and this module gives all of them one look. A
picture holds the digest of what it shows, so that a test can tell a picture of older figures without drawing it again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eval.statistics import Interval, Ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, DPI = 9.0, 120
ROW_IN, BAND_IN, LEGEND_IN = 0.10, 0.72, 0.21  # heights of a row, around a band, of a line of the legend
SERIES_IN, MANY_SERIES_IN, MANY = 0.075, 0.04, 5  # what a series adds to a row, and what each beyond so many does
LEGEND_CHARACTERS = 95  # of a line of the legend
# Okabe and Ito's colours, which most people can tell apart, and some more for plots of many series.
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"),
    *("#7f5f00", "#555555", "#7b3294", "#1b7837", "#b30000"),
)
MARKERS = "osD^vPX<>*h"
STRONG = "#d55e00"
LOGARITHMIC_FROM = 2.5  # greatest over least from which an axis is logarithmic
TICKS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)  # of a decade of such an axis
MOST_TICKS = 6
DIGEST = "Comment"  # the entry of a PNG file that says which figures it shows


class IntervalEstimate(NamedTuple):
    """A value and the ends of its interval, both equal to it where it has none."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Ratio | Interval) -> "IntervalEstimate":
        """Return a mean with its confidence interval."""
        if isinstance(found, Ratio):
            return cls(found.mean, found.low, found.high)
        return cls(found.mean, found.mean - found.half_width, found.mean + found.half_width)


IntervalEstimates = Mapping[str, IntervalEstimate]
"""By row."""


@dataclass(frozen=True)
class Panel:
    """IntervalEstimates by series.

    axis: what they are of; panels of one plot with the same text have the same scale. line: where nothing differs; None:
    nowhere.
    """

    axis: str
    series: Mapping[str, IntervalEstimates]
    title: str = ""
    line: float | None = 1.0

    @property
    def beside(self) -> int:
        """How many estimates stand beside each other in a row: one where no row is of several series."""
        rows = [row for estimates in self.series.values() for row in estimates]
        return len(self.series) if len(rows) > len(set(rows)) else 1


@dataclass(frozen=True)
class PanelBand:
    """Panels beside each other, of the same rows."""

    rows: Sequence[str]
    panels: Sequence[Panel]


@dataclass(frozen=True)
class IntervalPlot:
    """Bands above each other. strong: rows and series that stand out."""

    bands: Sequence[PanelBand]
    strong: tuple[str, ...] = ()

    @property
    def series(self) -> list[str]:
        """The names of all series, in the order in which they appear."""
        panels = (panel for band in self.bands for panel in band.panels)
        return list(dict.fromkeys(name for panel in panels for name in panel.series))

    @property
    def digest(self) -> str:
        """A digest of all that it shows, figures to six digits."""
        return sha256(json.dumps(_rounded(asdict(self))).encode()).hexdigest()[:32]


def single(rows: Sequence[str], *panels: Panel, strong: tuple[str, ...] = ()) -> IntervalPlot:
    """Return a plot of one band."""
    return IntervalPlot((PanelBand(rows, panels),), strong)


def draw_all(plots: Mapping[str, IntervalPlot], folder: Path) -> list[Path]:
    """Draw plots into PNG files of a folder, by the names of the files without their ending; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png" for name in plots]
    for path, plot in zip(paths, plots.values(), strict=True):
        draw(plot, path)
    return paths


def drawn_digest(path: Path) -> str:
    """Return the digest of what a picture shows, as the picture says; "" if it does not."""
    from PIL import Image

    with Image.open(path) as picture:
        return str(picture.info.get(DIGEST, ""))


def draw(plot: IntervalPlot, path: Path) -> None:
    """Draw a plot into a PNG file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = plot.series
    heights = [len(band.rows) * _row_in(band) + BAND_IN for band in plot.bands]
    legend_lines = 1 + sum(len(name) + 6 for name in names) // LEGEND_CHARACTERS if len(names) > 1 else 0
    with rc_context({"font.size": 8, "axes.titlesize": 8.5, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH_IN, sum(heights) + LEGEND_IN * legend_lines), layout="constrained")
        columns = max(len(band.panels) for band in plot.bands)
        grid = figure.add_gridspec(len(plot.bands), columns, height_ratios=heights)
        limits = {axis: _limits(plot, axis) for axis in {panel.axis for band in plot.bands for panel in band.panels}}
        for place, band in enumerate(plot.bands):
            for column, panel in enumerate(band.panels):
                axes = figure.add_subplot(grid[place, column])
                _draw_panel(axes, plot, band, panel)
                _scale(axes, *limits[panel.axis])
                _label_rows(axes, band.rows if not column else (), plot.strong)
        if len(names) > 1:
            _add_legend(figure, plot, legend_lines)
        figure.savefig(path, dpi=DPI, metadata={"Software": None, DIGEST: plot.digest})


def _row_in(band: PanelBand) -> float:
    """Return the height of a row."""
    count = max(panel.beside for panel in band.panels)
    return ROW_IN + SERIES_IN * min(count, MANY) + MANY_SERIES_IN * max(count - MANY, 0)


def _look(plot: IntervalPlot, name: str) -> dict[str, Any]:
    """Return how a series is drawn: one that stands out has the colour that no other has."""
    others = [one for one in plot.series if one not in plot.strong]
    if name in plot.strong or not others:
        return {"color": STRONG, "marker": MARKERS[0], "markersize": 5.0, "elinewidth": 1.4, "zorder": 4}
    number = others.index(name)
    colours = [one for one in COLOURS if one != STRONG] if set(plot.strong) & set(plot.series) else COLOURS
    look = {"color": colours[number % len(colours)], "marker": MARKERS[number % len(MARKERS)]}
    return look | {"markersize": 3.6, "elinewidth": 0.9, "zorder": 3}


def _draw_panel(axes: "Axes", plot: IntervalPlot, band: PanelBand, panel: Panel) -> None:
    count = panel.beside
    apart = 0.74 / count
    for number, (name, estimates) in enumerate(panel.series.items()):
        there = [(place, estimates[row]) for place, row in enumerate(band.rows) if _is_finite(estimates.get(row))]
        if not there:
            continue
        values = [one.value for _, one in there]
        reach = [[max(one.value - one.low, 0.0) for _, one in there], [max(one.high - one.value, 0.0) for _, one in there]]
        shift = apart * (number - (count - 1) / 2) if count > 1 else 0.0
        places = [place + shift for place, _ in there]
        axes.errorbar(values, places, xerr=reach, linestyle="none", **_look(plot, name))
    for place in range(0, len(band.rows), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
    if panel.line is not None:
        axes.axvline(panel.line, color="black", linewidth=0.8, zorder=2)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.axis)
    axes.grid(axis="x", alpha=0.35, linewidth=0.5)
    axes.set_ylim(len(band.rows) - 0.5, -0.5)


def _label_rows(axes: "Axes", rows: Sequence[str], strong: tuple[str, ...]) -> None:
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() in strong else "normal")


def _limits(plot: IntervalPlot, axis: str) -> tuple[float, float, bool]:
    """Return the ends of an axis, and whether it is logarithmic."""
    panels = [panel for band in plot.bands for panel in band.panels if panel.axis == axis]
    found = [one for panel in panels for estimates in panel.series.values() for one in estimates.values() if _is_finite(one)]
    ends = [end for one in found for end in (one.low, one.high)] + [panel.line for panel in panels if panel.line is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low > 0 and high / low >= LOGARITHMIC_FROM:
        margin = (high / low) ** 0.03
        return low / margin, high * margin, True
    margin = 0.04 * ((high - low) or 1.0)
    return low - margin, high + margin, False


def _scale(axes: "Axes", low: float, high: float, logarithmic: bool) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_ticks(low, high)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS - 1, steps=(1, 2, 2.5, 5, 10)))
    axes.set_xlim(low, high)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers inside a logarithmic axis, 1 among them where it is inside."""
    for kept in (TICKS, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = [round(one * 10.0**power, 10) for power in range(-9, 10) for one in kept]
        found = [one for one in found if low <= one <= high]
        if len(found) <= MOST_TICKS:
            break
    return found


def _add_legend(figure: Any, plot: IntervalPlot, lines: int) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for name in plot.series:
        look = _look(plot, name)
        kept = {key: look[key] for key in ("color", "marker", "markersize")}
        handles.append(Line2D([], [], linestyle="-", linewidth=look["elinewidth"], label=name, **kept))
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // lines), frameon=False)


def _is_finite(one: IntervalEstimate | None) -> bool:
    return one is not None and all(map(isfinite, one))


def _rounded(value: Any) -> Any:
    """Return plain JSON with its numbers to six digits; what is not a number is its text, which JSON has no word for."""
    if isinstance(value, dict):
        return [[key, _rounded(one)] for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return f"{value:.6g}" if isinstance(value, float) else value
