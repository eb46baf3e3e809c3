"""The tables and the plot of faults, for docs/experiments/faults.md."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from rich.table import Table

from eval.committed import Committed
from eval.faults.base import FaultOutcome
from eval.faults.catalogue import FAULTS
from eval.faults.site import POLICY
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, single

T = TypeVar("T")

COLUMNS = (
    "fault",
    "times",
    "acknowledged",
    "lost",
    "plans that differ (policy)",
    "recovery: median (longest)",
    "also",
    "failures",
)


@dataclass(frozen=True)
class FaultStudy:
    """What came of faults, by name. seeds, policies: that each was run with."""

    outcomes: Mapping[str, FaultOutcome]
    seeds: Mapping[str, int]
    policies: Mapping[str, str]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "FaultStudy":
        """Return the study that a file's content is of."""
        return cls(
            {name: FaultOutcome.from_json(one) for name, one in document["faults"].items()},
            document["seeds"],
            document["policies"],
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        outcomes = {name: one.as_json() for name, one in self.outcomes.items()}
        return {"seeds": dict(self.seeds), "policies": dict(self.policies), "faults": outcomes}

    def with_newer(self, newer: "FaultStudy") -> "FaultStudy":
        """Return this study with the outcomes of a newer one in place of its own, in the catalogue's order.

        What was run with another policy than now is left out: the command would not run it again.
        """
        kept = {name for name in self.outcomes if self.policies[name] == POLICY}
        names = [name for name in FAULTS if name in kept or name in newer.outcomes]
        return FaultStudy(
            _newest(names, self.outcomes, newer.outcomes),
            _newest(names, self.seeds, newer.seeds),
            _newest(names, self.policies, newer.policies),
        )

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        return ", ".join(map(str, sorted(set(self.seeds.values()))))

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {"outcomes": [self._outcomes()], "recovery": [self._recovery()]}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return the times to recover by fault: the median, from the least to the longest."""
        each = {name: one.recovery_s for name, one in self.outcomes.items() if one.recovery_s}
        found = {name: IntervalEstimate(median(several), min(several), max(several)) for name, several in each.items()}
        axis = "seconds to recover: median, least to longest"
        return {"recovery": single(list(found), Panel(axis, {"": found}, line=None))}

    def _outcomes(self) -> Table:
        table = Table(title="what was tried, and what came of it", title_justify="left")
        for column in COLUMNS:
            table.add_column(column)
        for name, one in self.outcomes.items():
            also = ", ".join(f"{what}: {how_many}" for what, how_many in one.counts.items())
            lost = f"{one.lost}" if one.acknowledged else ""
            plans = f"{one.differing_plans} of {one.plans} ({self.policies[name]})" if one.plans else ""
            acknowledged = f"{one.acknowledged}" if one.acknowledged else ""
            failures = "; ".join(one.failures) or "0"
            table.add_row(
                f"{FAULTS[name].about} (`{name}`)", f"{one.times}", acknowledged, lost, plans, _seconds(one), also, failures
            )
        return table

    def _recovery(self) -> Table:
        table = Table(title="how the time to recover is measured", title_justify="left")
        for column in ("fault", "from when to when"):
            table.add_column(column)
        for name in self.outcomes:
            table.add_row(f"`{name}`", FAULTS[name].recovery)
        return table


def _newest(names: Iterable[str], older: Mapping[str, T], newer: Mapping[str, T]) -> dict[str, T]:
    return {name: newer[name] if name in newer else older[name] for name in names}


def _seconds(one: FaultOutcome) -> str:
    return f"{median(one.recovery_s):.2f} s ({max(one.recovery_s):.2f} s)" if one.recovery_s else ""


COMMITTED: Committed[FaultStudy] = Committed("faults", "experiments/faults.md", FaultStudy.from_json)
