"""The emulated comparison of modes: its scenario, what it runs and the arithmetic of its table."""

from typing import Any

import pytest
from rich.console import Console

from beamer.workloads.scenario import load
from eval.rates.command import RATES
from eval.rates_emulation import SCENARIO, RunDocument, entries, table
from topologies.emulation.studies import check_emulable


def document(mean_s: float, valid: bool = True) -> RunDocument:
    found: dict[str, Any] = {"mean_sct_s": mean_s, "simulated_mean_sct_s": 4.0, "valid": valid}
    return found | {"stages": [{"sct_s": mean_s / 2}, {"sct_s": mean_s * 3 / 2}]}


def test_its_scenario_holds_twelve_studies_that_can_be_emulated() -> None:
    scenario = load(SCENARIO)
    check_emulable(scenario)
    assert len(scenario.studies) == 12


def test_no_order_is_run_once_and_the_policy_under_every_mode() -> None:
    config = RATES.read_config()
    runs = entries(config)
    assert next(iter(runs)) == "fair"
    assert {policy for name, (policy, _) in runs.items() if name != "fair"} == {"beamer"}
    assert len(runs) == 1 + len(config.modes)


def test_a_row_is_relative_to_the_ideal_order_and_to_no_order_of_its_repetition(capsys: pytest.CaptureFixture[str]) -> None:
    repetitions = [
        {"fair": document(8.0), "rates": document(6.0)},
        {"fair": document(10.0), "rates": document(5.0, valid=False)},
    ]
    Console(width=200).print(table(repetitions, 4.0))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "rates" in line]
    assert [cell.strip() for cell in row.split("│")[2:-1]] == [
        "5.50 (5.00 to 6.00)", "1.38 (1.25 to 1.50)", "0.62 (0.50 to 0.75)",
        "7.97 (7.25 to 8.70)", "1.375 (1.250 to 1.500)", "1",
    ]  # fmt: skip
