"""Errors as they come back from another process."""

import pickle

import pytest

from beamer.errors import BeamerError, ConflictError, EngineError, InputError, NotFoundError, PlatformError


@pytest.mark.parametrize(
    "error",
    [
        InputError("--data", "/tmp", "a folder that holds dl2/"),
        NotFoundError("study", "a", "a study that is there"),
        ConflictError("weight", 2, "1"),
        PlatformError("no root", "run it as root"),
        EngineError("it ended"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_from_another_process(error: BeamerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
