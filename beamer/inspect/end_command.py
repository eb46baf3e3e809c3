"""`beamer study end`: ends a search whose tuner cannot, after saying what that means."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from beamer.client.request import Address
from beamer.errors import InputError
from beamer.inspect import summary
from beamer.inspect.api import ControllerApi
from beamer.inspect.options import JsonFlag, RunOption, StudyArgument, UrlOption
from beamer.inspect.text import console, counts, few, print_json, several, shown
from beamer.studies.model import TrialStatus

Json = Mapping[str, Any]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def end(
    study: StudyArgument, run: RunOption = None, yes: Yes = False, url: UrlOption = None, as_json: JsonFlag = False
) -> None:
    """End a study: its trials that have not ended count as killed, and its stages are not waited for any more.

    Beamer stops no process of theirs, unless an engine of its own runs them. May be repeated.
    """
    with ControllerApi(url) as api:
        found = api.get(Address(study, run).path())
        left = [trial["name"] for trial in found["trials"] if not TrialStatus(trial["status"]).is_finished]
        named = f"study {shown(found['name'])}, run {shown(found['run'])}"
        if not summary.is_over(found) and not yes:
            _ask(found, named, left, as_json)
        changed = False
        if not summary.is_over(found):
            # The run that was shown is ended, not one that has replaced it since.
            changed = api.put(Address(study, found["run"]).path("end"))["changed"]
    if as_json:
        print_json({"study": found["name"], "run": found["run"], "changed": changed, "killed": left if changed else []})
    elif changed:
        console().print(f"{named} has ended, and with it {several(len(left), 'trial')}{_listed(left)}")
    else:
        console().print(f"{named} had ended before: nothing was changed")


def _ask(found: Json, named: str, left: Sequence[str], as_json: bool) -> None:
    """Say what is about to happen, and end the process unless the user agrees. Raises `InputError` where nobody can."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("--yes", None, f"--yes where nobody can be asked, to end {named} with {several(len(left), 'trial')}")
    out = console()
    out.print(f"{named}: {counts(summary.trial_counts(found))}")
    if members := [f"{one['name']} on {one.get('host') or 'an unknown host'}" for one in found.get("members", ())]:
        out.print(f"these processes take part in it, and are not stopped: {few(members)}")
    out.print(f"{len(left)} trials will count as killed{_listed(left)}; their processes are not stopped")
    if not typer.confirm("End it?"):
        out.print("nothing was changed")
        raise typer.Exit(1)


def _listed(names: Sequence[str]) -> str:
    return f": {few(names)}" if names else ""
