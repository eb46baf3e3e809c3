"""Costs that were recorded."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.gpu.model import Costs
from eval.gpu import restart_costs as module
from eval.gpu.processes import TRAINERS
from eval.gpu.restart_costs import RECORDED, recorded_costs, restart_costs


def measurement(trainer: str, restart_s: float) -> Mapping[str, Any]:
    restarts = [
        {"before": before, "after": after, "restart": {"p50_s": seconds}}
        for before, after, seconds in ((2, 2, restart_s), (1, 4, 2 * restart_s))
    ]
    return {"trainer": trainer, "ranks": 2, "suspend": {"p50_s": 0.004}, "resume": {"p50_s": 0.003}, "restarts": restarts}


def written(folder: Path, *found: Mapping[str, Any]) -> Path:
    path = folder / "processes.json"
    path.write_text(json.dumps({"machine": {"processor": "some processor", "cores": 2}, "measurements": found}))
    return path


def test_they_are_the_medians_of_the_job_of_two_ddp_ranks(tmp_path: Path) -> None:
    found = [measurement("numpy", 0.3), *(measurement("ddp", restart_s) for restart_s in (3.0, 5.0, 4.0))]
    measured = recorded_costs(written(tmp_path, *found))
    assert measured.costs == Costs(0.004, 0.003, 4.0)
    for part in ("PyTorch DDP", "2 ranks on 2 cores (some processor)", "recorded in processes.json", "restart 4.00 s"):
        assert part in measured.source


def test_those_of_another_trainer_are_never_taken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ddp"):
        recorded_costs(written(tmp_path, measurement("numpy", 0.3)))


def test_without_pytorch_the_recorded_ones_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {name: replace(trainer, package="a_package_that_does_not_exist") for name, trainer in TRAINERS.items()}
    monkeypatch.setattr(module, "TRAINERS", absent)
    path = written(tmp_path, measurement("ddp", 4.0))
    assert restart_costs(path) == recorded_costs(path)


def test_what_is_committed_can_be_read() -> None:
    costs = recorded_costs(RECORDED).costs
    assert 0 < costs.suspend_s < costs.restart_s
