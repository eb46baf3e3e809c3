"""The command that experiments on cells share: what its options and its help are of each."""

from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from beamer.network.policies import NETWORK_POLICIES
from eval.__main__ import COMMANDS
from eval.asynchronous.command import ASYNCHRONOUS, asynchronous
from eval.grid import GridExperiment, GridRun, code_digest
from eval.joint.command import JOINT, joint
from eval.loss_noise.command import LOSS_NOISE, loss_noise
from eval.network.command import NETWORK, network
from eval.noise.command import NOISE, noise
from eval.rates.command import RATES, rates
from eval.resume import digest
from eval.trials.command import TRIALS, trials

FUNCTIONS = {
    ASYNCHRONOUS: asynchronous,
    JOINT: joint,
    LOSS_NOISE: loss_noise,
    NETWORK: network,
    NOISE: noise,
    RATES: rates,
    TRIALS: trials,
}
each_experiment = pytest.mark.parametrize("experiment", FUNCTIONS, ids=lambda one: one.name)


def run(experiment: GridExperiment[Any, Any, Any], *arguments: str) -> Result:
    app = Typer(rich_markup_mode=None)
    app.command()(FUNCTIONS[experiment])
    return CliRunner().invoke(app, list(arguments), terminal_width=200)


@each_experiment
def test_a_command_says_what_the_list_of_commands_says(experiment: GridExperiment[Any, Any, Any]) -> None:
    assert COMMANDS[experiment.name].help == experiment.about
    done = run(experiment, "--help")
    for part in (experiment.about, str(experiment.config_file), str(experiment.json_file), "--docs", "--anew"):
        assert part in done.output
    assert ("--cells" in done.output) == experiment.takes_cells


def test_an_experiment_whose_tables_need_all_cells_takes_no_part_of_them() -> None:
    done = run(TRIALS, "--cells", "2 alike")
    assert done.exit_code == 2
    assert "--cells" in done.output


def test_a_run_has_a_key_of_its_arguments_or_of_what_is_named_in_their_place() -> None:
    config = RATES.read_config()
    (mode, *_) = config.modes
    plain = GridRun(len, (mode, 3), "code").task("label")
    assert plain.key == digest(mode.model_dump(), 3, "code")
    assert GridRun(len, (mode, 3), "code", (mode.mode,)).task("label").key == digest(mode.mode, "code") != plain.key


@pytest.mark.long
@each_experiment
def test_every_run_of_an_experiment_has_a_label_of_its_own(experiment: GridExperiment[Any, Any, Any]) -> None:
    config = experiment.read_config(seeds=2)
    by_cell = [experiment.tasks(config, name, cell) for name, cell in experiment.cells(config).items()]
    tasks = [task for by_contender in by_cell for several in by_contender.values() for task in several]
    assert len({task.label for task in tasks}) == len(tasks) > 30
    assert {len(several) for by_contender in by_cell for several in by_contender.values()} == {2}


def test_a_digest_of_code_is_not_of_other_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    fair, fifo = NETWORK_POLICIES["fair"], NETWORK_POLICIES["fifo"]
    before = code_digest("eval.rates.runs", fair), code_digest("eval.rates.runs", fifo)
    read_text = Path.read_text

    def changed(path: Path, *arguments: Any, **keys: Any) -> str:
        text = read_text(path, *arguments, **keys)
        return text + "\nCHANGED = 1\n" if path.name == "fifo.py" and path.parent.name == "policies" else text

    monkeypatch.setattr(Path, "read_text", changed)
    code_digest.cache_clear()
    after = code_digest("eval.rates.runs", fair), code_digest("eval.rates.runs", fifo)
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)
    code_digest.cache_clear()
