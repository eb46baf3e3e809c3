"""The file with the results of policies in peers' simulators, and the tables that follow from it alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from beamer.errors import InputError
from beamer.yaml_files import read_json
from eval.json_lines import ALL_DIGITS, json_lines
from eval.peers.contender import PeerContender, PeerRun
from eval.peers.report import PeerFigures, by_workload, comparison
from eval.peers.runs import FinishedRun

RESULTS = Path(__file__).parent.parent / "results" / "peers.json"
LEVELS = 3  # Levels of the document: peers, a peer, its policies; a policy has a line.


@dataclass(frozen=True)
class PeerResults:
    """What came of runs in a peer's simulator.

    title: of the peer. content: hash of its sources. settings: of all runs, by name. base: the policy that ratios are to.
    runs: by policy, in the order of the table, then by workload and seed.
    """

    title: str
    content: str
    settings: Mapping[str, Any]
    base: PeerContender
    runs: Mapping[PeerContender, Mapping[tuple[str, int], FinishedRun]]

    @classmethod
    def of(
        cls,
        title: str,
        content: str,
        settings: Mapping[str, Any],
        order: Sequence[PeerContender],
        base: PeerContender,
        made: Mapping[PeerRun, FinishedRun],
    ) -> "PeerResults":
        """Return the results of runs. order: of policies."""
        runs: dict[PeerContender, dict[tuple[str, int], FinishedRun]] = {}
        for run, finished in sorted(made.items(), key=lambda one: (one[0].workload, one[0].seed)):
            runs.setdefault(run.contender, {})[run.workload, run.seed] = finished
        return cls(title, content, settings, base, {who: runs[who] for who in sorted(runs, key=order.index)})

    @property
    def figures(self) -> dict[PeerContender, dict[tuple[str, int], PeerFigures]]:
        """The figures of the runs."""
        return {who: {run: one.figures for run, one in several.items()} for who, several in self.runs.items()}

    @property
    def known(self) -> dict[str, FinishedRun]:
        """The runs by their keys."""
        return {one.key: one for several in self.runs.values() for one in several.values()}

    @property
    def compared(self) -> dict[PeerContender, dict[tuple[str, int], PeerFigures]]:
        """The figures of the base's runs, by policy; policies without all of these runs are left out."""
        pairs = self.runs[self.base].keys()
        return {who: {pair: of[pair] for pair in pairs} for who, of in self.figures.items() if pairs <= of.keys()}

    def tables(self) -> list[Table]:
        """Return the policies' figures over all workloads, and the ratios of mean completion times by workload."""
        workloads, seeds = (list(dict.fromkeys(column)) for column in zip(*self.runs[self.base], strict=True))
        title = f"{self.title}, workloads {', '.join(map(str, workloads))}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        return [comparison(title, self.compared, self.base), by_workload(self.compared, self.base, "mean_s")]

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
        versions: dict[str, set[str]] = {}
        for one in self.known.values():
            for package, version in one.versions.items():
                versions.setdefault(package, set()).add(version)
        return {
            "title": self.title,
            "content": self.content,
            "settings": dict(self.settings),
            "base": self.base.title,
            "versions": {package: ", ".join(sorted(several)) for package, several in versions.items()},
            "policies": policies,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PeerResults":
        """Return the results that a document holds. Raises `KeyError`, `TypeError` or `ValueError` for another document."""
        runs: dict[PeerContender, dict[tuple[str, int], FinishedRun]] = {}
        for row in document["policies"].values():
            who = PeerContender.model_validate({name: row[name] for name in PeerContender.model_fields if name in row})
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
        return cls(document["title"], document["content"], document["settings"], base, runs)


def write_results(path: Path, found: Mapping[str, PeerResults]) -> None:
    """Write peers' results by name; those of other peers stay in the file."""
    documents = {name: one.as_json() for name, one in {**read_results(path), **found}.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_lines(documents, LEVELS, ALL_DIGITS))


def read_results(path: Path = RESULTS) -> dict[str, PeerResults]:
    """Return the results of a file by peer; none without it. Raises `InputError` for a file with something else."""
    if not path.exists():
        return {}
    document = read_json(path, "--json")
    try:
        return {name: PeerResults.from_json(one) for name, one in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError("--json", str(path), "a file that `python -m eval peers` has written, or none") from error
