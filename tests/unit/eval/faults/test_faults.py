"""Faults: whether what is lost would be found, what their figures and options are, and the table of hostile input."""

import asyncio
import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typer

from beamer.errors import InputError
from controller.limits import Limits
from eval.faults import command
from eval.faults.base import Fault, FaultOutcome
from eval.faults.catalogue import FAULTS
from eval.faults.load import CONNECTIONS, KnownStudies, Load, search, steady_search
from eval.faults.report import FaultStudy
from eval.faults.site import FABRIC, POLICY
from eval.fuzz.command import findings_table
from eval.fuzz.command import fuzz as fuzz_command
from eval.fuzz.findings import Findings, FuzzFailure
from eval.fuzz.targets import TARGETS
from tests.support.served_controller import served

SEED = 1
GOOD = FaultOutcome(3, 10, 0, 1, 0, (0.5, 1.5, 0.25), {"writes repeated": 2})


def test_nothing_of_a_search_is_known_to_a_controller_that_knows_nothing() -> None:
    writes = [*islice(search("a", random.Random(SEED)), 60), *steady_search("steady")]
    assert not [write.path for write in writes if write.is_known(KnownStudies([]))]


def test_what_a_controller_has_taken_in_is_known_and_anything_else_is_lost(tmp_path: Path) -> None:
    async def run(url: str) -> Load:
        async with Load([url], SEED, connections=2) as load:
            while len(load.acknowledged) < 80:
                await asyncio.sleep(0.01)
            await load.pause()
            await load.verify(url)
        return load

    async def look_elsewhere(load: Load, url: str) -> None:
        await load.verify(url)

    with served(FABRIC, tmp_path / "journal.db") as controller:
        load = asyncio.run(run(controller.url))
    assert (load.failures, load.lost) == ([], set())
    with served(FABRIC, tmp_path / "another.db") as another:
        asyncio.run(look_elsewhere(load, another.url))
    assert len(load.lost) == len(load.acknowledged) >= 80


def test_each_kind_of_write_is_missed_by_itself() -> None:
    """From what a controller knows everything of a trial is taken away, one thing at a time."""
    trial = {
        "name": "t0", "done": 99, "status": "finished", "attempts": [{"name": "1"}],
        "targets": [{"step": step, "stage": "r0"} for step in range(20)],
    }  # fmt: skip
    study = {"name": "a", "stages": [{"name": "r0", "sealed_s": 1.0}], "trials": [trial]}
    first_trial = list(islice(search("a", random.Random(SEED)), 1, 7))
    end = next(write for write in search("a", random.Random(SEED)) if write.path.endswith("/status"))

    def unknown(**changed: Any) -> list[str]:
        known = KnownStudies([{**study, "trials": [{**trial, **changed}]}])
        return [write.path.rpartition("/trials/t0")[2] for write in [*first_trial, end] if not write.is_known(known)]

    assert unknown() == []
    assert unknown(done=0) == ["/progress"]
    assert unknown(status="running") == ["/status"]
    assert unknown(attempts=[]) == ["/attempts/1"]
    assert unknown(targets=[]) == ["/target"]


def test_a_refused_write_is_a_failure_and_ends_its_search(tmp_path: Path) -> None:
    async def run(url: str) -> Load:
        async with Load([url], SEED, connections=2) as load:
            while len(load.failures) < 2:
                await asyncio.sleep(0.01)
        return load

    with served(FABRIC, tmp_path / "journal.db", limits=Limits(studies=1)) as controller:
        load = asyncio.run(run(controller.url))
    assert [failure.split()[2] for failure in load.failures] == ["422", "422"]
    assert load.retries == 0
    assert {write.path.split("/")[3] for write in load.acknowledged} == {"steady"}


@pytest.mark.parametrize(
    ("outcome", "good"),
    [
        (GOOD, True),
        (FaultOutcome(1, 10, 1), False),
        (FaultOutcome(1, 10, 0, 1, 1), False),
        (FaultOutcome(1, failures=("it ended",)), False),
    ],
)
def test_the_command_ends_with_1_if_anything_was_lost_differs_or_failed(
    outcome: FaultOutcome, good: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fault = Fault("clock", "a fault", "never", lambda times, seed: outcome, 1)
    monkeypatch.setattr(command, "FAULTS", {"clock": fault})
    file = tmp_path / "faults.json"
    if good:
        command.faults("clock", json_file=file)
    else:
        with pytest.raises(typer.Exit):
            command.faults("clock", json_file=file)
    assert FaultStudy.from_json(json.loads(file.read_text())).outcomes == {"clock": outcome}


def test_what_is_not_installed_is_left_out_by_name() -> None:
    said: list[str] = []
    fault = Fault("a", "a fault", "never", lambda times, seed: GOOD, 1, lambda: "PostgreSQL is not installed")
    assert command.run([fault], None, SEED, said.append) == FaultStudy({}, {}, {})
    assert said == ["a: left out, PostgreSQL is not installed"]


def test_a_command_that_can_try_no_fault_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fault = Fault("clock", "a fault", "never", lambda times, seed: GOOD, 1, lambda: "PostgreSQL is not installed")
    monkeypatch.setattr(command, "FAULTS", {"clock": fault})
    with pytest.raises(typer.Exit) as ended:
        command.faults("clock", json_file=tmp_path / "faults.json")
    assert ended.value.exit_code == 1


def test_a_fault_that_nobody_recovers_from_is_a_failure_and_the_others_are_tried() -> None:
    def never(times: int, seed: int) -> FaultOutcome:
        raise TimeoutError("no answer")

    several = [Fault("a", "a fault", "never", never, 2), Fault("b", "another one", "never", lambda times, seed: GOOD, 1)]
    outcomes = command.run(several, None, SEED, lambda line: None).outcomes
    assert outcomes["a"] == FaultOutcome(2, failures=("TimeoutError('no answer')",))
    assert outcomes["b"] == GOOD


def test_newer_outcomes_take_the_place_of_older_ones_in_the_order_of_the_catalogue() -> None:
    first, second = list(FAULTS)[:2]
    newer = FaultOutcome(5)
    older = FaultStudy({second: GOOD}, {second: 1}, {second: "beamer"})
    policies = {first: "fifo", second: "fifo"}
    study = older.with_newer(FaultStudy({first: GOOD, second: newer}, {first: 2, second: 3}, policies))
    assert list(study.outcomes.items()) == [(first, GOOD), (second, newer)]
    assert (study.seeds, study.policies) == ({first: 2, second: 3}, policies)


def test_figures_of_another_policy_than_the_commands_are_not_kept() -> None:
    first, second = list(FAULTS)[:2]
    older = FaultStudy({first: GOOD, second: GOOD}, {first: 1, second: 1}, {first: "beamer", second: POLICY})
    study = older.with_newer(FaultStudy({}, {}, {}))
    assert (list(study.outcomes), list(study.seeds), list(study.policies)) == ([second], [second], [second])


def test_unknown_faults_and_targets_are_named() -> None:
    with pytest.raises(InputError, match="kill-sqlite"):
        command.chosen("kill-sqlit")
    with pytest.raises(InputError, match="openflow"):
        fuzz_command(only="openflo")


def test_the_names_of_faults_are_their_own() -> None:
    assert all(name == fault.name and fault.times > 0 for name, fault in FAULTS.items())
    assert len(FAULTS) >= 12
    assert Limits().connections_per_address > CONNECTIONS


def test_fuzz_prints_failures_as_hex_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def found(*failures: FuzzFailure) -> Findings:
        return Findings("openflow", SEED, 10, 4, 6, 0.3, 0.002, 1, 0.1, 2**20, failures)

    monkeypatch.setitem(TARGETS, "openflow", lambda seconds, seed, most: found())  # type: ignore[arg-type]
    fuzz_command(minutes=0.01, only="openflow", json_file=tmp_path / "fuzz.json")
    (written,) = json.loads((tmp_path / "fuzz.json").read_text())
    assert (written["inputs"], written["longest_turn_s"], written["failures"]) == (10, 0.3, [])
    failure = FuzzFailure("answered 500", ("dead", "beef"))
    monkeypatch.setitem(TARGETS, "openflow", lambda seconds, seed, most: found(failure))  # type: ignore[arg-type]
    capfd.readouterr()
    with pytest.raises(typer.Exit):
        fuzz_command(minutes=0.01, only="openflow")
    assert capfd.readouterr().out.endswith("openflow: answered 500\ndead\nbeef\n")
    row = [cell for column in findings_table([found(failure)]).columns for cell in column.cells]
    assert row[-4:] == ["1", "100 ms", "+1.0 MiB", "1"]
