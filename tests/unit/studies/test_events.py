"""Stored events: what was written reads back, anything else is named."""

import math

import pytest

from beamer.errors import InputError
from beamer.studies.events import AttemptStarted, Event, Progressed, decode, encode
from beamer.studies.model import Profile, Role, Worker

EVENT = AttemptStarted(2.0, "vision/t", "1", (Worker(0, "h1"), Worker(1, "h2", Role.SERVER)), Profile(10**12))


def test_an_event_survives_its_stored_form() -> None:
    assert decode(*encode(EVENT)) == EVENT


@pytest.mark.parametrize("loss", [None, 0.5, math.inf, -math.inf])
def test_a_loss_that_diverged_survives_its_stored_form(loss: float | None) -> None:
    event = Progressed(2.0, "vision/t", 7, loss)
    assert decode(*encode(event)) == event


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("StageSeald", "{}", r"event: got 'StageSeald', .*did you mean 'StageSealed'"),
        ("StageSealed", '{"at_s": 1, "study": "a"}', r"event\.StageSealed\.stage: got None, expected a value"),
        (
            "StageSealed",
            '{"at_s": "soon", "study": "a", "stage": "b"}',
            r"event\.StageSealed\.at_s: got 'soon', expected a number",
        ),
        ("StageSealed", '{"at_s": 1', r"event\.StageSealed: got .*, expected JSON"),
        (
            "AttemptStarted",
            encode(EVENT)[1].replace('"server"', '"chief"'),
            r"event\.AttemptStarted\.workers\[1\]\.role: got 'chief', expected 'worker' or 'server'",
        ),
    ],
)
def test_a_stored_event_of_another_shape_is_named(kind: str, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(kind, content)


def test_two_kinds_of_event_cannot_have_one_name() -> None:
    with pytest.raises(TypeError, match=r"beamer\.studies\.events has an event of that name"):
        type("StageSealed", (Event,), {})
