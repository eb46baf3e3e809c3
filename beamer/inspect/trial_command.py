"""`beamer trial show`: a trial, its attempts and their processes, and why it has its class."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from beamer.client.request import Address
from beamer.inspect import summary
from beamer.inspect.api import ControllerApi
from beamer.inspect.options import JsonFlag, RunOption, StudyArgument, UrlOption
from beamer.inspect.text import FittedTable, ago, console, facts, loss, print_json, quantity, seconds, shown
from beamer.studies.model import TrialStatus

MAX_ATTEMPTS = 10
MAX_WORKERS = 32
_ESTIMATES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("sync_bytes", "bytes of a synchronisation", lambda value: quantity(value, "B")),
    ("compute_s", "computing of a step", seconds),
    ("remaining_steps", "steps left", shown),
)

TrialArgument = Annotated[str, typer.Argument(help="A trial's name in the study.")]
Json = Mapping[str, Any]


def show(
    study: StudyArgument, trial: TrialArgument, run: RunOption = None, url: UrlOption = None, as_json: JsonFlag = False
) -> None:
    """Show a trial: attempts, workers and their processes, targets, and why it has its class."""
    with ControllerApi(url) as api:
        found = api.get(Address(study, run, trial=trial).path())
    if as_json:
        print_json(found)
    else:
        _print(console(), found)


def _print(out: Console, trial: Json) -> None:
    over = f", ended {ago(trial['ended_s'])} ago" if trial["ended_s"] is not None else ""
    budget = f", budget {trial['budget']}" if trial["budget"] is not None else ""
    attempts = trial["attempts"]
    facts(
        out,
        [
            ("trial", shown(trial["key"])),
            ("status", f"{trial['status']}, registered {ago(trial['registered_s'])} ago{over}"),
            ("steps", f"{summary.progress_of(trial)}{budget}"),
            ("loss", None if trial["loss"] is None else loss(trial["loss"])),
            ("attempts", f"{len(attempts)}" if attempts else "none: it has not been started"),
            *_class_in_words(trial),
        ],
    )
    for one in (_targets(trial), _attempts(attempts), _workers(trial), _estimates(trial["estimates"])):
        if one is not None:
            out.print()
            out.print(one)


def _class_in_words(trial: Json) -> Iterator[tuple[str, str]]:
    """Yield what class a trial has, and why."""
    why = trial.get("decision")  # A controller of version 1 does not say.
    if trial["status"] != TrialStatus.RUNNING:
        yield "class", f"none: it is {trial['status']}"
    elif trial["quarantined"] is not None:
        yield "class", f"none: no decision can be made with it ({shown(trial['quarantined'])})"
    elif why is None:
        yield "class", f"{shown(trial['class'])}; why is not known, as the last decision was not about this attempt"
    else:
        yield "class", f"{'none, as it sends nothing' if trial['class'] is None else trial['class']}, by {shown(why['policy'])}"
        others = why["tier_jobs"] - 1
        group = f", in one group with {others} {'other' if others == 1 else 'others'}" if others else ""
        yield "place", f"{why['place']} of {why['jobs']} jobs in the order{group}"
        yield "waits", _stage_in_words(trial["name"], why)
        steps = f"{why['remaining_steps']} steps of {seconds(why['step_s'])}"
        yield "left", f"{steps}: {seconds(why['left_s'])} with the network to itself"
        yield from _link_in_words(why["bottleneck"])


def _stage_in_words(name: str, why: Json) -> str:
    if why["stage"] is None:
        return "no stage waits for it"
    running = why["stage_jobs"]
    if running == 1:
        return f"stage {shown(why['stage'])}, of whose trials it alone runs"
    slowest = "it is the slowest" if why["slowest"] == name else f"the slowest is {shown(why['slowest'])}"
    return f"stage {shown(why['stage'])}, of whose trials {running} run; {slowest}"


def _link_in_words(link: Json | None) -> Iterator[tuple[str, str]]:
    if link is None:
        yield "bottleneck", "none: it sends nothing between hosts"
        return
    ends = f"{shown(link['src'])} to {shown(link['dst'])} at {quantity(link['rate_bps'], 'bit/s')}"
    yield "bottleneck", f"{ends}: {quantity(link['left_bytes'], 'B')} left, {seconds(link['left_s'])} alone"
    ahead, beside = link["jobs_ahead"], link["jobs_beside"]
    first = f"{ahead} {'job' if ahead == 1 else 'jobs'} there for {seconds(link['ahead_s'])}" if ahead else "nobody there"
    yield "goes first", f"{first}; {beside} {'other is' if beside == 1 else 'others are'} of its own class"


def _targets(trial: Json) -> FittedTable | None:
    if not trial["targets"]:
        return None
    rows = FittedTable("target", "stage", "set", "reached", right=("target", "set"), names=("stage",))
    for target in trial["targets"][-MAX_ATTEMPTS:]:
        reached = "not yet" if target["reached_s"] is None else f"after {seconds(target['time_s'])}"
        rows.add(f"step {target['step']}", shown(target["stage"]), f"{ago(target['set_s'])} ago", reached)
    return rows


def _attempts(attempts: Sequence[Json]) -> FittedTable | None:
    if not attempts:
        return None
    rows = FittedTable("attempt", "began", "ran for", "ended", "hosts", right=("began", "ran for"), names=("attempt", "hosts"))
    for attempt in attempts[-MAX_ATTEMPTS:]:
        began, ran = f"{ago(attempt['started_s'])} ago", ago(attempt["started_s"], attempt["ended_s"])
        hosts = summary.hosts_of({"attempts": [attempt]})
        rows.add(shown(attempt["name"]), began, ran, shown(attempt["reason"] or "runs"), hosts)
    return rows


def _workers(trial: Json) -> FittedTable | None:
    attempt = summary.last_attempt(trial)
    if attempt is None:
        return None
    lacking = {one["rank"]: one for one in trial["unattached"]}
    rows = FittedTable("rank", "host", "role", "process", right=("rank",), names=("host",), wrapped=("process",))
    for worker in attempt["workers"][:MAX_WORKERS]:
        process = worker["process"]
        known = "not attached" if process is None else f"{process['pid']}{', leased' if process['leased'] else ''}"
        if one := lacking.get(worker["rank"]):
            known += f"; agent {shown(one['agent'])}: {shown(one['reason'])}"
        rows.add(str(worker["rank"]), shown(worker["host"]), shown(worker["role"]), known)
    more = len(attempt["workers"]) - MAX_WORKERS
    if more > 0:
        rows.add("...", f"{more} more", "", "")
    return rows


def _estimates(estimates: Json | None) -> FittedTable | None:
    if estimates is None:
        return None
    rows = FittedTable("estimate", "used", "from", "declared", right=("used", "declared"), names=("estimate",))
    for name, label, form in _ESTIMATES:
        one = estimates[name]
        rows.add(label, form(one["value"]), shown(one["source"]), form(one["declared"]))
    return rows
