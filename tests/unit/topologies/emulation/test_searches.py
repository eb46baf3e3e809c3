"""Searches on real packets: the file that each engine is given, and the program that stands in for training."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from beamer.errors import InputError
from beamer.gpu.model import Grant
from beamer.schedule.file import parse
from beamer.workloads.joint import SearchPlan, load, shipped
from beamer.workloads.joint import parse as parse_scenario
from beamer.workloads.scenario import TransportSettings
from topologies.emulation.program import StandInOptions, main, rendezvous, work
from topologies.emulation.searches import HostEntry, _profile, check_searches, search_file

OPTIONS = StandInOptions(
    iterations=5, sync_bytes=40_000, compute_s=0.02, overlap=0.5, epoch=2, start=2.0, floor=0.5, half=3.0
)  # fmt: skip


def content_of(plan: SearchPlan) -> dict[str, object]:
    scenario = load(shipped())
    hosts = {node.name: HostEntry(f"10.0.0.{i + 1}", 100 + i) for i, node in enumerate(scenario.nodes)}
    return search_file(plan, scenario.nodes, hosts, TransportSettings())


@pytest.mark.parametrize("number", range(3))
def test_a_search_file_says_what_the_scenario_says(number: int, tmp_path: Path) -> None:
    plan = load(shipped()).searches[number]
    search = parse(content_of(plan), tmp_path)
    assert (search.name, search.rungs) == (plan.name, plan.rungs)
    assert search.jobs.keys() == plan.trials.keys()
    for name, job in search.jobs.items():
        simulated = plan.trials[name]
        assert job.request == simulated.request
        assert sorted(job.launches) == sorted(rung.step for rung in plan.rungs)
    assert [node.launcher.pid for node in search.engine.cluster.nodes] == list(range(100, 108))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("ranks", "jitter"), [(1, 0.0), (2, 0.0), (4, 0.3), (7, 0.3)])
def test_an_iteration_and_a_loss_are_as_simulated(
    ranks: int, jitter: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = yaml.safe_load(shipped().read_text())
    scenario["searches"][0]["job"]["compute_jitter"] = jitter
    plan = parse_scenario(scenario).searches[0]
    search = parse(content_of(plan), tmp_path)
    given: list[StandInOptions] = []
    monkeypatch.setattr("topologies.emulation.program.work", lambda options, environment, stops: given.append(options))
    for name, job in search.jobs.items():
        launch = job.launches[plan.rungs[0].step]
        main(launch.command[3:])
        profile, simulated = _profile(plan, name), plan.trials[name]
        assert job.request == simulated.request
        computed_s, _ = profile.step_s(Grant.of({"h1": ranks}), simulated.request.batch_size)
        assert given[-1].iteration_s(ranks) == pytest.approx(computed_s)
        assert given[-1].loss(17) == pytest.approx(simulated.profile.outcome(17).loss)
        assert (given[-1].iterations, given[-1].epoch) == (plan.rungs[0].step, simulated.request.epoch)


def test_what_the_program_cannot_do_is_refused() -> None:
    scenario = load(shipped())
    plan = scenario.searches[1]
    trials = {
        name: replace(job, request=replace(job.request, traffic=replace(job.request.traffic, collective="tree")))
        for name, job in plan.trials.items()
    }
    with pytest.raises(InputError, match=r"searches\[1\].job.collective: got 'tree', expected ring, on real packets"):
        check_searches(replace(scenario, searches=(scenario.searches[0], replace(plan, trials=trials))))
    check_searches(scenario)


def together(
    port: int, world: int, options: StandInOptions, directory: Path, stops: dict[int, list[int]]
) -> list[BaseException]:
    """Run the ranks in threads, rank 0 at a port; return what they raised."""
    raised: list[BaseException] = []

    def rank(number: int) -> None:
        environment = {
            "RANK": str(number),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "BEAMER_CHECKPOINT": str(directory / "checkpoints" / "t"),
        }
        try:
            work(options, environment, stops.get(number, []))
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return raised


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_add_up_to_the_end(world: int, own_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert together(own_port, world, OPTIONS, tmp_path, {}) == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["iteration"] for line in lines] == [0, 2, 4, 5]
    assert [line["loss"] for line in lines] == [OPTIONS.loss(line["iteration"]) for line in lines]
    assert json.loads((tmp_path / "checkpoints" / "t").read_text()) == {"iteration": 5}


@pytest.mark.parametrize("signalled", [0, 1, 2])
def test_all_ranks_stop_after_the_iteration_of_the_first_signal(
    signalled: int, own_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert together(own_port, 3, OPTIONS, tmp_path, {signalled: [15]}) == []
    assert json.loads((tmp_path / "checkpoints" / "t").read_text()) == {"iteration": 1}
    assert together(own_port, 3, OPTIONS, tmp_path, {}) == []
    assert json.loads((tmp_path / "checkpoints" / "t").read_text()) == {"iteration": 5}
    said = [json.loads(line)["iteration"] for line in capsys.readouterr().out.splitlines()]
    assert said == [0, 1, 2, 4, 5]


def test_a_rank_that_hangs_up_fails_the_others(own_port: int) -> None:
    failed: list[BaseException] = []

    def first() -> None:
        try:
            rendezvous(0, 2, ("127.0.0.1", own_port), OPTIONS)
        except ConnectionError as error:
            failed.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    while thread.is_alive() and not failed:
        try:
            with socket.create_connection(("127.0.0.1", own_port), 5) as peer:
                peer.sendall((1).to_bytes(4, "big"))
            break
        except ConnectionRefusedError:
            continue
    thread.join(30)
    assert [str(error) for error in failed] == ["a rank hung up"]
