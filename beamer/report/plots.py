"""Pictures of runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from beamer.sim.results import RunResult

CHARACTERS = 120  # So many characters of a stage's name fit beside each other into the width of a timeline.
WIDE_SPREAD = 100.0  # Beyond so many times the least value, a linear axis shows the largest values only.


def plot_timeline(runs: Sequence[RunResult], path: Path) -> None:
    """Draw each run's stages as bars, a row per study, on a common time axis, and write the picture to `path`.

    A bar that is too short for its stage's name has none.
    """
    from matplotlib.figure import Figure

    studies = list(runs[0].makespans_s)
    figure = Figure(figsize=(10, 1.0 + len(runs) * (0.6 + 0.35 * len(studies))), layout="constrained")
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    character_s = max(max(run.makespans_s.values()) for run in runs) / CHARACTERS
    for panel, run in zip(panels, runs, strict=True):
        for stage in run.stages:
            row = studies.index(stage.study)
            panel.barh(row, stage.sct_s, left=stage.start_s, height=0.7, color=f"C{row}", edgecolor="white", linewidth=1.5)
            panel.text(
                stage.start_s + stage.sct_s / 2,
                row,
                stage.stage if stage.sct_s > len(stage.stage) * character_s else "",
                ha="center",
                va="center",
                fontsize=7,
                color="white",
                clip_on=True,
            )
        panel.axvline(0, color="black", linewidth=0.5)
        panel.set_yticks(range(len(studies)), studies)
        panel.invert_yaxis()
        panel.set_title(f"{run.policy}: mean SCT {run.mean_sct_s:.2f} s", loc="left", fontsize=10)
        panel.grid(axis="x", alpha=0.3)
    panels[-1].set_xlabel("time since the scenario's start (s)")
    figure.savefig(path, dpi=120)


def plot_cdf(what: str, samples: Sequence[tuple[str, Sequence[float]]], path: Path) -> None:
    """Draw which share of each (policy, seconds) is at most so long, a step at every value, and write it to `path`.

    what: `coflow completion time`, say. The axis of seconds is logarithmic where values are spread widely.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    values = np.concatenate([np.zeros(0), *(seconds for _, seconds in samples)])
    positive = values[values > 0]
    if len(positive) and positive.max() > WIDE_SPREAD * positive.min():
        axes.set_xscale("log")
        axes.set_xlim(positive.min() / 1.2, positive.max() * 1.2)  # Values of 0 count as left of the axis.
    else:
        axes.set_xlim(0, positive.max(initial=1.0) * 1.05)
    for number, (policy, seconds) in enumerate(samples):
        if len(seconds):
            style = ("-", "--", "-.", ":")[number % 4]  # Curves that coincide remain distinguishable by their styles.
            axes.ecdf(seconds, label=f"{policy}: mean {np.mean(seconds):.2f} s", linestyle=style)
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"{what} (s)")
    axes.set_ylabel("share that takes at most so long")
    axes.grid(alpha=0.3)
    if len(values):
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
