"""The file with the results of policies in peers' simulators, and the tables that follow from it alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from eval.json_lines import ALL_DIGITS, json_lines
from eval.peers.contender import PeerContender, PeerRun
from eval.peers.report import PeerFigures, by_workload, comparison
from eval.peers.runs import FinishedRun

RESULTS = Path(__file__).parent.parent / "results" / "peers.json"
LEVELS = 3  # of the document: peers, a peer, its policies: a line per policy


@dataclass(frozen=True)
class PeerResults:
    """What came of runs in a peer's simulator.

    title: of the peer. content: hash of its sources. base: the policy that ratios are to. runs: by policy, in the order of the
    table, then by workload and seed.
    """

    title: str
    content: str
    base: PeerContender
    runs: Mapping[PeerContender, Mapping[tuple[str, int], FinishedRun]]

    @classmethod
    def of(
        cls, title: str, content: str, order: Sequence[PeerContender], base: PeerContender, made: Mapping[PeerRun, FinishedRun]
    ) -> "PeerResults":
        """Return the results of runs. order: of policies."""
        runs: dict[PeerContender, dict[tuple[str, int], FinishedRun]] = {}
        for run, finished in made.items():
            runs.setdefault(run.contender, {})[run.workload, run.seed] = finished
        return cls(title, content, base, {who: runs[who] for who in sorted(runs, key=order.index)})

    @property
    def figures(self) -> dict[PeerContender, dict[tuple[str, int], PeerFigures]]:
        """The figures of the runs."""
        return {who: {run: one.figures for run, one in several.items()} for who, several in self.runs.items()}

    @property
    def known(self) -> dict[str, FinishedRun]:
        """The runs by their keys."""
        return {one.key: one for several in self.runs.values() for one in several.values()}

    def tables(self) -> list[Table]:
        """Return the policies' figures over all workloads, and the ratios of mean completion times by workload."""
        workloads, seeds = (list(dict.fromkeys(column)) for column in zip(*self.runs[self.base], strict=True))
        title = f"{self.title}, workloads {', '.join(map(str, workloads))}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        return [comparison(title, self.figures, self.base), by_workload(self.figures, self.base, "mean_s")]

    def as_json(self) -> dict[str, Any]:
        """Return them as plain JSON: of each policy what it is, and its runs."""
        policies = {
            who.title: {
                **who.model_dump(mode="json"),
                "runs": [
                    {"workload": workload, "seed": seed, **asdict(one.figures)}
                    | {"key": one.key, "random": one.random, "cpu_s": one.cpu_s}
                    for (workload, seed), one in several.items()
                ],
            }
            for who, several in self.runs.items()
        }
        versions = next(iter(self.known.values())).versions
        return {
            "title": self.title,
            "content": self.content,
            "base": self.base.title,
            "versions": dict(versions),
            "policies": policies,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PeerResults":
        """Return the results that a document holds."""
        runs: dict[PeerContender, dict[tuple[str, int], FinishedRun]] = {}
        for row in document["policies"].values():
            who = PeerContender.model_validate({name: row[name] for name in PeerContender.model_fields})
            runs[who] = {
                (one["workload"], one["seed"]): FinishedRun(
                    one["key"],
                    PeerFigures(one["mean_s"], one["tail_s"], one["makespan_s"], one["restarts"]),
                    one["random"],
                    one["cpu_s"],
                    document["versions"],
                )
                for one in row["runs"]
            }
        [base] = [who for who in runs if who.title == document["base"]]
        return cls(document["title"], document["content"], base, runs)


def write_results(path: Path, found: Mapping[str, PeerResults]) -> None:
    """Write peers' results by name; those of other peers stay in the file."""
    before = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_lines({**before, **{name: one.as_json() for name, one in found.items()}}, LEVELS, ALL_DIGITS))


def read_results(path: Path = RESULTS) -> dict[str, PeerResults]:
    """Return the results of a file by peer; none without it."""
    documents = json.loads(path.read_text()) if path.exists() else {}
    return {name: PeerResults.from_json(one) for name, one in documents.items()}
