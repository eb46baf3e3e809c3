"""The study's figures as a file, `eval/results/network.json`, and the sections of docs/policies.md that follow from it."""

from eval.committed import FOLDER, Committed
from eval.network.report import Study

IMAGES = FOLDER / "images"
COMMITTED = Committed("network", "policies.md", Study.from_json)
