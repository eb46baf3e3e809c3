"""What all GPU policies have in common: parameters out of bounds are refused by name, and jobs that have done all are borne."""

from math import inf, nan
from random import Random
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.gpu.model import Cluster, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from tests.support.jobs import known_job

BAD: dict[str, dict[str, tuple[Any, ...]]] = {
    "round-robin": {"quantum_s": (0.0, nan, inf, 1e-12, 1e18)},
    "srtf": {"hysteresis": (-0.1, nan)},
    "tiresias": {"limits_gpu_s": ((10.0, 5.0), (5.0, 5.0), (0.0,), (nan,), (inf,)), "promote": (-1.0, nan)},
    "hermes": {
        "window": (0,),
        "norm": ("last",),
        "hysteresis": (-0.1, nan),
        "quantum_s": (-1.0, nan, inf),
        "quantum_costs": (-1.0, nan, inf),
    },
    "elastic": {"margin": (-1.0, nan, inf)},
    "termination": {"margin": (-1.0, nan, inf)},
    "ones": {
        "population": (0,),
        "generations": (0,),
        "mutation": (-0.1, 1.1, nan),
        "protected_epochs": (-1.0, nan),
        "settled_epochs": (-1.0, nan),
        "hysteresis": (-0.1, 1.1, nan),
        "interval_s": (-1.0, nan, inf),
    },
    "pollux": {
        "interval_s": (0.0, nan, 1e-12, 1e18),
        "p": (1.1, nan, -inf),
        "growth": (0,),
        "batch_change_gain": (-0.1, nan, inf),
    },
    "drf": {"interval_s": (0.0, nan, 1e-12, 1e18), "patience_s": (-1.0, nan)},
    "optimus": {
        "interval_s": (0.0, nan),
        "patience_s": (-1.0, nan),
        "threshold": (-0.1, nan),
        "servers_per_gpu": (0.0, nan, inf),
    },
    "slaq": {"epoch_s": (0.0, inf, 1e-12, 1e18), "patience_s": (-1.0, nan), "decay": (0.0, 1.1, nan)},
    "tetris": {"weight": (-1.0, nan, inf)},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "srtf": {"hysteresis": 0.0},
    "tiresias": {"limits_gpu_s": (), "promote": 0.0},
    "hermes": {"window": 1, "hysteresis": inf, "quantum_s": 0.0},
    "elastic": {"margin": 0.0},
    "ones": {
        "population": 1,
        "generations": 1,
        "mutation": 1.0,
        "protected_epochs": 0.0,
        "settled_epochs": 0.0,
        "interval_s": 0.0,
    },
    "pollux": {"p": 1.0, "growth": 1, "batch_change_gain": 0.0},
    "optimus": {"patience_s": inf, "threshold": 0.0},
    "slaq": {"patience_s": 0.0, "decay": 1.0},
    "tetris": {"weight": 0.0},
}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [(name, field, value) for name, fields in BAD.items() for field, values in fields.items() for value in values],
)
def test_parameters_out_of_bounds_are_refused_by_name(name: str, field: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^{field}: got "):
        gpu_policy(name, **{field: value})


@pytest.mark.parametrize(("name", "parameters"), BOUNDS.items())
def test_bounds_themselves_are_allowed(name: str, parameters: dict[str, Any]) -> None:
    policy = gpu_policy(name, **parameters)
    assert {field: getattr(policy, field) for field in parameters} == parameters


@pytest.mark.parametrize("target", [None, 0.5])
@pytest.mark.parametrize("name", GPU_POLICIES)
def test_policies_decide_on_jobs_that_have_done_all_and_are_still_there(name: str, target: float | None) -> None:
    cluster = Cluster((Node("n", 1),))
    held = Grant.of({"n": 1})

    def job(number: int, done: float, loss: float) -> Job:
        request = Request(iterations=40, epoch=2, batch_size=64, target_loss=target)
        reports = tuple(Report(i, done * i / 20, 2.0 - (2.0 - loss) * i / 20, i) for i in range(21)) if done else ()
        speeds = (Speed(1, 1, 0, 64, 0.02),) if done else ()
        grant = None if number else held
        return known_job(f"s/{number}", request, 0.0, Stage("s", "r", 6, 2), reports, speeds, grant, grant)

    facts = [(40, 0.5), (20, 0.8), (0, 0.0), (40, 1.5), (45, 0.1), (10, 0.9), (40, 0.4), (41, 0.3), (40, 0.2)]
    jobs = [job(number, *fact) for number, fact in enumerate(facts)]
    policy = gpu_policy(name)
    _, allocation, _ = policy.allocate(policy.initial(), cluster, jobs, 30.0, Random(1))
    check_allocation(cluster, jobs, allocation)
    assert len(allocation) <= 1
