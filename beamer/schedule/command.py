"""`beamer schedule`."""

import json
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.markup import escape

from beamer.engines.local import LocalEngine
from beamer.engines.local.retire import retire
from beamer.errors import InputError, nearest
from beamer.gpu.devices import Devices
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.gpu.policy import GpuPolicy
from beamer.outputs import check_outputs
from beamer.schedule.file import Search, load, shipped
from beamer.schedule.place import Place
from beamer.schedule.report import document, lines, rows, table
from beamer.schedule.session import POLL_S, Session
from beamer.studies.events import Event
from beamer.studies.journal.store import Journal
from beamer.studies.model import JobStatus
from beamer.validation import input_error

REMOTE_POLL_S = 1.0
LEAST_S = 0.005
PATIENCE_S = 30.0
STOPS = (signal.SIGINT, signal.SIGTERM)


def schedule(
    search: Annotated[
        Path | None,
        typer.Argument(help="Search file (YAML); what was begun in --dir by default, or else the shipped one."),
    ] = None,
    *,
    directory: Annotated[Path, typer.Option("--dir", help="Where jobs, checkpoints and outputs lie.", file_okay=False)],
    policy: Annotated[str, typer.Option(help=f"GPU policy: {', '.join(GPU_POLICIES)}.")] = "convergence",
    settings: Annotated[list[str], typer.Option("--set", help="A parameter of the policy, NAME=VALUE; repeatable.")] = [],  # noqa: B006
    journal: Annotated[str, typer.Option(help="Database URL of the journal.  [default: journal.db in --dir]")] = "",
    seed: Annotated[int, typer.Option(help="Of the policy's draws.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", dir_okay=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the table.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Save and end what still runs of the search in --dir.")] = False,
) -> None:
    """Run a search of real training processes under a GPU policy.

    Interrupted, it saves every job at an iteration boundary; the same command goes on with it, also after it was killed.
    """
    chosen = policy_of(policy, settings)
    given = None if search is None else load(search)
    if json_file is not None and not json_file.parent.is_dir() and json_file.resolve().parent != directory.resolve():
        raise InputError("--json", str(json_file), f"a file in a directory that exists: {json_file.parent} does not")
    check_outputs({"--json": json_file})
    if stop and not (directory / "search").exists():
        raise InputError("--dir", str(directory), "a directory in which a search was begun")
    with Place(directory, journal) as place:
        _Command(place, given or place.begun() or load(shipped()), chosen, seed, json_file, quiet).run(stop)


def policy_of(name: str, settings: list[str]) -> GpuPolicy[Any]:
    """Return the policy of that name with settings NAME=VALUE parsed as its fields' types. Raises `InputError`."""
    if name not in GPU_POLICIES:
        return gpu_policy(name)
    hints = get_type_hints(GPU_POLICIES[name])
    types = {field.name: hints[field.name] for field in fields(GPU_POLICIES[name])}  # type: ignore[arg-type]  # a dataclass
    parameters: dict[str, Any] = {}
    for setting in settings:
        parameter, is_set, text = setting.partition("=")
        if not is_set:
            raise InputError("--set", setting, "NAME=VALUE")
        if parameter not in types:
            raise InputError(f"{name}.{parameter}", text, nearest(parameter, types) if types else "no parameter")
        try:
            parameters[parameter] = TypeAdapter(types[parameter]).validate_strings(text)
        except ValidationError as error:
            found = input_error(error)
            raise InputError(f"{name}.{parameter}", text, found.expected) from error
    try:
        return gpu_policy(name, **parameters)
    except InputError as error:
        field = error.field if error.field.startswith(f"{name}.") else f"{name}.{error.field}"
        raise InputError(field, error.value, error.expected) from error


class _Command:
    """One run of the command in a place."""

    def __init__(
        self, place: Place, search: Search, policy: GpuPolicy[Any], seed: int, json_file: Path | None, quiet: bool
    ) -> None:
        self.place = place
        self.search = search
        self.policy = policy
        self.seed = seed
        self.json_file = json_file
        self.quiet = quiet
        self.told: list[int] = []
        self.console = _Output(self.told)
        self.errors = _Output(self.told, stderr=True)
        self.session: Session

    def run(self, stop: bool) -> None:
        """Run the search to its end, or until told to stop; raises `typer.Exit` with the exit code unless that is 0."""
        logging.getLogger("beamer.gpu").addHandler(_Lines(self.errors))
        for sign in STOPS:
            signal.signal(sign, lambda number, frame: self.told.append(number))
        journal = Journal(self.place.journal)
        try:
            self.place.begin(self.search, next(iter(journal.replay()), None) is not None)
            engine = LocalEngine(
                self.search.cluster,
                self.place.path / "jobs",
                lambda key: self.search.launch(key, self.place.path),
                keep_memory=self.search.keep_memory,
                group=self.search.group,
            )
            try:
                patience_s = PATIENCE_S + max(task.launch.grace_s for task in self.search.tasks.values())
                self.session = Session(
                    self.search, self.policy, engine, journal.replay(), journal.append, self.hear, self.seed, patience_s
                )
                if stop:
                    self.told.append(0)
                else:
                    self._lead()
                all_saved = self._settle() if self.session.done else self._leave()
            finally:
                engine.close()
            if all_saved:  # or it would end ranks that go on
                for line in retire(self.search.cluster, self.place.path / "jobs"):
                    self.errors.print(escape(line), highlight=False)
            self._end(stop)
        finally:
            journal.close()

    def hear(self, event: Event, before: Mapping[str, Devices]) -> None:
        """Print what there is to tell about an event."""
        if not self.quiet:
            for line in lines(event, before, self.session.tally, self.session.ledger):
                self._say(line, event.at_s)

    def _lead(self) -> None:
        direct = all(node.launcher.direct for node in self.search.cluster.nodes)
        poll_s = POLL_S if direct else REMOTE_POLL_S
        self.session.begin(time.time())
        while not self.session.done and not self.told:
            wake_s = self.session.step(time.time())
            wait_s = poll_s if wake_s is None else min(max(wake_s - time.time(), LEAST_S), poll_s)
            if not self.told and not self.session.done:
                time.sleep(wait_s)

    def _settle(self) -> bool:
        """Wait until nothing is left of jobs, which have ended; return whether that is so."""
        before = len(self.told)
        gone = self.session.settle(lambda: len(self.told) > before)
        if not gone:
            self.errors.print("supervisors of jobs that have ended are left: --stop ends them", highlight=False)
        return gone

    def _leave(self) -> bool:
        """Save what runs, or let it run on upon a second signal; return whether all is saved."""
        if not self.quiet:
            self._say("saving every job at its next iteration", time.time())
        saved = self.session.park(lambda: len(self.told) > 1)
        if not saved:
            self.errors.print("not every job is saved: those go on under their supervisors, --stop ends them", highlight=False)
        return saved

    def _end(self, stop: bool) -> None:
        """Tell what became of the search."""
        tracker, tally, now = self.session.tracker, self.session.tally, time.time()
        found = rows(self.search, self.session.ledger, tally, now)
        last = self.session.ledger.decision
        policy = last.policy if last else self.policy.name
        self.console.print(table(f"{self.search.name} under {policy}", found, len(self.search.rungs) > 1))
        if self.json_file is not None:
            begun_s = tracker.studies[self.search.name].registered_s if self.session.begun else now
            figures = document(self.search, policy, found, tally, begun_s, now)
            self.json_file.write_text(json.dumps(figures, indent=2))
        if not self.session.done:
            self.console.print("to go on, run the same command again" + (" without --stop" if stop else ""), highlight=False)
            if not stop:
                raise typer.Exit(128 + self.told[0])
        elif all(row.status == JobStatus.FAILED for row in found):
            raise typer.Exit(1)

    def _say(self, line: str, at_s: float) -> None:
        begun_s = self.session.tracker.studies[self.search.name].registered_s if self.session.begun else at_s
        self.console.print(f"{max(at_s - begun_s, 0.0):8.1f} s  {escape(line)}", highlight=False, soft_wrap=True)


class _Output(Console):
    """A console that nobody reading it any more (`| head`) tells the command to stop, as a signal does. told: its signals."""

    def __init__(self, told: list[int], stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        self._told = told

    def on_broken_pipe(self) -> None:
        """Be silent from now on, also when the interpreter ends."""
        self.quiet = True
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), self.file.fileno())
        if not self._told:  # who read it may have been ended by the same Ctrl-C, which is not to count twice
            self._told.append(signal.SIGPIPE)


class _Lines(logging.Handler):
    """Prints every message once: what cannot be done is tried again and again."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._console.print(escape(text), highlight=False, soft_wrap=True)
