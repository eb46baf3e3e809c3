"""`beamer study ls` and `show`: which studies there are, and what one of them waits for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from beamer.client.request import Address
from beamer.inspect import summary
from beamer.inspect.api import ControllerApi
from beamer.inspect.options import JsonFlag, RunOption, StudyArgument, UrlOption
from beamer.inspect.text import FittedTable, ago, console, counts, facts, few, loss, print_json, seconds, several, shown

MAX_TRIALS = 50
MAX_MISSING = 8
MAX_RUNS = 4
_ORDER = {status: i for i, status in enumerate(("running", "lost", "silent", "paused", "waiting"))}
"""Trials are listed in this order of their status, those that have ended after all others."""

Json = Mapping[str, Any]

Everything = Annotated[bool, typer.Option("--all", help=f"List every trial, not only the first {MAX_TRIALS}.")]


def ls(url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """List the present run of every study that the token may read."""
    with ControllerApi(url) as api:
        studies = [summary.summary(study) for study in api.get("/v1/studies?trials=none")["studies"]]
    out = console()
    if as_json:
        print_json({"studies": studies})
        return
    if not studies:
        out.print("no study is registered")
        return
    names, words = ("study", "run"), ("trials", "stages")
    rows = FittedTable(*names, "status", "since", *words, right=("since",), names=names, wrapped=words)
    for study in studies:
        rows.add(
            shown(study["name"]),
            shown(study["run"]),
            study["status"],
            ago(study["registered_s"]),
            counts(study["trials"]),
            summary.stages_in_words(study),
        )
    out.print(rows)


def show(
    study: StudyArgument,
    run: RunOption = None,
    everything: Everything = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a study: its stages and who is missing in them, its trials, and its past runs."""
    with ControllerApi(url) as api:
        found = api.get(Address(study, run).path())
    if as_json:
        print_json(found)
    else:
        _print(console(), found, everything)


def _print(out: Console, study: Json, everything: bool) -> None:
    over = f", ended {ago(study['ended_s'])} ago" if study["ended_s"] is not None else ""
    rungs = [
        f"{shown(rung['name'])} ({several(rung['trials'], 'trial') if rung['trials'] else '? trials'} to step {rung['step']})"
        for rung in study["rungs"]
    ]
    past = study["past_runs"]
    facts(
        out,
        [
            ("study", shown(study["name"])),
            ("run", shown(study["run"])),
            ("status", f"{study['status']}, registered {ago(study['registered_s'])} ago{over}"),
            ("makespan", None if study["makespan_s"] is None else seconds(study["makespan_s"])),
            ("weight", f"{study['weight']:g}"),
            ("rungs", ", ".join(rungs) or None),
            ("trials", counts(summary.trial_counts(study))),
            ("past runs", few(past, MAX_RUNS) if past else None),
        ],
    )
    if not summary.is_over(study) and "members" in study:  # A controller of version 1 knows none.
        _print_members(out, study["members"])
    _print_stages(out, study["stages"])
    _print_trials(out, study["trials"], everything)


def _print_members(out: Console, members: Sequence[Json]) -> None:
    if not members:
        facts(out, [("members", "none: no process takes part in it")])
        return
    rows = FittedTable("member", "host", "joined", "last heard", right=("joined", "last heard"), names=("member", "host"))
    for one in members:
        rows.add(shown(one["name"]), shown(one.get("host")), f"{ago(one['joined_s'])} ago", f"{ago(one['heard_s'])} ago")
    out.print()
    out.print(rows)


def _print_stages(out: Console, stages: Sequence[Json]) -> None:
    if not stages:
        return
    figures = ("there", "to step", "time")
    rows = FittedTable("stage", "status", *figures, "missing", right=figures, names=("stage",), wrapped=("missing",))
    for stage in stages:
        steps = sorted({*stage["targets"].values()})
        to_step = "-" if not steps else f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
        time_s = ago(stage["registered_s"]) if stage["sct_s"] is None else seconds(stage["sct_s"])
        missing = few(stage["missing"], MAX_MISSING) or "-"
        rows.add(shown(stage["name"]), stage["status"], summary.reached(stage), to_step, time_s, missing)
    out.print()
    out.print(rows)


def _print_trials(out: Console, trials: Sequence[Json], everything: bool) -> None:
    if not trials:
        return
    figures = ("class", "steps", "loss")
    names = ("trial", "waits for")
    rows = FittedTable("trial", "status", *figures, "waits for", "hosts", right=figures, names=names, wrapped=("hosts",))
    listed = sorted(trials, key=lambda trial: _ORDER.get(trial["status"], len(_ORDER)))
    for trial in listed if everything else listed[:MAX_TRIALS]:
        target = summary.target_of(trial)
        rows.add(
            shown(trial["name"]),
            trial["status"],
            shown(trial["class"]),
            summary.progress_of(trial),
            loss(trial["loss"]),
            shown(target and (target["stage"] or "milestone")),
            summary.hosts_of(trial),
        )
    out.print()
    out.print(rows)
    if not everything and len(listed) > MAX_TRIALS:
        out.print(f"and {len(listed) - MAX_TRIALS} more trials: --all shows them")
