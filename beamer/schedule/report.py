"""What is printed and written of a search: lines while it runs, a table and figures at its end."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from beamer.errors import shortened
from beamer.gpu.devices import Devices
from beamer.gpu.events import Allocated, NodesSeen, ReportRefused, RunFailed, RunFinished, TrialReported, TrialSampled
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Job
from beamer.schedule.file import Search
from beamer.schedule.statistics import SearchStatistics
from beamer.studies.events import Event, TrialEnded
from beamer.studies.model import TrialStatus, split_key, trial_key
from beamer.yaml_files import parse_scalar

REACHED = "reached"
NOTHING: Mapping[str, int] = MappingProxyType({})
GIB = 2**30
MAX_NUMBER_CHARACTERS = 6
MAX_SHOWN = 400  # A line has at most so many characters of a reason; `--json` has all of it.


@dataclass(frozen=True)
class TrialRow:
    """What became of a configuration. rung: the last that it was in, "" without rungs.

    loss, best_loss: None without a finite one. service_s, gpu_s: seconds on GPUs, GPU-seconds. failures: of its runs, each
    started again but for the last one of a configuration that failed. reason: of the latest, "" without any. refused: what it
    printed as a report that is none, and what was expected; "" where nothing was. gpu_bytes: the most GPU memory that it was
    seen to hold since this command began, None: not known.
    """

    name: str
    values: Mapping[str, Any]
    status: str
    rung: str
    iterations: float
    loss: float | None
    best_loss: float | None
    service_s: float
    gpu_s: float
    suspensions: int
    restarts: int
    failures: int = 0
    reason: str = ""
    refused: str = ""
    gpu_bytes: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether it has not failed."""
        return self.status != TrialStatus.FAILED


def rows(
    search: Search, ledger: GpuLedger, statistics: SearchStatistics, now: float, gpu_bytes: Mapping[str, int] = NOTHING
) -> list[TrialRow]:
    """Return a row per configuration, ranked, the best first. gpu_bytes: as of `TrialRow`, by the keys of trials."""
    found = [_row(search, ledger, statistics, trial.name, trial.values, now) for trial in search.trials]
    return ranked(search, [replace(row, gpu_bytes=gpu_bytes.get(trial_key(search.name, row.name))) for row in found])


def ranked(search: Search, found: Iterable[TrialRow]) -> list[TrialRow]:
    """Return rows in the one ranking of a search, the best first.

    Those that reached the target come first, then those of the last rung, of these the one with the least last loss. Those
    without a finite last loss come after all that have one, those that failed after these. A better loss that a configuration
    had before its last one does not count: its checkpoint is of the last.
    """

    def rank(row: TrialRow) -> tuple[bool, bool, bool, int, float]:
        return not row.is_sound, row.loss is None, row.status != REACHED, -search.rung.get(row.rung, 0), row.loss or 0.0

    return sorted(found, key=rank)


def best_of(found: Sequence[TrialRow]) -> TrialRow | None:
    """Return the first of ranked rows, None if it has failed or has no loss: then none of them has won."""
    first = next(iter(found), None)
    return first if first is not None and first.is_sound and first.loss is not None else None


def _row(
    search: Search, ledger: GpuLedger, statistics: SearchStatistics, name: str, values: Mapping[str, Any], now: float
) -> TrialRow:
    key = trial_key(search.name, name)
    job = ledger.job(key) or ledger.ended.get(key)
    if job is None:
        first = search.rungs[0].name if search.rungs else ""
        return TrialRow(name, values, TrialStatus.WAITING, first, 0.0, None, None, 0.0, 0.0, 0, 0)
    losses = [report.loss for report in job.reports]
    finite = [loss for loss in losses if math.isfinite(loss)]
    counts = statistics.counts[key]
    return TrialRow(
        name,
        values,
        _status(job, statistics),
        job.stage.name,
        job.done,
        losses[-1] if losses and math.isfinite(losses[-1]) else None,
        min(finite, default=None),
        job.service_at(now),
        job.gpu_seconds_at(now),
        counts.suspensions,
        counts.restarts,
        counts.failures,
        next((failure.reason for failure in reversed(ledger.failures(key))), ""),
        ledger.refused(key),
    )


def _status(job: Job, statistics: SearchStatistics) -> str:
    end = statistics.ends.get(job.key)
    if end is None:
        return TrialStatus.RUNNING if job.grant else TrialStatus.WAITING
    return REACHED if job.key in statistics.reached and end.status is TrialStatus.FINISHED else end.status.value


def document(
    search: Search, policy: str, found: Sequence[TrialRow], statistics: SearchStatistics, started_s: float, now: float
) -> dict[str, Any]:
    """Return a search's figures as JSON. found: as of `rows`. started_s: when it was first, however often it was resumed."""
    best = best_of(found)
    reached_s = min((report.at_s for report in statistics.reached.values()), default=None)
    return {
        "search": search.name,
        "policy": policy,
        "elapsed_s": now - started_s,
        "target_reached_s": None if reached_s is None else reached_s - started_s,
        "decisions": statistics.decisions,
        "best": best.name if best else None,
        "configurations": [{**asdict(row), "values": _plain(row.values)} for row in found],
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values, which programs are given as they are written, as JSON has them: numbers and truth values as such.

    A whole number that is not written as JSON has it, such as 007, stays a text: it may be a name.
    """
    read = {key: parse_scalar(str(value)) for key, value in values.items()}
    return {
        key: one if isinstance(one, bool | float) or str(one) == str(values[key]) else values[key] for key, one in read.items()
    }


def table(title: str, found: Sequence[TrialRow], in_rungs: bool) -> Table:
    """Return a table with a row per configuration.

    Its columns: iterations done, last and best loss, GPU-seconds, where it is known of any the most GPU memory that it was seen
    to hold, in GiB, how often suspended and restarted, and, if any failed, how many runs did.
    """
    holds = any(row.gpu_bytes is not None for row in found)
    fails = any(row.failures for row in found)
    made = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    made.add_column("configuration", overflow="fold", ratio=1)
    for heading in ("status", *(["rung"] if in_rungs else [])):
        made.add_column(heading, no_wrap=True)
    held = ["GPU GiB"] if holds else []
    for heading in ("done", "loss", "best", "GPU s", *held, "susp.", "rest.", *(["fail."] if fails else [])):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in found:
        cells = [row.name, row.status, *([row.rung.removeprefix("rung")] if in_rungs else []), f"{row.iterations:g}"]
        cells += ["-" if loss is None else f"{loss:.4g}" for loss in (row.loss, row.best_loss)]
        counts = (row.suspensions, row.restarts, *([row.failures] if fails else []))
        memory = ["-" if row.gpu_bytes is None else f"{row.gpu_bytes / GIB:.1f}"] if holds else []
        made.add_row(*map(escape, cells), f"{row.gpu_s:.1f}", *memory, *map(str, counts))
    return made


def remarks(found: Sequence[TrialRow]) -> list[str]:
    """Return what is to be said about configurations below the table: why they failed, what of their output was refused."""
    said: list[str] = []
    for row in found:
        if row.reason:
            again = "" if not row.is_sound else ", and was started again"
            said.append(f"{row.name} failed {_times(row.failures)}{again}: {_in_a_line(row.reason)}")
        if row.refused:
            said.append(f"{row.name}: {_in_a_line(row.refused)}")
    return said


def stopped_on_nothing(search: Search, ledger: GpuLedger, statistics: SearchStatistics, rung: str) -> list[str]:
    """Return what is to be said of a search that has stopped before a rung is judged on nothing. rung: that rung."""
    stopped, again = f"{search.name} has stopped before a rung is judged on nothing", "and start the search in a new --dir"
    if not statistics.reports:
        said = [f"{stopped}: no line of any configuration was read as progress"]
        for key in sorted(statistics.unread)[:1]:
            said += f"{short_name(key)} has come to its end: {ledger.refused(key)}".splitlines()
        return [*said, f"correct job.progress or what the program prints, {again}"]
    return [
        f"{stopped}: no configuration came to the end of {rung} with a finite loss",
        f"correct what the program prints, or what makes its losses infinite, {again}",
    ]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times, the last time"


def _in_a_line(text: str) -> str:
    """Return the first and the last line of a text: of a failure how it ended, and the end of what was printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shortened(" ... ".join(lines if len(lines) < 3 else (lines[0], lines[-1])), MAX_SHOWN)


def lines(event: Event, before: Mapping[str, Devices], statistics: SearchStatistics, ledger: GpuLedger) -> list[str]:
    """Return the lines to print about an event that has been counted. before: the GPUs that trials had."""
    match event:
        case TrialSampled(trial=trial, values=values):
            return [f"{trial} is drawn: {values_line(values)}"]
        case NodesSeen(nodes=nodes):
            return ["nodes: " + (", ".join(f"{node.name} ({node.gpus} GPUs)" for node in nodes) or "none is up")]
        case Allocated(generation=generation, policy=policy):
            started = [
                f"{short_name(key)} on {where(now)}" for key, now in statistics.devices.items() if before.get(key) != now
            ]
            gone = [short_name(key) for key in before if key not in statistics.devices]
            parts = [*started, *(["waiting again: " + ", ".join(gone)] if gone else [])]
            return [f"{policy} #{generation}: " + "; ".join(parts)] if parts else []
        case RunFailed(trial=key, reason=reason):
            return [f"{short_name(key)} has failed {_times(statistics.counts[key].failures)}: {_in_a_line(reason)}"]
        case ReportRefused(trial=key, reason=reason):
            return [f"{short_name(key)}: {_in_a_line(reason)}"]
        case RunFinished(trial=key) if (job := ledger.job(key)) and job.stage.name and not ledger.is_complete(key):
            loss = f", loss {job.reports[-1].loss:.4g}" if job.reports else ""
            return [f"{short_name(key)} has come to the end of {job.stage.name}{loss}"]
        case TrialEnded(trial=key, status=status):
            job = ledger.ended.get(key)
            last = job.reports[-1] if job and job.reports else None
            how = f" after {last.iteration:g} iterations, loss {last.loss:.4g}" if last else ""
            return [f"{short_name(key)} {status.value}{how}"]
        case TrialReported(trial=key, report=report) if report and statistics.reached.get(key) is event:
            return [f"{short_name(key)} has reached the target: loss {report.loss:.4g} after {report.iteration:g} iterations"]
        case _:
            return []


def values_line(values: Mapping[str, Any]) -> str:
    """Return a configuration's values for people: of numbers with more digits, four."""
    return ", ".join(f"{name} {_shown(str(value))}" for name, value in values.items())


def _shown(text: str) -> str:
    read = parse_scalar(text)
    return f"{read:.4g}" if isinstance(read, float) and len(text) > MAX_NUMBER_CHARACTERS else text


def short_name(key: str) -> str:
    """Return a trial's name within its search."""
    return split_key(key)[1]


def memory_line(held: Mapping[str, int], suspended: Collection[str]) -> str:
    """Return the line about the GPU memory that trials hold, the most first. held: bytes, by key; suspended: keys."""
    ordered = sorted(held, key=lambda key: (-held[key], key))
    parts = [f"{short_name(key)} {held[key] / GIB:.1f} GiB{' (suspended)' if key in suspended else ''}" for key in ordered]
    return "GPU memory: " + ", ".join(parts)


def where(devices: Devices) -> str:
    """Return GPUs for people."""
    return ", ".join(f"{node}:{index}" for node, index in devices)
