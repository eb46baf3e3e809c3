"""The program that trains on real packets: what it is given, in which order it sees samples, and what resizing changes."""

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamer.engines.profiles import DataParallelProfile
from beamer.schedule.file import parse
from beamer.workloads.joint import JointScenario, load, shipped
from beamer.workloads.programs import PROGRAMS, VALUE_BYTES, digits_hidden, digits_values
from beamer.workloads.scenario import TransportSettings
from tests.support.tiers import long
from tests.support.training import launched, needs_pytorch, trained
from topologies.emulation.digits_data import TRAINING, batch, seed_of
from topologies.emulation.gloo import group_rank, interface_towards
from topologies.emulation.network import route_metrics
from topologies.emulation.searches import SEARCH_PROGRAMS, HostEntry, search_file, with_stand_ins

TRAINED = shipped().with_name("digits.yaml")
BATCH = PROGRAMS["digits"].batch_size


@pytest.fixture
def scenario() -> JointScenario:
    return load(TRAINED)


def content_of(scenario: JointScenario, number: int) -> dict[str, Any]:
    hosts = {node.name: HostEntry(f"10.0.0.{i + 1}", 100 + i) for i, node in enumerate(scenario.nodes)}
    return search_file(scenario.searches[number], scenario.nodes, hosts, TransportSettings(), Path("/data.npz"))


def test_every_program_of_a_scenario_has_a_command() -> None:
    assert SEARCH_PROGRAMS.keys() == PROGRAMS.keys()


@pytest.mark.parametrize("number", range(3))
def test_a_search_file_gives_each_trial_its_configuration(scenario: JointScenario, number: int, tmp_path: Path) -> None:
    plan = scenario.searches[number]
    search = parse(content_of(scenario, number), tmp_path)
    for name, job in search.jobs.items():
        assert job.request == plan.trials[name].request
        launch = job.launches[plan.rungs[0].step]
        assert launch.command[:3] == (sys.executable, "-m", "topologies.emulation.digits")
        given = dict(zip(launch.command[3::2], launch.command[4::2], strict=True))
        configuration = plan.configurations[name]
        assert float(given["--learning-rate"]) == configuration["learning_rate"]
        assert float(given["--momentum"]) == configuration["momentum"]
        assert int(given["--channels"]) == configuration["channels"]
        values = digits_values(int(given["--channels"]), int(given["--hidden"]))
        wanted = job.request.traffic.sync_bytes
        assert wanted is not None
        assert 0.98 * wanted < VALUE_BYTES * values <= wanted
        assert launch.batch_size == BATCH


@pytest.mark.parametrize("channels", [1, 8, 64])
def test_the_hidden_layer_is_the_largest_that_fits(channels: int) -> None:
    for sync_bytes in (400_000, 600_001, 999_999):
        hidden = digits_hidden(channels, sync_bytes)
        assert VALUE_BYTES * digits_values(channels, hidden) <= sync_bytes < VALUE_BYTES * digits_values(channels, hidden + 1)


def test_the_stand_in_runs_what_cannot_be_run_here(scenario: JointScenario) -> None:
    same, nothing = with_stand_ins(scenario, lambda module: True)
    assert (same, nothing) == (scenario, ())
    replaced, (line,) = with_stand_ins(scenario, lambda module: module != "torch")
    assert line == "stand-in runs in place of digits, which needs torch: pip install 'beamer-scheduler[digits]'"
    assert [plan.trials for plan in replaced.searches] == [plan.trials for plan in scenario.searches]
    content = content_of(replaced, 0)
    assert content["job"]["command"][2] == "topologies.emulation.program"
    for configuration, job in zip(content["configurations"], scenario.searches[0].trials.values(), strict=True):
        assert isinstance(job.profile, DataParallelProfile)
        assert {key: configuration[key] for key in ("start", "floor", "half")} == {
            key: getattr(job.profile.loss, key) for key in ("start", "floor", "half")
        }


def test_every_turn_shows_every_sample_once_in_another_order() -> None:
    iterations = 3 * TRAINING // BATCH + 1
    seen = np.concatenate([batch(7, iteration, BATCH) for iteration in range(iterations)])
    turns = [seen[turn * TRAINING : (turn + 1) * TRAINING] for turn in range(3)]
    for turn in turns:
        assert sorted(turn) == list(range(TRAINING))
    assert not (turns[0] == turns[1]).all()
    assert (batch(7, 40, BATCH) == batch(7, 40, BATCH)).all()
    assert not (batch(7, 40, BATCH) == batch(8, 40, BATCH)).all()
    assert seed_of(0.1, 0.9, 8) == seed_of(0.1, 0.9, 8) != seed_of(0.1, 0.9, 4)


@pytest.mark.parametrize("world", [1, 2, 5])
def test_a_group_counts_backwards_from_rank_0(world: int) -> None:
    numbers = [group_rank(rank, world) for rank in range(world)]
    assert numbers[0] == 0
    assert sorted(numbers) == list(range(world))
    for rank, number in enumerate(numbers):  # gloo sends to the number before, which is to be the next rank
        assert numbers[(rank + 1) % world] == (number - 1) % world


def test_the_interface_is_that_of_the_address() -> None:
    assert interface_towards("127.0.0.1") == "lo"


def test_a_route_has_what_sockets_that_nobody_prepares_need() -> None:
    metrics = route_metrics(TransportSettings(congestion_control="cubic", window_bytes=262144, rto_min_s=0.5))
    assert metrics == ("rto_min", "500ms", "congctl", "cubic", "window", "262140")


OPTIONS: Mapping[str, object] = {
    "--compute-s": 0.02,
    "--epoch": 2,
    "--learning-rate": 0.01,
    "--momentum": 0.8,
    "--channels": 4,
    "--hidden": 32,
}


ENDING = """
import json, weakref
from topologies.emulation import digits, digits_training as training
made, end = [], training.distributed.destroy_process_group
class Noted(training.DistributedDataParallel):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        made.append(weakref.ref(self))
def noted():
    print(json.dumps({"made": len(made), "alive": sum(one() is not None for one in made)}))
    end()
training.DistributedDataParallel, training.distributed.destroy_process_group = Noted, noted
digits.main()
"""
"""Trains as the program does, and says at the end how many instances of DDP are left."""


def losses(world: int, iterations: int, checkpoint: Path) -> list[tuple[float, float]]:
    """Train until an iteration; return which iterations were reported, with their losses."""
    options = [str(part) for pair in {**OPTIONS, "--iterations": iterations}.items() for part in pair]
    said = trained([sys.executable, "-m", "topologies.emulation.digits", *options], world, BATCH, checkpoint)
    return [(line["iteration"], line["loss"]) for line in said]


def test_the_gradient_that_is_waited_for_is_the_last_to_be_known() -> None:
    needs_pytorch()
    import torch

    from topologies.emulation.digits_training import BUCKET_MB, FLAGS, Network

    network = Network(channels=4, hidden=32)
    first = network.layers[0]
    known: list[set[str]] = []

    def note(gradient: object) -> None:
        known.append({name for name, value in network.named_parameters() if value.grad is not None})

    first.weight.register_hook(note)
    images, labels = torch.zeros(3, 1, 8, 8), torch.zeros(3, dtype=torch.int64)
    network(images, labels, torch.zeros(len(FLAGS))).backward()
    every = {name for name, _ in network.named_parameters()}
    assert [every - one - {"layers.0.bias"} for one in known] == [{"layers.0.weight"}]
    largest = Network(channels=64, hidden=4096)
    assert sum(value.nbytes for value in largest.parameters()) < BUCKET_MB << 20, "one bucket holds all that is sent"


@pytest.mark.long
def test_the_group_is_ended_when_nothing_else_holds_it(tmp_path: Path) -> None:
    needs_pytorch()
    options = [str(part) for pair in {**OPTIONS, "--iterations": 2}.items() for part in pair]
    said = trained([sys.executable, "-c", ENDING, *options], 1, BATCH, tmp_path / "t")
    assert said[-1] == {"made": 1, "alive": 0}


@pytest.mark.long
def test_resizing_changes_losses_by_rounding_alone(tmp_path: Path) -> None:
    needs_pytorch()
    whole = losses(1, 6, tmp_path / "whole" / "t")
    parts = losses(3, 4, tmp_path / "parts" / "t") + losses(2, 6, tmp_path / "parts" / "t")
    assert [iteration for iteration, _ in whole] == [0, 2, 4, 6]
    assert [iteration for iteration, _ in parts] == [0, 2, 4, 4, 6]
    assert whole[-1][1] < whole[0][1]
    for iteration, loss in parts:
        assert loss == pytest.approx(dict(whole)[iteration], rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("signalled", [0, *long(2)])
def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(signalled: int, tmp_path: Path) -> None:
    needs_pytorch()
    checkpoint = tmp_path / "t"
    options = [str(part) for pair in {**OPTIONS, "--iterations": 10**6}.items() for part in pair]
    command = [sys.executable, "-m", "topologies.emulation.digits", *options]
    with launched(command, 3, BATCH, checkpoint) as processes:
        assert processes[0].stdout is not None
        lines = (json.loads(line) for line in processes[0].stdout)
        before = next(line["iteration"] for line in lines if line["iteration"] > 0)
        processes[signalled].send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in processes] == [0, 0, 0]
        last = max([before, *(line["iteration"] for line in lines)])
    again = losses(1, last + 4, checkpoint)
    assert last <= again[0][0] <= last + 1
