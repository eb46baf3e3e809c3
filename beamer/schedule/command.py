"""`beamer schedule`."""

import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape

from beamer.clock import SteadyClock
from beamer.engines.local import LaunchSpec
from beamer.errors import InputError
from beamer.gpu.decider import by_policy
from beamer.gpu.devices import Devices
from beamer.gpu.engine import RunState
from beamer.gpu.events import Allocated
from beamer.gpu.link import EngineLink
from beamer.gpu.policies import GPU_POLICIES
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.policy_settings import gpu_policy_of
from beamer.gpu.remote import begin, by_controller, leave, run_of
from beamer.output_files import check_outputs
from beamer.schedule.directory import SearchDirectory
from beamer.schedule.file import Search, load, shipped
from beamer.schedule.live import frame, nothing_shown, shown
from beamer.schedule.machine_gpus import HeldMemory, MachineGpus
from beamer.schedule.output import PrintOnce, SearchConsole
from beamer.schedule.programs import check_programs
from beamer.schedule.report import best_of, document, lines, memory_line, remarks, rows, stopped_on_nothing, table
from beamer.schedule.sampling import DrawsCopy
from beamer.schedule.session import SearchSession
from beamer.schedule.stop_signals import StopSignals
from beamer.studies.events import Event
from beamer.studies.journal.store import Journal

ALL_FAILED = LEFT = 1  # exit codes; LEFT: something still runs that should have ended
REFUSED, SOME_FAILED = 2, 3
MEMORY_STEP = 1 << 26  # Bytes: a controller is told of what trials hold when it has changed by so much, not with every look.
MIN_WAIT_S = 0.005  # the least time between two steps
POLICY = "convergence"
PARK_TIMEOUT_S = 30.0  # The time is in addition to what a job may take to write its checkpoint.

log = logging.getLogger("beamer.schedule")


def schedule(
    search: Annotated[
        Path | None,
        typer.Argument(help="Search file (YAML); what was started in --dir by default, or else the shipped one."),
    ] = None,
    *,
    directory: Annotated[Path, typer.Option("--dir", help="Where jobs, checkpoints and outputs lie.", file_okay=False)],
    policy: Annotated[
        str, typer.Option(help=f"GPU policy: {', '.join(GPU_POLICIES)}.  [default: {POLICY}, or the controller's]")
    ] = "",
    settings: Annotated[list[str], typer.Option("--set", help="A parameter of the policy, NAME=VALUE; repeatable.")] = [],  # noqa: B006
    controller: Annotated[
        str, typer.Option(help="URL of a controller that shares nodes and network among searches, or several with commas.")
    ] = "",
    journal: Annotated[str, typer.Option(help="Database URL of the journal.  [default: journal.db in --dir]")] = "",
    seed: Annotated[int, typer.Option(help="Of the policy's draws.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", dir_okay=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the table.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Save and end what still runs of the search in --dir.")] = False,
    kill: Annotated[
        bool,
        typer.Option("--kill", help="As --stop, and kill what has not ended in time: it continues from its last checkpoint."),
    ] = False,
) -> None:
    """Run a search of real training processes under a GPU policy.

    Interrupted, it saves every job at an iteration boundary; the same command continues it, also after it was killed. The third
    signal ends it at once, and its jobs run on. Ends with 1 where something is left running that should have ended.
    """
    stop = stop or kill
    if controller and seed:
        raise InputError("--seed", seed, "none beside --controller, which has its own")
    if controller and (policy or settings):
        raise InputError(
            "--policy" if policy else "--set", policy or settings[0], "none beside --controller, which has its own"
        )
    chosen = gpu_policy_of(policy or POLICY, settings)
    given = None if search is None else load(search)
    if json_file is not None and not json_file.parent.is_dir() and json_file.resolve().parent != directory.resolve():
        raise InputError("--json", str(json_file), f"a file in a directory that exists: {json_file.parent} does not")
    check_outputs({"--json": json_file})
    if stop and not (directory / "search").exists():
        raise InputError("--dir", str(directory), "a directory in which a search was started")
    with SearchDirectory(directory, journal) as opened:
        started = opened.named(given) if given else opened.started_search() or load(shipped())
        command = _Command(opened, started, chosen, seed, json_file, quiet, controller)
        with command.stops:
            try:
                command.run(stop, kill)
            except InputError as error:
                if error.field != "controller":
                    raise
                raise InputError("--controller", error.value, error.expected) from error


def in_steps(held_bytes: Mapping[str, int]) -> dict[str, int]:
    """Return what trials hold in whole `MEMORY_STEP`s, the next one up, so that what is held never shows as nothing."""
    return {key: -(-count // MEMORY_STEP) * MEMORY_STEP for key, count in held_bytes.items()}


class _Command:
    """One run of the command in a search's directory."""

    def __init__(
        self,
        directory: SearchDirectory,
        search: Search,
        policy: GpuPolicy[Any],
        seed: int,
        json_file: Path | None,
        quiet: bool,
        controller: str,
    ) -> None:
        self.directory = directory
        self.search = search
        self.policy = policy
        self.seed = seed
        self.json_file = json_file
        self.quiet = quiet
        self.controller = controller
        self.link: EngineLink | None = None
        self.stops = StopSignals(self._last_words)
        self.signals = self.stops.numbers
        self.clock = SteadyClock()
        self.console = SearchConsole(self.signals)
        self.errors = SearchConsole(self.signals, stderr=True)
        self.session: SearchSession
        self.gpus = MachineGpus()
        self.memory = HeldMemory(self.gpus)
        self._memory_line = ""
        self._copy: DrawsCopy | None = None
        self._copied = (-1, -1)  # how many draws and results were copied, or tried to
        # True: the search stopped before a rung is judged on nothing; something may have been read since.
        self.judges_nothing = False

    def run(self, stop: bool, kill: bool) -> None:
        """Run the search to its end, or until a signal; raises `typer.Exit` with the exit code unless that is 0.

        stop: whether to save and end what runs at once. kill: whether to kill what does not end in time.
        """
        logging.getLogger("beamer").addHandler(PrintOnce(self.errors))
        journal = Journal(self.directory.journal)
        try:
            if not stop:
                self._find_gpus()
                self._check_parts()
            self.directory.start(self.search, next(iter(journal.replay()), None) is not None)
            run = run_of(journal.replay(), self.controller, str(self.directory.path))
            decider = by_policy(self.policy, self.seed)
            if self.controller:
                self.link = self._linked(journal, run)
                decider = by_controller(self.link)
            engine = self.search.engine.open(self.jobs, lambda key: self._launch(key, run), self.clock)
            try:
                timeout_s = PARK_TIMEOUT_S + self.search.grace_s
                self.session = SearchSession(
                    self.search,
                    decider,
                    engine,
                    journal.replay(),
                    partial(self._write, journal),
                    self.print_event,
                    timeout_s,
                    self.clock,
                    run,
                )
                self.directory.keep()
                self.clock.not_before(self.session.tracker.now_s)
                if stop:
                    self.signals.append(0)
                else:
                    self._copy_draws()
                    self._run_jobs()
                all_saved = self._wait_until_ended()
                if kill and not all_saved:
                    all_saved = self._kill_jobs()
                self._report_end(all_saved)
            finally:
                engine.close()
                if self.link is not None:
                    self.link.close()
            settings = self.search.engine  # Nothing is retired where jobs are not saved, as that would kill them.
            left = settings.retire(self.jobs, kill) if all_saved else settings.left(self.jobs)
            for _, one in left:
                self.errors.print(f"left running: {escape(one)}", highlight=False, soft_wrap=True)
            if left:
                self.errors.print(escape(self._how_to_end(by_force=stop)), highlight=False, soft_wrap=True)
            self._end(stop, bool(left))
        finally:
            self.gpus.close()
            journal.close()

    def print_event(self, event: Event, before: Mapping[str, Devices]) -> None:
        """Print the lines about an event."""
        if not self.quiet:
            for line in lines(event, before, self.session.statistics, self.session.ledger):
                self._print(line, event.at_s)
            if isinstance(event, Allocated):
                self._print_memory(event.at_s)

    def _find_gpus(self) -> None:
        """Check the GPUs of nodes that are of this machine. Raises `InputError` for those that are not there."""
        self.gpus = self.search.engine.find_gpus(self.search.widest)
        self.memory = HeldMemory(self.gpus)
        if self.gpus.remark:
            self.errors.print(escape(self.gpus.remark), highlight=False, soft_wrap=True)

    def _check_parts(self) -> None:
        """Check what a search needs beside its nodes, before anything is written.

        Raises `InputError` for a program or a storage that is not there, `PlatformError` for a package that its sampler needs.
        """
        if self.search.engine.programs_here:
            check_programs(self.search, os.environ)
        if self.search.sampling is not None:
            self.search.sampling.open()
            if self.search.sampling.storage:
                self._copy = self.search.sampling.open_copy(self.search.name)

    def _print_memory(self, at_s: float) -> None:
        """Print what trials hold on GPUs as it was seen last, where it is known and another than was printed last."""
        seen = self.session.scheduler.seen
        held = {key: count for key, count in self.memory.last.items() if key in seen and seen[key].state.has_processes}
        suspended = {key for key, one in seen.items() if one.state is RunState.SUSPENDED}
        line = memory_line(held, suspended) if held else ""
        if line and line != self._memory_line:
            self._print(line, at_s)
        self._memory_line = line

    def _run_jobs(self) -> None:
        poll_s = self.search.poll_s or self.search.engine.poll_interval_s
        self.session.start(self.clock())
        wait = time.sleep if self.link is None else self.link.wait
        with self._shown() as show:
            show()
            while not (self.session.done or self.session.judges_nothing or self.session.missing_program or self.signals):
                wake_s = self.session.step(self.clock())
                self.memory.look(self.session.scheduler.seen, self.clock)
                self._copy_draws()
                show()
                if self.link is not None:
                    self._follow(self.link)
                wait_s = poll_s if wake_s is None else min(max(wake_s - self.clock(), MIN_WAIT_S), poll_s)
                if not self.signals and not self.session.done:
                    wait(wait_s)
        self.judges_nothing = not self.signals and self.session.judges_nothing

    def _shown(self) -> AbstractContextManager[Callable[[], None]]:
        """Show the search in a terminal while it runs; returns what brings the table up to date, where that is due."""
        return nothing_shown() if self.quiet or not self.console.is_terminal else shown(self.console, self.errors, self._frame)

    def _frame(self) -> RenderableType:
        session = self.session
        found = rows(session.search, session.ledger, session.statistics, self.clock())
        return frame(
            found, session.statistics.devices, session.search.trial_count, bool(session.search.rungs), self.console.height
        )

    def _copy_draws(self) -> None:
        """Copy draws and results to the storage that the search names; one that fails is tried again when there are others."""
        draws = self.session.draws
        if draws is None or self._copy is None or self._copied == (state := (len(draws.drawn), len(draws.results))):
            return
        self._copied = state
        try:
            self._copy.update([event.values for event in draws.drawn], draws.results)
        except InputError:
            raise  # It is of another search, which is seen before anything is started.
        except Exception as error:  # noqa: BLE001  The search goes on without the copy, whatever its database raises.
            log.warning("the draws are not copied to %s: %s", draws.sampling.storage, str(error).partition("\n")[0])

    def _linked(self, journal: Journal, run: str) -> EngineLink:
        """Return the link to the controller, which hears of all that has happened. Raises `InputError`."""
        link = EngineLink(self.controller, self.search.name, run, self.search.engine.declared, os.environ)
        begin(link, journal.replay(), self.controller)
        return link

    def _write(self, journal: Journal, event: Event) -> None:
        journal.append(event)
        if self.link is not None:
            self.link.offer(event)

    def _launch(self, key: str, run: str) -> LaunchSpec:
        """Return what to run for a trial. Under a controller it is told which one, and which run of the study it is of."""
        spec = self.session.search.launch(key, self.session.target(key), self.directory.path)
        if not self.controller:
            return spec
        return replace(spec, env=(("BEAMER_URL", self.controller), ("BEAMER_RUN", run), *spec.env))

    def _follow(self, link: EngineLink) -> None:
        """Tell the controller what is used, and do what it says of the search as a whole."""
        link.use(self.session.used, in_steps(self.memory.last))
        if link.refusal:
            self.errors.print(f"the controller refuses the search: {escape(link.refusal)}", highlight=False, soft_wrap=True)
            how = f"it keeps the GPUs of {self.search.name} back until the study is ended there"
            self.errors.print(escape(how), highlight=False, soft_wrap=True)
            self.signals.append(0)
        elif (held := link.held) is not None and held.assignment.ended and not self.session.done:
            self.errors.print("the study was ended at the controller: its configurations are killed", highlight=False)
            self.session.kill(self.clock())

    def _report_end(self, all_saved: bool) -> None:
        """Tell the controller that the search is over, or that none of its processes runs."""
        if self.link is None or self.link.refusal:
            return
        if not all_saved:
            self.errors.print("the controller keeps its GPUs back until the same command has saved the rest", highlight=False)
        elif not leave(self.link):
            what = "that the search is over" if self.session.done else "that its GPUs are free"
            self.errors.print(f"the controller has not confirmed {what}: the same command tells it again", highlight=False)

    @property
    def jobs(self) -> Path:
        """The engine's directory."""
        return self.directory.path / "jobs"

    def _wait_until_ended(self) -> bool:
        """Wait until all jobs are saved, or forgotten if all have ended; return whether they are."""
        return self._wait_until_forgotten() if self.session.done else self._save_jobs()

    def _wait_until_forgotten(self) -> bool:
        """Wait until nothing is left of jobs, which have ended; return whether that is so."""
        before = len(self.signals)
        gone = self.session.wait_until_forgotten(lambda: len(self.signals) > before)
        if not gone:
            self.errors.print("supervisors of jobs that have ended are left", highlight=False)
        return gone

    def _kill_jobs(self) -> bool:
        """Kill what has not ended, and return whether that has ended now: the next supervisor of each finds its run lost."""
        kept, before = self.session.unended, len(self.signals)
        left = {job for job, _ in self.search.engine.left(self.jobs, kept, kill=True)}
        wait = self.session.wait_until_forgotten if self.session.done else self.session.park
        ended = wait(lambda: len(self.signals) > before)
        for key in sorted(kept - left - (set() if ended else self.session.unended)):
            self.errors.print(f"killed: {escape(key)}", highlight=False)
        return ended

    def _how_to_end(self, by_force: bool) -> str:
        """Return how what is left is ended. by_force: whether it has been asked to end already."""
        places = {"--dir": str(self.directory.path), "--journal": self.directory.journal, "--controller": self.controller}
        options = [word for name, place in places.items() if place and isinstance(place, str) for word in (name, place)]
        how = "--kill" if by_force else "--stop, or --kill where that does not suffice"
        return f"to end it: beamer schedule {shlex.join(options)} {how}"

    def _last_words(self) -> str:
        """Return what is left running where the third signal ends the command."""
        left = self.search.engine.left(self.jobs, here=True)
        words = ["ended by the third signal, nothing was waited for", *(f"left running: {one}" for _, one in left)]
        return "".join(f"{word}\n" for word in (*words, *([self._how_to_end(by_force=False)] if left else [])))

    def _save_jobs(self) -> bool:
        """Save what runs, or let it run on upon a second signal; return whether all is saved."""
        if not self.quiet:
            self._print("saving every job at its next iteration", self.clock())
        saved = self.session.park(lambda: len(self.signals) > 1)
        if not saved:
            self.errors.print("not every job is saved: the rest keep their supervisors", highlight=False)
        return saved

    def _end(self, stop: bool, left: bool) -> None:
        """Print the table, write the figures, and set the exit code. left: whether something runs that should have ended."""
        tracker, statistics, now = self.session.tracker, self.session.statistics, self.clock()
        search = self.session.search
        found = rows(search, self.session.ledger, statistics, now, self.memory.most)
        last = self.session.ledger.decision
        policy = last.policy if last else "a controller" if self.controller else self.policy.name
        self.console.print(table(f"{self.search.name} under {policy}", found, bool(self.search.rungs)))
        for line in remarks(found):
            self.console.print(escape(line), highlight=False, soft_wrap=True)
        if self.session.done and best_of(found) is None and any(row.is_sound for row in found):
            nothing = "ended with a finite loss" if statistics.reports else "printed a line that was read as progress"
            self.errors.print(f"no configuration {nothing}: none of them is the best", highlight=False, soft_wrap=True)
        if self.json_file is not None:
            started_s = tracker.studies[self.search.name].registered_s if self.session.started else now
            figures = document(search, policy, found, statistics, started_s, now)
            self.json_file.write_text(json.dumps(figures, indent=2))
        if self.link is not None and self.link.refusal:
            raise typer.Exit(REFUSED)
        if self.session.missing_program:
            remedy = "install it there, or correct job.command or job.python and start the search in a new --dir"
            why = f"{self.session.missing_program.splitlines()[0]}: {remedy}"
            self.errors.print(escape(why), highlight=False, soft_wrap=True)
            raise typer.Exit(REFUSED)
        if self.judges_nothing:
            for line in stopped_on_nothing(self.search, self.session.ledger, statistics, self.session.rung_without_loss):
                self.errors.print(escape(line), highlight=False, soft_wrap=True)
            raise typer.Exit(ALL_FAILED)
        if not self.session.done:
            self.console.print(
                "to continue, run the same command again" + (" without --stop or --kill" if stop else ""), highlight=False
            )
            if not stop:
                raise typer.Exit(128 + self.signals[0])
        if left:
            raise typer.Exit(LEFT)
        if self.session.done and (failed := [row for row in found if not row.is_sound]):
            raise typer.Exit(ALL_FAILED if len(failed) == len(found) else SOME_FAILED)

    def _print(self, line: str, at_s: float) -> None:
        started_s = self.session.tracker.studies[self.search.name].registered_s if self.session.started else at_s
        self.console.print(f"{max(at_s - started_s, 0.0):8.1f} s  {escape(line)}", highlight=False, soft_wrap=True)
