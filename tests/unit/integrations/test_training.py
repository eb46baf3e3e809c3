"""What a training takes part in, by its launcher, its arguments and its environment; how the end of a process is told."""

from collections.abc import Mapping

import pytest

from beamer.client.urls import CommandLauncher
from beamer.errors import InputError
from beamer.integrations.process_end import ProcessOutcome, outcome_of
from beamer.integrations.training import TrainingNames, choose_names

ELASTIC = {"TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "2"}
LAUNCHED = {"BEAMER_STUDY": "s", "BEAMER_TRIAL": "t", "BEAMER_RUN": "r", "BEAMER_LAUNCHER": "run"}


def chosen(environment: Mapping[str, str], **given: str) -> TrainingNames:
    return choose_names(environment, "train", "h1", 17, **given)


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, TrainingNames("train", "train-h1-17", "", "train-h1-17")),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}, "train-h1-29500"),
        ({"MASTER_ADDR": "h9", "MASTER_PORT": "29500"}, "train-h9-29500"),
        ({"TORCHELASTIC_RUN_ID": "0a1b2c3d-0000-4000-8000-000000000000"}, "train-0a1b2c3d"),
        (ELASTIC, TrainingNames("train", "job7", "", "job7", restarts_left=True)),
        ({**ELASTIC, "TORCHELASTIC_RESTART_COUNT": "2"}, TrainingNames("train", "job7", "", "job7")),
        (LAUNCHED, TrainingNames("s", "t", "r", launcher=CommandLauncher.RUN)),
    ],
)
def test_names(environment: dict[str, str], names: TrainingNames | str) -> None:
    found = chosen(environment)
    assert names in (found, found.trial)


def test_arguments_go_before_the_environment_and_a_launcher_before_both() -> None:
    told = {"BEAMER_STUDY": "s", "BEAMER_TRIAL": "t", "BEAMER_RUN": "r"}
    assert chosen(told, study="other").study == "other"
    assert chosen(told).launcher is None, "whoever sets these by hand has registered nothing"
    assert chosen(LAUNCHED, study="other").study == "s"


def test_a_name_that_none_may_have_is_refused() -> None:
    with pytest.raises(InputError, match="trial"):
        chosen({}, trial=" ")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError(), ProcessOutcome.FAILED),
        (KeyboardInterrupt(), ProcessOutcome.KILLED),
        (SystemExit(), ProcessOutcome.FINISHED),
        (SystemExit(0), ProcessOutcome.FINISHED),
        (SystemExit(3), ProcessOutcome.FAILED),
        (SystemExit("said"), ProcessOutcome.FAILED),
    ],
)
def test_what_an_exception_makes_of_its_trial(error: BaseException, outcome: ProcessOutcome) -> None:
    assert outcome_of(error) is outcome
