"""A search that trains, on real packets: by PyTorch's DDP, in its classes, and with the losses of a single process."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from beamer.gpu.policies import gpu_policy
from beamer.network.policies import network_policy
from beamer.schedule.file import parse
from beamer.sim.joint import simulate_scenario
from beamer.workloads.joint import SearchPlan, load
from beamer.workloads.programs import VALUE_BYTES, digits_hidden, digits_values
from beamer.workloads.scenario import TransportSettings
from tests.emulation.repetition import RUNS, until_valid
from tests.support.training import needs_pytorch, trained
from topologies.emulation.digits_data import store
from topologies.emulation.exchange import RunConfig, RunMeasurements
from topologies.emulation.joint_outcome import JointOutcome
from topologies.emulation.searches import HostEntry, search_file
from topologies.emulation.supervisor import emulated_run

DIGITS = Path(__file__).parent / "digits.yaml"
RUN_PATIENCE_S = 200
FINISHED = re.compile(r"(\w+) finished after \d+ iterations, loss ([0-9.]+)")
HEADERS = 0.05  # at most, of what carries a gradient: of its packets, and acknowledgements

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(RUNS * RUN_PATIENCE_S + 100), pytest.mark.alone, pytest.mark.long]


def test_ranks_train_to_the_end_in_their_classes(tmp_path: Path) -> None:
    needs_pytorch()
    scenario = load(DIGITS)
    simulated = simulate_scenario(scenario, gpu_policy("fifo"), network_policy("beamer"))

    def emulate() -> tuple[JointOutcome, Sequence[str]]:
        with emulated_run(RunConfig(DIGITS, "beamer", gpu_policy="fifo"), keep_logs=tmp_path / "logs") as run:
            run.start_studies()
            outcome = JointOutcome("fifo", "beamer", scenario, run.finish_studies(RUN_PATIENCE_S), simulated)
        return outcome, outcome.findings  # The findings also say whether packets travelled in their classes.

    outcome = until_valid(emulate)
    assert {job.key: job.status for job in outcome.run.jobs} == {job.key: job.status for job in simulated.jobs}
    (found,) = FINISHED.findall((tmp_path / "logs" / "search-digits.log").read_text())
    assert float(found[1]) == pytest.approx(alone(found[0], tmp_path), rel=1e-2)
    carried = sum(pair.sent_bytes for pair in outcome.measured.pairs if pair.job)
    expected = ring_bytes(scenario.searches[0], outcome.measured)
    assert expected < carried < (1 + HEADERS) * expected


def ring_bytes(plan: SearchPlan, measured: RunMeasurements) -> float:
    """Return the bytes of gradients that go from one host to another: every rank sends the next one 2 (w - 1) / w of each."""
    total = 0.0
    for trial in measured.studies[0]["trials"]:
        for rung, attempt in zip(plan.rungs, trial["attempts"], strict=False):
            configuration = plan.configurations[trial["key"].rpartition("/")[2]]
            channels = int(configuration["channels"])
            sync_bytes = plan.trials["t0"].request.traffic.sync_bytes
            assert sync_bytes is not None
            gradient = VALUE_BYTES * digits_values(channels, digits_hidden(channels, sync_bytes))
            hosts = [worker["host"] for worker in sorted(attempt["workers"], key=lambda worker: worker["rank"])]
            between = sum(a != b for a, b in zip(hosts, [*hosts[1:], hosts[0]], strict=True))
            iterations = rung.step - max((before.step for before in plan.rungs if before.step < rung.step), default=0)
            total += iterations * between * gradient * 2 * (len(hosts) - 1) / len(hosts)
    return total


def alone(trial: str, directory: Path) -> float:
    """Return what a trial loses in the end when a single process here trains it."""
    scenario = load(DIGITS)
    store(directory / "digits.npz")
    hosts = {node.name: HostEntry("127.0.0.1", 1) for node in scenario.nodes}
    content = search_file(scenario.searches[0], scenario.nodes, hosts, TransportSettings(), directory / "digits.npz")
    launches = parse(content, directory).jobs[trial].launches
    launch = launches[max(launches)]
    return trained(launch.command, 1, launch.batch_size, directory / "checkpoint")[-1]["loss"]
