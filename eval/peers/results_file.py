"""The file with the results of policies in peers' simulators, and the tables that follow from it alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from eval.json_lines import json_lines
from eval.peers.contender import PeerContender, PeerRun
from eval.peers.report import COMPARED, Figures, PeerFigures, by_workload, comparison, figures_of, mean, ratio
from eval.peers.runs import Result

RESULTS = Path(__file__).parent.parent / "results" / "peers.json"
LEVELS = 3  # of the document: peers, a peer, its policies: a line per policy


@dataclass(frozen=True)
class PeerResults:
    """What came of runs in a peer's simulator.

    title: of the peer. content: hash of its sources. base: the policy that ratios are to. figures: by policy, in the order of
    the table. versions: of its packages. longest_s: processor time of each policy's longest run.
    """

    title: str
    content: str
    workloads: Sequence[str]
    seeds: Sequence[int]
    base: PeerContender
    versions: Mapping[str, str]
    figures: Figures
    longest_s: Mapping[PeerContender, float]

    @classmethod
    def of(
        cls, title: str, content: str, order: Sequence[PeerContender], base: PeerContender, results: Mapping[PeerRun, Result]
    ) -> "PeerResults":
        """Return the results of runs. order: of policies."""
        figures = figures_of(results)
        longest_s: dict[PeerContender, float] = {}
        for run, result in results.items():
            longest_s[run.contender] = max(longest_s.get(run.contender, 0.0), result["cpu_s"])
        workloads, seeds = (list(dict.fromkeys(getattr(run, name) for run in results)) for name in ("workload", "seed"))
        versions = next(iter(results.values()))["versions"]
        figures = {who: figures[who] for who in sorted(figures, key=order.index)}
        return cls(title, content, workloads, seeds, base, versions, figures, longest_s)

    def tables(self) -> list[Table]:
        """Return the policies' figures over all workloads, and the ratios of mean completion times by workload."""
        title = f"{self.title}, workloads {', '.join(self.workloads)}, {len(self.seeds)} seeds"
        return [comparison(title, self.figures, self.base), by_workload(self.figures, self.base, "mean_s")]

    def as_json(self) -> dict[str, Any]:
        """Return them as plain JSON: of each policy what it is, its figures by run, its means and its ratios to the base."""
        policies = {
            who.title: {
                **who.model_dump(mode="json"),
                "means": {metric: mean(runs, metric) for metric in (*COMPARED, "restarts")},
                "ratios": {metric: asdict(ratio(self.figures, who, self.base, metric)) for metric in COMPARED},
                "longest_run_cpu_s": self.longest_s[who],
                "runs": [{"workload": workload, "seed": seed, **asdict(one)} for (workload, seed), one in runs.items()],
            }
            for who, runs in self.figures.items()
        }
        return {
            "title": self.title,
            "content": self.content,
            "workloads": list(self.workloads),
            "seeds": list(self.seeds),
            "base": self.base.title,
            "versions": dict(self.versions),
            "policies": policies,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PeerResults":
        """Return the results that a document holds."""
        figures: dict[PeerContender, dict[tuple[str, int], PeerFigures]] = {}
        longest_s: dict[PeerContender, float] = {}
        for row in document["policies"].values():
            who = PeerContender.model_validate({name: row[name] for name in PeerContender.model_fields})
            longest_s[who] = row["longest_run_cpu_s"]
            figures[who] = {
                (run["workload"], run["seed"]): PeerFigures(run["mean_s"], run["tail_s"], run["makespan_s"], run["restarts"])
                for run in row["runs"]
            }
        [base] = [who for who in figures if who.title == document["base"]]
        title, content, workloads, seeds = (document[name] for name in ("title", "content", "workloads", "seeds"))
        return cls(title, content, workloads, seeds, base, document["versions"], figures, longest_s)


def write_results(path: Path, found: Mapping[str, PeerResults]) -> None:
    """Write peers' results by name; those of other peers stay in the file."""
    before = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_lines({**before, **{name: one.as_json() for name, one in found.items()}}, LEVELS))


def read_results(path: Path = RESULTS) -> dict[str, PeerResults]:
    """Return the results of a file by peer; none without it."""
    documents = json.loads(path.read_text()) if path.exists() else {}
    return {name: PeerResults.from_json(one) for name, one in documents.items()}
