"""The list of mutants: how it is drawn, stored and applied."""

import random
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.mutation.operators import applied, differs, mutations
from tests.support.checkout import ROOT

SEED = 35
COUNT = 40
LIST = Path(__file__).with_name("mutants.tsv")
PACKAGES = ("controller", "hostagent", "topologies")  # one stratum each; of `beamer` every subpackage is one
_COLUMNS = ("number", "path", "line", "operator", "before", "after")


@dataclass(frozen=True)
class Mutant:
    """One change of one line of a product module."""

    number: int
    path: str
    line: int
    operator: str
    before: str
    after: str


class ChangedLineError(Exception):
    """A listed line is not in its file any more, or is there more than once elsewhere."""


def strata() -> dict[str, list[Path]]:
    """Return the product modules of each package.

    `beamer.testing` is left out: a weaker assertion in a suite fails no test.
    """
    modules: dict[str, list[Path]] = {}
    for path in sorted(path for folder in ("beamer", *PACKAGES) for path in (ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        stratum = "/".join(parts[:2]) if parts[0] == "beamer" and len(parts) > 2 else parts[0]
        if "testing" not in parts:
            modules.setdefault(stratum, []).append(path)
    return modules


def quotas(sizes: dict[str, int], count: int) -> dict[str, int]:
    """Share a count by size, at least one each, the rest by largest remainder."""
    shares = {name: max(1.0, count * size / sum(sizes.values())) for name, size in sizes.items()}
    given = {name: int(share) for name, share in shares.items()}
    order = sorted(shares, key=lambda name: (given[name] - shares[name], name))
    while sum(given.values()) < count:
        given[order.pop(0)] += 1
    while sum(given.values()) > count:
        most = max(given, key=lambda name: (given[name] - shares[name], given[name], name))
        given[most] -= 1
    return given


def draw() -> list[Mutant]:
    """Draw the mutants of this tree: a line of a stratum first, so that long modules weigh more; then a change of it.

    No module is drawn twice. Each stratum has its own generator, so a change in one package leaves the others' draws.
    """
    modules = strata()
    sizes = {name: sum(len(path.read_text("utf-8").splitlines()) for path in paths) for name, paths in modules.items()}
    drawn: list[Mutant] = []
    for name, quota in quotas(sizes, COUNT).items():
        generator = random.Random(f"{SEED}:{name}")
        sources = {path: path.read_text("utf-8") for path in modules[name]}
        found = {path: mutations(source) for path, source in sources.items()}
        lines = sorted({(path, mutation.line) for path, listed in found.items() for mutation in listed})
        generator.shuffle(lines)
        used: set[Path] = set()
        for path, line in lines:
            if len(used) < quota and path not in used:
                chosen = generator.choice([mutation for mutation in found[path] if mutation.line == line])
                if differs(sources[path], chosen):
                    used.add(path)
                    drawn.append(Mutant(len(drawn) + 1, path.relative_to(ROOT).as_posix(), *astuple(chosen)))
    return drawn


def write(mutants: Iterable[Mutant], commit: str) -> None:
    """Store the list as text, one mutant a line."""
    rows = ["\t".join(str(value) for value in astuple(mutant)) for mutant in mutants]
    LIST.write_text("\n".join([f"# seed {SEED}, drawn from {commit}", "\t".join(_COLUMNS), *rows]) + "\n", "utf-8")


def read() -> list[Mutant]:
    """Return the stored list."""
    rows = [line.split("\t") for line in LIST.read_text("utf-8").splitlines()[2:]]
    return [Mutant(int(row[0]), row[1], int(row[2]), *row[3:]) for row in rows]


def mutated(mutant: Mutant, source: str) -> str:
    """Return a module's text with the change made; where lines have moved, in the one line that still reads the same."""
    same = [number for number, text in enumerate(source.splitlines(), 1) if text.strip() == mutant.before]
    if mutant.line in same:
        same = [mutant.line]
    if len(same) != 1:
        found = f"{len(same)} lines read so" if same else "no line reads so"
        raise ChangedLineError(f"{mutant.path}:{mutant.line} has changed: expected {mutant.before!r}, {found}")
    return applied(source, same[0], mutant.after)
