"""The search that the tests of `beamer schedule` have in common, and what is changed in it."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

SEARCH: dict[str, Any] = {
    "name": "s",
    "nodes": [{"name": "n", "gpus": 2}],
    "job": {
        "command": ["{python}", "train.py", "--lr", "{lr}", "--until", "{iterations}", 7],
        "cwd": "code",
        "env": {"OUT": "{name}.log", "THREADS": 1},
        "request": {"iterations": 20, "gpus": 1, "epoch": 2, "batch_size": "{batch}"},
    },
    "configurations": [{"lr": 0.1, "batch": 32}, {"name": "slow", "lr": 0.001, "batch": 64}],
}
BASE = Path("/base")


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Return the search as a file's content, changed."""
    data = deepcopy(SEARCH)
    change(data)
    return data


def set_request(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """Return the change of one key of what jobs request."""
    return lambda d: d["job"]["request"].update({key: value})
