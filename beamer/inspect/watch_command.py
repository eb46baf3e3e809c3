"""`beamer study watch`: a line for whatever changes in a study, until it ends."""

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from beamer.client.request import Address
from beamer.errors import NoControllerError
from beamer.inspect import summary
from beamer.inspect.api import ControllerApi
from beamer.inspect.options import JsonFlag, RunOption, StudyArgument, UrlOption
from beamer.inspect.text import console, counts, few, print_json, seconds, shown

MAX_TRIALS = 1000  # Each look at a study with more trials would take the controller long: it is followed by its stages alone.

Interval = Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.1, max=3600.0)]
Changes = Iterator[dict[str, Any]]


def watch(
    study: StudyArgument, run: RunOption = None, interval_s: Interval = 1.0, url: UrlOption = None, as_json: JsonFlag = False
) -> None:
    """Follow a study until it ends: a line for each stage and trial that changes.

    Of a study with more than 1000 trials, stages and how many trials have each status are followed, not single trials. Goes on
    while the controller is away.
    """
    try:
        with ControllerApi(url) as api:
            _follow(api, study, run, interval_s, as_json)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _follow(api: ControllerApi, study: str, run: str | None, interval_s: float, as_json: bool) -> None:
    out, before, is_away = console(), None, False
    while True:
        try:
            found = _look(api, study, run, before)
        except NoControllerError as error:
            if before is None:
                raise
            if not is_away:
                print(f"watch: {shown(str(error))}; still trying", file=sys.stderr, flush=True)
            is_away = True
        else:
            is_away, run = False, found["run"]
            for change in _changes(before, found):
                if as_json:
                    print_json({"at_s": round(time.time(), 3), "study": found["name"], "run": run, **change}, indent=None)
                else:
                    out.print(f"{time.strftime('%H:%M:%S')}  {_in_words(change)}", soft_wrap=True)
            if summary.is_over(found):
                return
            before = found
        time.sleep(interval_s)


def _look(api: ControllerApi, study: str, run: str | None, before: Mapping[str, Any] | None) -> dict[str, Any]:
    address = Address(study, run).path()
    if before is not None and sum(summary.trial_counts(before).values()) <= MAX_TRIALS:
        return dict(api.get(address))
    found = dict(api.get(f"{address}{'&' if '?' in address else '?'}trials=none"))
    if before is None and sum(summary.trial_counts(found).values()) <= MAX_TRIALS:
        return dict(api.get(address))
    return found


def _changes(before: Mapping[str, Any] | None, found: Mapping[str, Any]) -> Changes:
    """Yield what has changed since the last look; at the first one, what there is."""
    known = {stage["name"]: stage for stage in before["stages"]} if before else {}
    for stage in found["stages"]:
        was = known.get(stage["name"])
        if was is None or any(was[key] != stage[key] for key in ("status", "targets", "missing")):
            now = {key: stage[key] for key in ("status", "missing", "sct_s")}
            yield {"what": "stage", "name": stage["name"], **now, "trials": len(stage["targets"])}
    trials = {trial["name"]: trial["status"] for trial in before["trials"]} if before else {}
    for trial in found["trials"]:
        if trials.get(trial["name"]) != trial["status"]:
            now = {"status": trial["status"], "step": trial["done"], "loss": trial["loss"]}
            yield {"what": "trial", "name": trial["name"], **now}
    if before is None or summary.trial_counts(before) != summary.trial_counts(found):
        yield {"what": "trials", "counts": summary.trial_counts(found)}
    if before is None or before["status"] != found["status"]:
        yield {"what": "study", "status": found["status"], "makespan_s": found["makespan_s"]}


def _in_words(change: Mapping[str, Any]) -> str:
    match change["what"]:
        case "stage":
            there = f"{change['trials'] - len(change['missing'])} of {change['trials']} trials there"
            missing = f", missing: {few(change['missing'])}" if change["missing"] else ""
            took = f" after {seconds(change['sct_s'])}" if change["sct_s"] is not None else ""
            return f"stage {shown(change['name'])} is {change['status']}{took}, {there}{missing}"
        case "trial":
            return f"trial {shown(change['name'])} is {change['status']} at step {change['step']}"
        case "trials":
            return f"trials: {counts(change['counts'])}"
        case _:
            return f"the study is {change['status']}"
