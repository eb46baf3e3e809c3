"""`beamer top`: the trials that run, as a table that follows them."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from beamer.errors import NoControllerError
from beamer.inspect import summary
from beamer.inspect.api import ControllerApi
from beamer.inspect.options import JsonFlag, UrlOption
from beamer.inspect.text import FittedTable, console, counts, loss, print_json, quantity, shown
from beamer.studies.model import TrialStatus

LINES_AROUND = 6  # Of the table: a title, its head, what is left out, and a line that stays empty.
Interval = Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.1, max=3600.0)]
OneStudy = Annotated[str | None, typer.Option("--study", help="Only trials of this study.")]


def top(
    study: OneStudy = None, interval_s: Interval = 2.0, url: UrlOption = None, as_json: JsonFlag = False
) -> None:  # fmt: skip
    """Show the running trials: class, progress, loss, hosts and what they send.

    Follows them until it is interrupted; where the output is no terminal, or with --json, one look is printed. Rates are what
    agents count of their workers' connections to other hosts.
    """
    out = console()
    with ControllerApi(url) as api:
        frame = Frame(api, study)
        frame.look()
        if as_json:
            print_json({"trials": frame.trials, "counts": frame.counts})
        elif out.is_terminal:
            with suppress(KeyboardInterrupt):  # This is how it is left.
                _follow(frame, out, interval_s)
        else:
            out.print(frame.table(None))


def _follow(frame: "Frame", out: Console, interval_s: float) -> None:
    with Live(console=out, auto_refresh=False, screen=True) as live:
        while True:
            live.update(frame.table(out.height), refresh=True)
            time.sleep(interval_s)
            try:
                frame.look()
            except NoControllerError as error:
                frame.note = shown(str(error))


class Frame:
    """What was seen last, and the rates since the time before."""

    def __init__(self, api: ControllerApi, study: str | None) -> None:
        self._api = api
        self._study = study
        self._sent: dict[str, dict[str, Any]] = {}
        self.trials: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}
        self.note = ""

    def look(self) -> None:
        """Read what runs now. Raises as `ControllerApi`."""
        studies: Sequence[Mapping[str, Any]] = self._api.get("/v1/studies?trials=running")["studies"]
        if self._study is not None:
            studies = [one for one in studies if one["name"] == self._study]
        self.note = ""
        self.counts = summary.total(studies)
        running = [(study, trial) for study in studies for trial in study["trials"] if trial["status"] == TrialStatus.RUNNING]
        self.trials = [self._row(study, trial) for study, trial in running]
        self.trials.sort(key=lambda row: (row["class"] is None, row["class"] or 0))
        self._sent = {row["key"]: row for row in self.trials if row["sent_bytes"] is not None}

    def _row(self, study: Mapping[str, Any], trial: Mapping[str, Any]) -> dict[str, Any]:
        sent, counted_s = trial.get("sent_bytes"), trial.get("counted_s")  # A controller of version 1 says neither.
        rate_bps = None
        if sent is not None and counted_s is not None and (before := self._sent.get(trial["key"])):
            if counted_s == before["counted_s"]:  # Agents have not counted since.
                rate_bps = before["rate_bps"]
            elif counted_s > before["counted_s"] and sent >= before["sent_bytes"]:
                rate_bps = (sent - before["sent_bytes"]) * 8 / (counted_s - before["counted_s"])
        return {
            "key": trial["key"],
            "study": study["name"],
            "trial": trial["name"],
            "class": trial["class"],
            "step": trial["done"],
            "progress": summary.progress_of(trial),
            "loss": trial["loss"],
            "hosts": summary.hosts_of(trial),
            "sent_bytes": sent,
            "counted_s": counted_s,
            "rate_bps": rate_bps,
        }

    def table(self, height: int | None) -> Group:
        """Return what is shown. height: of the terminal in lines, None for all rows."""
        most = len(self.trials) if height is None else max(height - LINES_AROUND, 1)
        title = f"{time.strftime('%H:%M:%S')}  trials: {counts(self.counts)}  at {shown(self._api.named)}"
        parts: list[Text | FittedTable] = [Text(title, no_wrap=True, overflow="ellipsis")]
        if self.note:
            parts.append(Text(self.note, no_wrap=True, overflow="ellipsis"))
        figures = ("class", "steps", "loss", "rate", "sent")
        rows = FittedTable("study", "trial", *figures, "hosts", right=figures, names=("study", "trial", "hosts"))
        for row in self.trials[:most]:
            rows.add(
                shown(row["study"]),
                shown(row["trial"]),
                shown(row["class"]),
                row["progress"],
                loss(row["loss"]),
                quantity(row["rate_bps"], "bit/s"),
                quantity(row["sent_bytes"], "B"),
                row["hosts"],
            )
        parts.append(rows if self.trials else Text("no trial runs"))
        if most < len(self.trials):
            parts.append(Text(f"and {len(self.trials) - most} more"))
        return Group(*parts)
