"""How well-known libraries print their progress, by name: what may stand for a pattern in `progress`.

`beamer.engines.local.supervisor.reader` reads them. Each is tested against what the library itself has printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from beamer.engines.local.pattern import ProgressPattern
from beamer.errors import InputError, nearest

JSON = "json"
"""The name of what is read where nothing is named: lines of JSON, which name everything themselves."""
_NUMBER = r"""(?P<loss>[^\s,;:|"'\[\]{}()]++(?:\([^()]*\))?)"""
_LOSS = rf"(?i)(?<![\w/.-])(?:train(?:ing)?[ _/-]?)?loss(?:_step)?[\"']?\s*[:= ]\s*[\"']?{_NUMBER}"
_COUNT = r"(?P<batch>\d+)/(?P<batches>\d+)"
_BAR = rf"\d{{1,3}}%\|[^|]*\|\s*{_COUNT} \["
_EPOCH = r"\bepoch\b\W{0,4}"
_STEP = r"(?:global[_ ]?step|step|iter|iteration|it|batch|update)\b"


@dataclass(frozen=True)
class ProgressFormat:
    """How a library prints its progress.

    steps: expressions for lines that say how far it is, tried in order; the first that finds anything is the one that counts
    from then on. Their groups are `iteration`, or `batch` and `batches` with `epoch` and `bar`, the bar's name. loss: finds a
    loss in such a line. has_loss_lines: whether other lines may have one, which holds for those that follow. is_loss_beside:
    whether a line without one says nothing. epoch: finds the epoch that the following lines are of; "": those name it.
    """

    about: str
    steps: tuple[str, ...]
    loss: str = _LOSS
    epoch: str = ""
    is_loss_beside: bool = False
    has_loss_lines: bool = False


FORMATS: Mapping[str, ProgressFormat] = {
    "tqdm": ProgressFormat(
        "bars of tqdm, the first of them that is drawn, and the loss in its description or behind it",
        (rf"^(?P<bar>.*?)\s*{_BAR}",),
    ),
    "keras": ProgressFormat(
        "`Model.fit` of Keras with a bar or a line for each epoch",
        (rf"^\s*{_COUNT}\s.*(?:/step|/epoch)\b",),
        loss=rf" - loss: {_NUMBER}",
        epoch=r"^\s*Epoch (?P<epoch>\d+)/\d+\s*$",
    ),
    "lightning": ProgressFormat(
        "the bar of Lightning's `TQDMProgressBar`, and the loss that is logged with `prog_bar=True`",
        (rf"^\s*Epoch (?P<epoch>\d+):\s*{_BAR}",),
    ),
    "hf": ProgressFormat(
        "the bar of the Trainer of Hugging Face, and the losses that it logs",
        (rf"^(?P<bar>)\s*{_BAR}",),
        loss=rf"^\s*\{{'loss': '?{_NUMBER}",
        has_loss_lines=True,
    ),
    "plain": ProgressFormat(
        "lines with a loss and a step, iteration or epoch, such as `step 12 loss 0.5` and `Epoch 3/10 - train loss: 0.31`",
        (
            rf"(?i){_EPOCH}(?P<epoch>\d+)(?:/\d+)?\W{{1,6}}(?:{_STEP}\W{{0,4}})?{_COUNT}",
            rf"(?i)(?<![\w-]){_STEP}\W{{0,4}}(?P<iteration>\d+)",
            rf"(?i){_EPOCH}(?P<iteration>\d+)",
        ),
        is_loss_beside=True,
    ),
}
"""By the name that is given in place of a pattern."""


def check_progress(progress: str) -> None:
    """Check that a text names a format or is a pattern; "" stands for JSON. Raises `InputError`."""
    if progress in ("", JSON) or progress in FORMATS:
        return
    if progress.isidentifier():
        raise InputError("progress", progress, f"a pattern, or {nearest(progress, (JSON, *FORMATS))}")
    ProgressPattern(progress)  # The constructor checks the pattern.
