"""A study as a notebook shows it: two small tables of HTML, made of what the controller answers."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

MAX_ROWS = 50
_NOTHING = "-"


def study_html(title: str, study: Mapping[str, Any]) -> str:
    """Return a study's stages and trials as HTML. title: above them. study: as the API has it.

    Raises `LookupError`, `TypeError` or `AttributeError` for another answer.
    """
    stages = [
        (stage["name"], stage["status"], f"{len(stage['targets']) - len(stage['missing'])}/{len(stage['targets'])}")
        for stage in study["stages"]
    ]
    trials = [
        (trial["name"], trial["status"], trial["class"], trial["done"], trial["loss"], _hosts(trial))
        for trial in study["trials"]
    ]
    parts = [f"<p>{escape(title)}: {escape(str(study['status']))}</p>"]
    if stages:
        parts += _table(("stage", "status", "trials there"), stages)
    if trials:
        parts += _table(("trial", "status", "class", "step", "loss", "hosts"), trials)
    return "".join(parts)


def _hosts(trial: Mapping[str, Any]) -> str:
    attempts = trial["attempts"]
    return ", ".join(dict.fromkeys(worker["host"] for worker in attempts[-1]["workers"])) if attempts else _NOTHING


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterable[str]:
    yield f"<table><thead>{_row(columns, 'th')}</thead><tbody>"
    yield from (_row(row, "td") for row in rows[:MAX_ROWS])
    yield "</tbody></table>"
    if len(rows) > MAX_ROWS:
        yield f"<p>and {len(rows) - MAX_ROWS} more</p>"


def _row(cells: Iterable[object], tag: str) -> str:
    shown = (_NOTHING if cell is None else escape(str(cell)) for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in shown)}</tr>"
