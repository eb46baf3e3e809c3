"""The table of disturbed searches, for docs/experiments/engines.md."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

from eval.committed import Committed
from eval.engines.experiment import EngineOutcome
from eval.engines.search import DisturbedSearch, Sizes

COLUMNS = ("launches", "ports taken", "ranks killed", "runs failed", "lines refused", "s", "winner", "differences")


@dataclass(frozen=True)
class EngineStudy:
    """What came of a search under each policy. sizes, seed: of the search."""

    sizes: Sizes
    seed: int
    outcomes: tuple[EngineOutcome, ...]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "EngineStudy":
        """Return the study that a file's content is of."""
        rungs = tuple((iterations, keep) for iterations, keep in document["sizes"]["rungs"])
        outcomes = tuple(EngineOutcome(**{**one, "failures": tuple(one["failures"])}) for one in document["outcomes"].values())
        return cls(Sizes(**{**document["sizes"], "rungs": rungs}), document["seed"], outcomes)

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        outcomes = {one.policy: one.as_json() for one in self.outcomes}
        return {"sizes": asdict(self.sizes), "seed": self.seed, "outcomes": outcomes}

    @property
    def seeds_in_words(self) -> str:
        """The seed of its search, in words."""
        return str(self.seed)

    def tables(self) -> dict[str, list[Table]]:
        """Return the table by the name of its section: a row per policy."""
        winner = DisturbedSearch(self.sizes, self.seed).winner
        title = f"{self.sizes.sound} sound configurations, of which {winner} wins undisturbed"
        made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        made.add_column("policy")
        for heading in COLUMNS:
            made.add_column(heading, justify="right")
        for one in self.outcomes:
            counts = (one.launches, one.taken, one.killed, one.failed_runs, one.refused)
            made.add_row(one.policy, *map(str, counts), f"{one.elapsed_s:.0f}", one.winner, str(len(one.failures)))
        return {"disturbed": [made]}


COMMITTED = Committed("engines", "experiments/engines.md", EngineStudy.from_json)
