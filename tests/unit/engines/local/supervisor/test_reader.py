"""Formats of progress, each against what the library itself has printed: `printed/record.py` says how."""

from itertools import pairwise
from math import isnan
from pathlib import Path

import pytest

from beamer.engines.local.progress_formats import FORMATS, JSON, check_progress
from beamer.engines.local.supervisor.lines import PrintedLine, ProgressLine
from beamer.engines.local.supervisor.output_lines import OutputLines
from beamer.engines.local.supervisor.reader import MAX_CHARACTERS, ProgressReader
from beamer.errors import InputError

PRINTED = Path(__file__).parent.parent / "printed"
LAST = {  # by program: the last step and its loss, and the loss of a step before
    "tqdm": (60, 0.249, {30: 0.602}),
    "tqdm-epochs": (75, 0.6364, {25: 0.7857, 30: 0.8645}),
    "tqdm-bare": (40, None, {}),
    "keras": (24, 2.8206, {8: 4.9581, 16: 3.7245}),
    "keras-lines": (24, 2.8206, {8: 4.9581, 16: 3.7245}),
    "lightning": (36, 0.000478, {1: 4.74, 2: 3.71}),
    "hf": (48, 0.01645, {6: 1.813, 12: 2.627}),
}


def read(progress: str, printed: bytes, part: int = 1 << 16) -> list[ProgressLine]:
    """Return what is read of an output that arrives in parts."""
    lines, reader, found = OutputLines(), ProgressReader(progress), []
    for at in range(0, len(printed), part):
        lines.add(printed[at : at + part])
    lines.finish()
    while (line := lines.take()) is not None:
        found.append(reader.read(line))
    return [line for line in found if line is not None]


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
@pytest.mark.parametrize("name", LAST)
def test_what_a_library_prints_is_read(name: str, kind: str) -> None:
    printed = (PRINTED / f"{name}.{kind}.txt").read_bytes()
    step, loss, between = LAST[name]
    found = read(name.partition("-")[0], printed)
    assert (found[-1].step, found[-1].loss if found[-1].has_loss else None) == (step, loss)
    losses = {line.step: line.loss for line in found if line.has_loss}
    assert {at: losses[at] for at in between} == between
    assert all(0 <= line.step <= step for line in found)
    assert found == read(name.partition("-")[0], printed, part=7) or isnan(found[0].loss)


@pytest.mark.parametrize("name", LAST)
def test_steps_do_not_go_back(name: str) -> None:
    steps = [line.step for line in read(name.partition("-")[0], (PRINTED / f"{name}.pipe.txt").read_bytes())]
    back = [(a, b) for a, b in pairwise(steps) if b < a]
    # Lightning empties its bar before it names the next epoch.
    assert back == ([(12, 0), (24, 12)] if name == "lightning" else [])


def test_every_format_and_every_recording_is_tested() -> None:
    assert {name.partition("-")[0] for name in LAST} | {"plain"} == set(FORMATS)
    without_steps = "hf-lines"  # The Trainer without bars says epochs alone.
    assert {path.name.partition(".")[0] for path in PRINTED.glob("*.pipe.txt")} == {*LAST, without_steps}
    assert read("hf", (PRINTED / f"{without_steps}.pipe.txt").read_bytes()) == []


@pytest.mark.parametrize(
    ("text", "step", "loss"),
    [
        ("step 12 loss 0.5", 12, 0.5),
        ("Step: 12 | Loss: 5e-1", 12, 0.5),
        ("2024-05-03 12:00:01,123 INFO train: global_step=12 train_loss=0.5 lr=1e-3", 12, 0.5),
        ("iter 100: loss 2.3456, time 12.31ms, mfu 1.20%", 100, 2.3456),
        ("iter 100: loss=2.3", 100, 2.3),
        ("{'step': 12, 'loss': tensor(0.5)}", 12, 0.5),
        ("Epoch 3/10 - train loss: 0.31", 3, 0.31),
        ("Epoch: 3, val_loss: 9.0, loss: 0.31", 3, 0.31),
        ("epoch 2, step 45/100, loss 0.25, val_loss 3", 145, 0.25),
        ("Epoch: [0][  10/5005]\tTime  0.2 (0.3)\tLoss 6.9e+00 (7.0e+00)", 10, 6.9),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300", 640, 2.3),
        ("\x1b[32mstep 12\x1b[0m loss \x1b[1m0.5\x1b[0m", 12, 0.5),
    ],
)
def test_plain_lines(text: str, step: int, loss: float) -> None:
    found = ProgressReader("plain").read(PrintedLine(text))
    assert found is not None
    assert (found.step, found.loss) == (step, loss)


@pytest.mark.parametrize(
    "text", ["", "step 3 of the set-up", "loss 0.5", "val_loss 0.5 step 3", "gloss 3 step 4", "step x loss y"]
)
def test_other_lines_are_no_progress(text: str) -> None:
    assert ProgressReader("plain").read(PrintedLine(text)) is None


def test_a_loss_that_is_not_a_number_is_one() -> None:
    found = ProgressReader("plain").read(PrintedLine("step 3 loss nan"))
    assert found is not None
    assert found.has_loss
    assert isnan(found.loss)


def test_steps_that_begin_anew_with_each_epoch_are_added_up_and_summaries_left_out() -> None:
    lines = [*(f"step {i} loss 1" for i in (1, 50, 100)), "epoch 1 loss 1", *(f"step {i} loss 1" for i in (1, 50, 100))]
    assert [line.step for line in read("plain", "\n".join(lines).encode())] == [1, 50, 100, 101, 150, 200]


def test_bars_of_validation_are_left_out() -> None:
    bar = "\r{}: 50%|#####     | {}/{} [00:00<00:00, 1.0it/s, loss={}]"
    drawn = [("train", 5, 10, 3), ("train", 10, 10, 2), ("eval", 2, 4, 9), ("eval", 4, 4, 9), ("train", 5, 10, 1)]
    found = read("tqdm", "".join(bar.format(*one) for one in drawn).encode())
    assert [(line.step, line.loss) for line in found] == [(5, 3), (10, 2), (15, 1)]


def test_a_long_line_is_not_searched() -> None:
    assert ProgressReader("tqdm").read(PrintedLine(" " * MAX_CHARACTERS + "1%|# | 1/2 [00")) is None


def test_names_and_patterns_are_checked() -> None:
    for sound in ("", JSON, *FORMATS, r"(?P<iteration>\d+) (?P<loss>\S+)"):
        check_progress(sound)
    with pytest.raises(InputError, match="did you mean 'keras'"):
        check_progress("kears")
    with pytest.raises(InputError, match="groups named loss"):
        check_progress(r"(?P<iteration>\d+)")
