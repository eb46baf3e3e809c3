"""`beamer journal`: look after the database in which a controller or a scheduler keeps what it has taken in."""

import json
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, NewerError, PlatformError
from beamer.network import events as _network_events  # noqa: F401  # Events are read by the names that this import makes known.
from beamer.network.fabric import Fabric
from beamer.network.fabric_file import read_fabric
from beamer.progress import Work, work
from beamer.studies.events import Event
from beamer.studies.journal.chain import BEGINNING, ChainLink
from beamer.studies.journal.location import check_no_secret, sqlite_file
from beamer.studies.journal.store import Journal
from beamer.studies.registry import Retention
from controller.journal.replay import parts_of, recover, snapshot
from controller.limits import Limits, read_limits

EVENTS_SHOWN = 1000  # After so many a terminal shows how many were read.
LOOKS = 3  # A journal is read so often at most, as a running controller may compact it meanwhile.


class JournalAction(StrEnum):
    """What is done with a journal."""

    CHECK = "check"
    REPAIR = "repair"
    COMPACT = "compact"


def journal(
    action: Annotated[JournalAction, typer.Argument(help="check, repair or compact.", metavar="ACTION")],
    url: Annotated[str, typer.Argument(help="The journal's database URL, as beamer-controller has it.", metavar="URL")],
    fabric: Annotated[
        Path | None, typer.Option(help="The network, as beamer-controller has it: check tells more with it, compact needs it.")
    ] = None,
    limits: Annotated[
        Path | None, typer.Option(help="The controller's limits, as it has them: how much compact keeps of what is over.")
    ] = None,
    removed: Annotated[
        Path | None, typer.Option(help="Where repair writes what it removes.  [default: beside a SQLite file]")
    ] = None,
) -> None:
    """Check a journal, repair it, or compact it: let a snapshot take the place of its events.

    check: reads everything, also while a controller runs. repair: keeps what comes before the first damage and writes the rest
    to a file. Repair and compact are refused while somebody else writes the journal. Each refuses what a newer Beamer wrote.
    """
    check_no_secret(url, "URL")
    carry_out, options = ACTIONS[action]
    given = {"fabric": fabric, "limits": limits, "removed": removed}
    for option, path in given.items():
        if path is not None and option not in options:
            raise InputError(f"--{option}", str(path), f"no such option beside {action}")
    carry_out(url, **{option: given[option] for option in options})


def check(url: str, fabric: Path | None = None, limits: Path | None = None) -> None:
    """Read everything. Raises `InputError` naming the first damage."""
    basis = None if fabric is None and limits is None else _basis(fabric, limits)
    opened = Journal(url, writes=False)
    try:
        for look in range(LOOKS):
            before = opened.snapshot()
            try:
                with work("checking events") as shown:
                    link, last = _read(opened, shown)
                break
            except InputError:
                if opened.snapshot() == before or look == LOOKS - 1:
                    raise
        begins = f"a snapshot at event {before.link.number}, " if before else ""
        print(f"{begins}{link.number} events, the last one of {last.at_s:.3f} s" if last else f"{begins}no event after it")
        if before:
            parts_of(before, opened)
        if basis is not None:
            network, kept = basis
            with work("replaying events"):
                recovered = recover(opened, network, 1.0, kept)
            trials = recovered.tracker.trials
            print(f"{len(recovered.tracker.studies)} studies, {len(trials)} trials, {len(recovered.tracker.running)} running")
    finally:
        opened.close()


def repair(url: str, removed: Path | None = None) -> None:
    """Keep what comes before the first damage, and write what is removed to a file first."""
    file = sqlite_file(url)
    kept_in = removed or (file.with_name(file.name + ".removed.jsonl") if file else None)
    if kept_in is None:
        raise InputError("--removed", None, "a file for what is removed, as the journal is not in a file itself")
    if kept_in.exists():
        raise InputError("--removed", str(kept_in), "a file that does not exist yet: it holds what was removed before")
    opened = Journal(url, damaged=True)
    try:
        try:
            with work("checking events") as shown:
                link, _ = _read(opened, shown)
        except InputError as error:
            damage = error
        else:
            print(f"{link.number} events, none of them damaged: nothing was changed")
            return
        with work("looking for the damage"):
            link = _last_sound(opened)
        rows = [json.dumps({"number": number, "kind": kind, "content": text}) for number, kind, text in opened.rows_after(link)]
        try:
            kept_in.write_text("".join(row + "\n" for row in rows))
        except OSError as error:
            raise PlatformError(
                f"{kept_in} cannot be written ({error.strerror})", "give another file with --removed"
            ) from error
        opened.cut(link, int(time.time()))  # Even with a new writer every second, a journal has had fewer.
        print(f"damage: {damage}")
        print(f"kept: {link.number} events; removed: {len(rows)} rows, which are in {kept_in}")
    finally:
        opened.close()


def compact(url: str, fabric: Path | None = None, limits: Path | None = None) -> None:
    """Let a snapshot take the place of all events."""
    network, kept = _basis(fabric, limits)
    opened = Journal(url)
    try:
        with work("taking a snapshot"):
            made = snapshot(opened, network, kept)
        with work("replacing events by the snapshot"):
            opened.compact(made)
        print(f"a snapshot of {len(made.content)} bytes stands for the first {made.link.number} events")
    finally:
        opened.close()


ACTIONS: Mapping[JournalAction, tuple[Callable[..., None], tuple[str, ...]]] = {
    JournalAction.CHECK: (check, ("fabric", "limits")),
    JournalAction.REPAIR: (repair, ("removed",)),
    JournalAction.COMPACT: (compact, ("fabric", "limits")),
}
"""What carries each out, and the options that it takes."""


def _basis(fabric: Path | None, limits: Path | None) -> tuple[Fabric, Retention]:
    """Return what events are replayed on, and how much is kept of what is over. Raises `InputError`."""
    if fabric is None:
        raise InputError("--fabric", None, "the network's file, as beamer-controller has it")
    return read_fabric(fabric), (Limits() if limits is None else read_limits(limits)).kept


def _last_sound(opened: Journal) -> ChainLink:
    """Return the link of the last event before which none is damaged.

    Raises `InputError` where the snapshot is damaged, `NewerError` where whole events follow that only a newer Beamer reads.
    """
    begins = opened.snapshot()
    link = begins.link if begins else BEGINNING
    try:
        for link, _ in opened.entries(to_head=False):  # noqa: B007
            pass
    except NewerError:
        raise  # The journal is whole and must not be cut.
    except InputError:
        pass
    return link


def _read(opened: Journal, shown: Work) -> tuple[ChainLink, Event | None]:
    last = opened.snapshot()
    link, event = (last.link if last else BEGINNING), None
    for link, event in opened.entries():  # noqa: B007
        if link.number % EVENTS_SHOWN == 0:
            shown.begin(f"checking events: {link.number}")
    return link, event
