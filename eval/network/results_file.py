"""The study's figures as a file, `eval/results/network.json`, and the sections of docs/policies.md that follow from it."""

import json
from pathlib import Path

from eval.documents import markdown, rewritten
from eval.json_lines import json_lines
from eval.network.cells import NetworkConfig
from eval.network.report import Study

RESULTS = Path(__file__).parent.parent / "results" / "network.json"
DOCS = Path(__file__).parent.parent.parent / "docs" / "policies.md"
IMAGES = DOCS.parent / "images"


def read_results(path: Path = RESULTS) -> Study:
    """Return the study that a file holds, by the config that is in it."""
    document = json.loads(path.read_text())
    return Study(NetworkConfig.model_validate(document["config"]), document["runs"], document["bounds"])


def write_results(study: Study, path: Path) -> None:
    """Write a study's config and figures, a line per cell and contender."""
    document = {"config": study.config.model_dump(), "runs": study.runs, "bounds": study.bounds}
    path.write_text(json_lines(document, levels=3))


def current(text: str, study: Study) -> str:
    """Return a document with the study's sections as its figures are."""
    found = {f"network {name}": "\n".join(map(markdown, tables)) for name, tables in study.tables().items()}
    return rewritten(text, found)
