"""What is wrong or missing in a run of both levels, and that such a run ends as a plain one does."""

from functools import partial
from random import Random

import pytest

from beamer.errors import InputError
from beamer.gpu.policies import gpu_policy
from beamer.network.allocation import Classes
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import network_policy
from beamer.sim.joint import JointRun, simulate_scenario
from beamer.sim.network_level import Assumptions, NetworkLevel
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import two_spines
from beamer.workloads.joint import parse
from eval.joint.disturbances import Disturbances, DisturbedEngine

LEAVES = two_spines(hosts_per_leaf=3)
SEARCH = {
    "request": {"gpus": 4},
    "job": {"bytes": 1_000_000, "compute_s": 0.3},
    "curves": {"trials": 4, "start": 2.3, "floor": [0.1, 1.5], "half": [3, 20]},
    "rungs": [{"iterations": 12, "keep": 2}, {"iterations": 24}],
}
SCENARIO = parse(
    {
        "name": "disturbed",
        "topology": {"shape": "leaf-spine", "leaves": 2, "hosts_per_leaf": 3, "spines": 2, "rate": "20mbit"},
        "gpus_per_host": 2,
        "report_s": 0.5,
        "searches": [{"name": name, **SEARCH} for name in ("a", "b")],
    }
)


def test_bytes_are_off_by_study_and_so_many_reports_are_lost() -> None:
    off = Disturbances(bytes_off=2.0, reports_lost=0.3)
    ledger = NetworkLedger(LEAVES)
    level = NetworkLevel(Tracker(ledger), ledger, network_policy("fair"), Random(0), Assumptions(), Classes())
    engine = DisturbedEngine(level, (), {}, lambda key: 1, 1.0, lambda: None, disturbances=off, seed=0)
    sent = [engine.sent_bytes(f"s{i}/t0", 1000) for i in range(200)]
    assert set(sent) == {500, 2000}
    assert sent == [engine.sent_bytes(f"s{i}/t1", 1000) for i in range(200)]
    assert sum(engine.loses_report() for _ in range(2000)) == pytest.approx(600, abs=80)


def test_disturbances_that_cannot_be_are_named() -> None:
    for wrong, field in (({"bytes_off": 0.5}, "bytes_off"), ({"reports_lost": 1.0}, "reports_lost")):
        with pytest.raises(InputError, match=field):
            Disturbances(**wrong)
    with pytest.raises(InputError, match="cable: got -1"):
        Disturbances(cable=(-1.0, "l1", "s1"))
    with pytest.raises(InputError, match=r"cable: got \('l1', 'l2'\), expected two nodes with a cable between them"):
        Disturbances(cable=(0.0, "l1", "l2")).check_cable(LEAVES)


def test_a_disturbed_run_ends_with_the_same_winners_and_a_dead_cable_carries_nothing_more() -> None:
    def run(disturbances: Disturbances) -> JointRun:
        made = partial(DisturbedEngine, disturbances=disturbances, seed=0)
        return simulate_scenario(SCENARIO, gpu_policy("fifo"), network_policy("beamer"), make_engine=made)

    plain = simulate_scenario(SCENARIO, gpu_policy("fifo"), network_policy("beamer"))
    assert run(Disturbances()) == plain
    for disturbances in (Disturbances(bytes_off=3.0), Disturbances(reports_lost=0.5), Disturbances(cable=(0.0, "l1", "s1"))):
        found = run(disturbances)
        assert found != plain
        assert {each.key: each.status for each in found.jobs} == {each.key: each.status for each in plain.jobs}
    assert plain.link_bytes["l1-s1"] > 0
    assert found.link_bytes["l1-s1"] == found.link_bytes["s1-l1"] == 0
