"""A study's runs are made by a Ray cluster, and are what processes of this machine make of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.joint.command import JOINT
from tests.support.checkout import ROOT

pytest.importorskip("ray", reason="ray is not installed: the extra `ray`")
pytestmark = pytest.mark.timeout(400)


def small(folder: Path) -> Path:
    """Write the config of a study of four runs."""
    content = yaml.safe_load(JOINT.config_file.read_text())
    content |= {"seeds": 2, "gpu_policies": ["fifo"], "network_policies": ["fair", "beamer"], "cells": {"few": {"searches": 2}}}
    for table in ("parts", "resizing", "robustness"):
        content[table]["cells"] = []
    content["cells_of_parts"] = {}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def study(folder: Path, *options: str) -> dict[str, Any]:
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "eval", "joint", "--config", str(small(folder)), "--json", "joint.json", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "joint.json").read_text())
    return found


@pytest.mark.long
def test_a_cluster_makes_the_same_runs(tmp_path: Path) -> None:
    here = study(tmp_path / "here")
    there = study(tmp_path / "there", "--ray", "local")
    assert there["runs"] == here["runs"]
    assert len(here["runs"]["few"]["fifo + beamer"]) == 2
