"""A comparison in a few lines: what the last policy takes beside the first, in a sentence, and a row for each policy."""

from collections.abc import Mapping, Sequence
from math import isfinite

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from beamer.sim.joint import JointRun
from beamer.sim.results import RunResult


def summary(
    title: str, runs: Sequence[RunResult], extra: Sequence[Mapping[str, str]] = (), invalid: Sequence[str] = ()
) -> Group:
    """Return the sentence about stages, and a row per run with its means.

    extra: further columns, by heading, of each run. invalid: policies whose runs are, which the sentence says first.
    """
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("seconds")
    for heading in ("mean SCT", "p95 SCT", "mean JCT", *(extra[0] if extra else ())):
        table.add_column(heading, justify="right")
    for number, run in enumerate(runs):
        means = (run.mean_sct_s, run.p95_sct_s, run.mean_jct_s)
        table.add_row(run.policy, *(f"{mean:.2f}" for mean in means), *(extra[number].values() if extra else ()))
    sentence = compared("a stage", [(run.policy, run.mean_sct_s) for run in runs])
    return Group(Text(_warning(invalid) + sentence, style="bold"), Text(title, style="dim"), table)


def searches_compared(runs: Sequence[JointRun], invalid: Sequence[JointRun] = ()) -> Text:
    """Return the sentence about searches, whose policies are pairs. invalid: those of the runs that are."""
    sentence = compared("a search", [(_pair(run), run.mean_search_s) for run in runs])
    return Text(_warning([_pair(run) for run in invalid]) + sentence, style="bold")


def _pair(run: JointRun) -> str:
    return f"{run.gpu_policy} with {run.network_policy}"


def _warning(invalid: Sequence[str]) -> str:
    return f"Invalid, for the reasons below: {', '.join(invalid)}. " if invalid else ""


def compared(what: str, means_s: Sequence[tuple[str, float]]) -> str:
    """Compare the last mean with the first in a sentence. what: whose time it is. means_s: by policy; infinite: not over."""
    (base, base_s), (name, mean_s) = means_s[0], means_s[-1]
    if not isfinite(mean_s):
        return f"Under {name} {what} is not over."
    taken = f"Under {name} {what} takes {mean_s:.2f} s in the mean"
    if len(means_s) == 1:
        return f"{taken}."
    if not isfinite(base_s) or not base_s:
        return f"{taken}; under {base} it is {'not over' if base_s else '0 s'}."
    change = mean_s / base_s - 1
    if not round(100 * change):
        return f"{taken}, as under {base}."
    return f"{taken}, {abs(change):.0%} {'less' if change < 0 else 'more'} than under {base}."
