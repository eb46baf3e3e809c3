"""Where the sections of the docs are from: their texts by the committed figures, and what these were made with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamer.yaml_files import read_json
from eval.committed import Committed
from eval.gpu import documents, regions
from eval.gpu.results_file import RESULTS, StudyResults, read_results
from eval.machine import Machine
from eval.origin import CONFIGS
from eval.peers import results_file
from eval.peers.results_file import PeerResults
from eval.published import CONFIG, read_published
from eval.report.parts import ROOT
from eval.studies import STUDIES

NOT_RECORDED = "not recorded"
IN_THE_CODE = "constants of the command's code"


@dataclass(frozen=True)
class Origin:
    """What figures were made with.

    command: that makes them. seeds: in words. config, results: files below the root, results "" where none are committed.
    machine: on which, as the results name it.
    """

    command: str
    seeds: str = NOT_RECORDED
    config: str = IN_THE_CODE
    results: str = ""
    machine: str = NOT_RECORDED

    @property
    def rows(self) -> dict[str, str]:
        """All of it by name, code marked as such."""
        return {
            "command": f"`{self.command}`",
            "seeds": self.seeds,
            "config": ", ".join(f"`{one}`" for one in self.config.split(", ")) if self.config != IN_THE_CODE else self.config,
            "results": f"`{self.results}`" if self.results else "no committed source",
            "machine": self.machine,
        }


@dataclass(frozen=True)
class DocsSection:
    """A section of the docs. text: as the committed figures have it."""

    text: str
    origin: Origin


def below_root(path: Path) -> str:
    """Return a path as the docs write it."""
    return path.relative_to(ROOT).as_posix()


def recorded_machine(results: Path) -> str:
    """Return the machine that a results file names, in words."""
    found = read_json(results, "the results").get("machine")
    return NOT_RECORDED if found is None else str(Machine.from_json(found))


def all_sections() -> dict[str, DocsSection]:
    """Return every section that committed figures have, by its name."""
    found: dict[str, DocsSection] = {}
    for committed in STUDIES:
        found |= of_study(committed)
    found |= of_gpus() if RESULTS.exists() else {}
    return found | of_publications()


def of_study(committed: Committed[Any]) -> dict[str, DocsSection]:
    """Return the sections of a committed study, none without one."""
    study = committed.known()
    if study is None:
        return {}
    origin = Origin(
        f"python -m eval {committed.command} --docs",
        study.seeds_in_words,
        below_root(committed.config) if committed.config else IN_THE_CODE,
        below_root(committed.results),
        recorded_machine(committed.results),
    )
    return {name: DocsSection(text, origin) for name, text in committed.sections(study).items()}


def of_gpus() -> dict[str, DocsSection]:
    """Return the sections of docs/experiments/gpu.md that `eval/gpu/documents.py` writes."""
    results = read_results()
    grids = read_json(regions.RESULTS, "the results") if regions.RESULTS.exists() else {}
    peers = results_file.read_results()
    origins = {**_claims(results), **_conditions(grids), **_peers(peers)}
    return {name: DocsSection(text, origins[name]) for name, text in documents.sections(results, grids, peers).items()}


def of_publications() -> dict[str, DocsSection]:
    """Return the reasons why figures differ from published ones."""
    origin = Origin("python -m eval report --docs", "none", below_root(CONFIG), below_root(CONFIG), "none")
    return {f"report {name}": DocsSection(one.reasons, origin) for name, one in read_published().items()}


def _claims(results: StudyResults) -> dict[str, Origin]:
    config = ", ".join(below_root(CONFIGS / name) for name in ("gpu.yaml", "gpu-tuning.yaml"))
    command = "python -m eval gpu --data DIR --json eval/results/gpu.json"

    def origin(seeds: Iterable[int]) -> Origin:
        return Origin(command, _numbers(seeds), config, below_root(RESULTS))

    found = {f"gpu {one.claim.name}": origin(one.seeds) for one in results.claims}
    return found | {"gpu verdicts": origin(seed for one in results.claims for seed in one.seeds)}


def _conditions(grids: Mapping[str, Mapping[str, Any]]) -> dict[str, Origin]:
    command = "python -m eval gpu --data DIR --regions --plots docs/images"
    files = below_root(regions.CONFIG), below_root(regions.RESULTS)
    return {f"gpu conditions {name}": Origin(command, _numbers(grid["seeds"]), *files) for name, grid in grids.items()}


def _peers(peers: Mapping[str, PeerResults]) -> dict[str, Origin]:
    found = {}
    for name, one in peers.items():
        seeds = _numbers(seed for runs in one.runs.values() for _, seed in runs)
        command = f"python -m eval peers --{name} DIR --json eval/results/peers.json"
        found[f"peers {name}"] = Origin(command, seeds, below_root(CONFIGS / "peers.yaml"), below_root(results_file.RESULTS))
        found["peers agreement"] = Origin(
            "python -m eval gpu --docs",
            "those of `peers pollux` and `gpu pollux`",
            ", ".join(below_root(CONFIGS / file) for file in ("gpu.yaml", "peers.yaml")),
            below_root(results_file.RESULTS),
        )
    return found


def _numbers(seeds: Iterable[int]) -> str:
    """Return seeds in words, those without a gap as a range."""
    known = sorted(set(seeds))
    whole = known == list(range(known[0], known[-1] + 1)) and len(known) > 2
    return f"{known[0]} to {known[-1]}" if whole else ", ".join(map(str, known))
