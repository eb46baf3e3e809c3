"""The file with the results of a study, and the tables that follow from it alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from beamer.gpu.model import Costs
from beamer.yaml_files import read_json
from eval.gpu.claims import Claim, Inputs, Results
from eval.gpu.knowledge import shown
from eval.gpu.report import tally, verdicts
from eval.gpu.study import GpuStudyConfig
from eval.gpu.tuning import Tuned
from eval.json_lines import json_lines
from eval.origin import MADE_WITH, made_with

RESULTS = Path(__file__).parent.parent / "results" / "gpu.json"
LEVELS = 5  # Levels of the document: claims, a claim, its cells, a cell; a contender has a line.


@dataclass(frozen=True)
class ClaimResults:
    """A claim with its results.

    inputs: what its runs were given, in words. figures: what it reports besides runs. costs: of changes, as they were measured
    for its runs; None: as stated in the config, or not recorded. made_with: as of `eval.origin`; None: not recorded.
    """

    claim: Claim
    inputs: str
    seeds: Sequence[int]
    cells: Results
    figures: Mapping[str, Any]
    costs: Costs | None
    made_with: Mapping[str, Any] | None

    @classmethod
    def of(cls, claim: Claim, seeds: Sequence[int], inputs: Inputs, cells: Results) -> "ClaimResults":
        """Return the results of runs, with what the claim reports besides them."""
        return cls(
            claim,
            claim.describe(inputs),
            seeds,
            cells,
            claim.figures(seeds, inputs),
            inputs.costs,
            made_with("gpu")[MADE_WITH],
        )

    @property
    def heading(self) -> str:
        """A line about what was run."""
        return f"{self.claim.title}: {self.inputs}; {len(self.seeds)} seeds, 95 % intervals"

    def tables(self, tuned: Tuned) -> list[Table]:
        """Return all its tables, the parameters of its policies last."""
        chosen = [tuned.table(self.claim)] if self.claim.name in tuned.claims else []
        return [*self.claim.tables(self.cells), *self.claim.further(self.figures, self.cells), *chosen]

    def judged(self, tuned: Tuned) -> list[Table]:
        """Return the tables in which policies are compared, and the parameters that they had."""
        cells = {cell: runs for cell, runs in self.cells.items() if cell in self.claim.judged()}
        chosen = [tuned.table(self.claim)] if self.claim.name in tuned.claims else []
        return [*self.claim.tables(cells), *self.claim.further(self.figures, cells), *chosen]

    @property
    def cpu_s(self) -> float:
        """Processor time of all runs."""
        return float(sum(one["cpu_s"] for runs in self.cells.values() for several in runs.values() for one in several))


@dataclass(frozen=True)
class StudyResults:
    """A study's config, what was chosen for its policies, and its claims' results."""

    config: GpuStudyConfig
    tuned: Tuned
    claims: Sequence[ClaimResults]

    def verdicts(self, only_worse: bool = False) -> Table:
        """Return how our policy fares. only_worse: where it is worse than another, beyond chance."""
        return verdicts([(one.claim, one.cells) for one in self.claims], only_worse)

    def tally(self) -> Table:
        """Return how often our policy is worse than another, by claim."""
        return tally([(one.claim, one.cells) for one in self.claims])

    def times(self) -> Table:
        """Return the processor time by claim."""
        table = Table(title="processor time by claim", title_justify="left")
        for column in ("claim", "runs", "minutes"):
            table.add_column(column, justify="left" if column == "claim" else "right")
        for one in self.claims:
            runs = sum(len(several) for runs in one.cells.values() for several in runs.values())
            table.add_row(one.claim.name, str(runs), f"{one.cpu_s / 60:.1f}")
        return table

    def write(self, path: Path) -> None:
        """Write them as JSON; other claims that the file has are kept if they had the same config and chosen parameters."""
        claims = {one.claim.name: _as_json(one) for one in self.claims}
        document = {"config": self.config.model_dump(mode="json"), "tuned": self.tuned.model_dump(mode="json")}
        if path.exists():
            kept = self._kept(read_json(path, "--json"))
            claims = {name: one for name in self.config.claims if (one := claims.get(name) or kept.get(name))}
        document["claims"] = claims
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_lines(document, LEVELS))

    def _kept(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of a file that had the same seeds, section of the config and chosen parameters as now."""
        now, then = json.loads(json.dumps(self.config.model_dump(mode="json"))), before.get("config", {"claims": {}})
        if {**now, "claims": {}} != {**then, "claims": {}}:
            return {}
        tuned = Tuned.model_validate(before["tuned"])
        return {
            name: one
            for name, one in before["claims"].items()
            if now["claims"].get(name) == then["claims"].get(name) and tuned.chosen(name) == self.tuned.chosen(name)
        }


def read_results(path: Path = RESULTS) -> StudyResults:
    """Return the results of a file. The claims are those of the config that is in it."""
    document = read_json(path, "the results")
    config = GpuStudyConfig.model_validate(document["config"])
    tuned = Tuned.model_validate(document["tuned"])
    claims = []
    for name, one in document["claims"].items():
        cells = {cell: {who: _rows(of["figures"]) for who, of in runs.items()} for cell, runs in one["cells"].items()}
        costs = Costs(**one["costs"]) if one.get("costs") else None
        claim = tuned.applied(config.claim(name))
        claims.append(ClaimResults(claim, one["inputs"], one["seeds"], cells, one["figures"], costs, one.get(MADE_WITH)))
    return StudyResults(config, tuned, claims)


def _as_json(one: ClaimResults) -> dict[str, Any]:
    cells = {}
    for cell, runs in one.cells.items():
        known, contenders = one.claim.known(cell), {each.name: each for each in one.claim.contenders(cell)}
        cells[cell] = {
            name: {
                "knows": shown(known[name]),
                "parameters": contenders[name].parameters,
                "figures": {key: [figures[key] for figures in several] for key in several[0]},
            }
            for name, several in runs.items()
        }
    return {
        "inputs": one.inputs,
        "published": dict(one.claim.published),
        "seeds": list(one.seeds),
        "figures": one.figures,
        "costs": asdict(one.costs) if one.costs else None,
        MADE_WITH: one.made_with,
        "cells": cells,
    }


def _rows(columns: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
