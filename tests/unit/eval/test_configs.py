"""Configs of experiments and files of results: each key once, numbers of YAML 1.2, and parameters kept as they are."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from beamer.errors import InputError
from eval import published
from eval.asynchronous.command import ASYNCHRONOUS
from eval.committed import CONFIGS
from eval.configured_policy import configured_policy
from eval.emulation import emulation
from eval.gpu import documents, regions, restart_costs, results_file, study, tuning
from eval.gpu.claims import GpuContender
from eval.joint.command import JOINT
from eval.loss_noise.command import LOSS_NOISE
from eval.network.command import NETWORK
from eval.noise.command import NOISE
from eval.peers import command as peers
from eval.peers import results_file as peers_file
from eval.rates.command import RATES
from eval.report import exhibits, origins
from eval.trials.command import TRIALS

READERS: dict[str, Callable[[Path], object]] = {
    "asynchronous": ASYNCHRONOUS.read_config,
    "emulation": lambda path: emulation(config_file=path),
    "gpu": study.read,
    "gpu-regions": regions.read,
    "gpu-tuning": tuning.read,
    "joint": JOINT.read_config,
    "loss-noise": LOSS_NOISE.read_config,
    "network": NETWORK.read_config,
    "noise": NOISE.read_config,
    "peers": peers.read,
    "published": published.read_published,
    "rates": RATES.read_config,
    "report": exhibits.read_config,
    "trials": TRIALS.read_config,
}


@pytest.mark.parametrize("name", READERS)
def test_a_config_has_every_key_once(name: str, tmp_path: Path) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text()
    key = next(line.partition(":")[0] for line in text.splitlines() if line[:1].isalpha())
    path = tmp_path / "config.yaml"
    path.write_text(f"{text}\n{key}: 1\n")
    with pytest.raises(InputError, match=rf"got '{path}', expected .*'{key}' on line \d+ and '{key}' on line \d+ are one key"):
        READERS[name](path)


def test_a_truth_value_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    text = (CONFIGS / "gpu.yaml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("seeds:"))
    path.write_text(text.replace(line, "seeds: true", 1))
    with pytest.raises(ValidationError, match="a number, not true or false"):
        study.read(path)


RESULTS: dict[str, Callable[[Path], object]] = {
    "committed": lambda path: NETWORK.committed.read(path),
    "conditions": lambda path: documents.current("", conditions=path),
    "gpu": results_file.read_results,
    "machine": origins.recorded_machine,
    "peers": peers_file.read_results,
    "restart costs": restart_costs.recorded_costs,
    "tuning": tuning.read_chosen,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_file_of_results_has_every_key_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"runs": {},\n"runs": {}}')
    with pytest.raises(InputError, match=rf"got '{path}', expected .*'runs' on line 1 and 'runs' on line 2 are one key"):
        RESULTS[name](path)


def test_an_infinite_parameter_is_the_same_after_it_was_saved() -> None:
    one = GpuContender(policy="hermes", parameters={"patience_s": math.inf})
    kept = json.loads(json.dumps(one.model_dump(mode="json")))
    assert GpuContender.model_validate(kept) == one
    assert GpuContender.model_validate_json(one.model_dump_json()) == one
    assert GpuContender.model_validate(kept).build() == configured_policy("hermes", {"patience_s": math.inf})
    other = GpuContender(policy="hermes", parameters={"patience_s": 1e9})
    assert json.dumps(other.model_dump(mode="json")) != json.dumps(one.model_dump(mode="json")), "their runs are others"


@pytest.mark.parametrize(
    ("policy", "parameters", "said"),
    [
        ("hermes", {"patience_s": None}, r"hermes\.patience_s: got None, expected a number"),
        ("hermes", {"patience_s": ".inf"}, r"hermes\.patience_s: got '\.inf', expected a number"),
        ("hermes", {"patience_s": True}, r"hermes\.patience_s: got True, expected a number"),
        ("hermes", {"patience_s": math.nan}, r"patience_s: got nan, expected a number above 0"),
        ("hermes", {"window": 2.5}, r"hermes\.window: got 2\.5, expected a whole number"),
        ("hermes", {"norm": 3}, r"hermes\.norm: got 3, expected a text"),
        ("hermes", {"windw": 3}, r"hermes\.windw: got 3, expected .*did you mean 'window'"),
        ("hermez", {"window": 3}, r"policy: got 'hermez', expected .*did you mean 'hermes'"),
    ],
)
def test_a_parameter_of_another_type_is_named(policy: str, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        GpuContender(policy=policy, parameters=parameters).build()


@pytest.mark.parametrize("value", [".inf", ".nan", "[1, -.INF]"])
def test_a_parameter_that_a_peers_run_cannot_keep_is_named(value: str, tmp_path: Path) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text(
        "gavel:\n  workloads: [a]\n  seeds: 1\n  first_seed: 1\n  nodes: 1\n  gpus: 1\n  interval_s: 60\n  base: x\n"
        "  work: {jobs: 1, between_arrivals_s: 1}\n  policies:\n"
        f"  - {{policy: hermes, parameters: {{patience_s: {value}}}}}\n"
    )
    with pytest.raises(InputError, match=r"gavel\.policies.*hermes\.patience_s: got .*(inf|nan).*, expected finite numbers"):
        peers.read(path)
