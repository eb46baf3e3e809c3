"""The tables and plots of docs/experiments/gpu.md, as the results files of `eval gpu` and `eval peers` have them.

The name of a section is, of `gpu`, a claim's, "verdicts", or "conditions CLAIM"; of `peers` a peer's, or "agreement".
"""

from collections.abc import Mapping
from pathlib import Path

from beamer.yaml_files import read_json
from eval.committed import IMAGES
from eval.documents import markdown, rewritten
from eval.gpu import agreement, regions
from eval.gpu.plots import plots
from eval.gpu.results_file import RESULTS, StudyResults, read_results
from eval.interval_plot import draw_all
from eval.peers import results_file
from eval.peers.results_file import PeerResults

DOCS = Path(__file__).parent.parent.parent / "docs" / "experiments" / "gpu.md"


def sections(
    results: StudyResults, conditions: Mapping[str, Mapping[str, object]], peers: Mapping[str, PeerResults]
) -> dict[str, str]:
    """Return the text of every section by its name."""
    found = {"gpu verdicts": "\n".join([markdown(results.verdicts(only_worse=True)), markdown(results.tally())])}
    for one in results.claims:
        found[f"gpu {one.claim.name}"] = "\n".join([f"{one.heading}.", "", *map(markdown, one.judged(results.tuned))])
    for name, grid in conditions.items():
        found[f"gpu conditions {name}"] = markdown(regions.summary(name, grid))
    for name, outcome in peers.items():
        found[f"peers {name}"] = "\n".join(map(markdown, outcome.tables()))
        for one in results.claims:
            if one.claim.name == name:
                found["peers agreement"] = markdown(agreement.table(*agreement.agreements(one, outcome)))
    return found


def current(text: str, results: Path = RESULTS, conditions: Path = regions.RESULTS, peers: Path = results_file.RESULTS) -> str:
    """Return a document with its sections as the results files have them."""
    grids = read_json(conditions, "the results") if conditions.exists() else {}
    return rewritten(text, sections(read_results(results), grids, results_file.read_results(peers)))


def draw(folder: Path = IMAGES, results: Path = RESULTS, peers: Path = results_file.RESULTS) -> list[Path]:
    """Draw the plots and maps that the results files have into PNG files of a folder; return their paths."""
    maps = read_json(regions.RESULTS, "the results") if regions.RESULTS.exists() else {}
    for name, found in maps.items():
        regions.save(found, folder / f"gpu-regions-{name}.png")
    drawn = [folder / f"gpu-regions-{name}.png" for name in maps]
    return drawn + draw_all(plots(read_results(results), results_file.read_results(peers)), folder)
