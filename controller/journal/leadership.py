"""One controller leads: it has the right to write the journal. Another one on the same database follows it, ready to take over.

A SQLite journal has one controller, and a second one is refused. In PostgreSQL the right is a lock of the leader's session: the
server ends it with the process, or when nothing is heard of it for some seconds. Whoever follows has taken in nearly all of the
journal by then. A leader that finds its lock with another process ends at once, and is started again as a follower.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from beamer.daemon_thread import in_daemon_thread
from beamer.errors import InputError, PlatformError, TakenError
from beamer.log_limit import LogLimit
from beamer.network.fabric import Fabric
from beamer.studies.journal.location import Location, sqlite_file
from beamer.studies.journal.store import Journal
from beamer.studies.registry import Retention
from controller.journal.replay import Recovered, recover

LOG_AGAIN_S = 60.0  # An unreachable database is logged again after so long: a follower finds it out several times a second.
POLL_S = 0.3  # So long passes between two attempts to lead, each of which takes in what was written meanwhile.

log = structlog.get_logger("beamer-controller")


@dataclass(frozen=True)
class Lead:
    """The right to lead. recovered: all that the journal led to."""

    journal: Journal
    recovered: Recovered


async def lead(url: Location, fabric: Fabric, grace_s: float, kept: Retention, on_following: Callable[[], None]) -> Lead:
    """Return when this process leads.

    grace_s: as of `Leases`. kept: as of `Tracker`. on_following: called when it begins to follow another one.

    Raises `InputError` and `PlatformError` as `Journal`, and `TakenError` where another controller writes a SQLite journal.
    """
    follower: Follower | None = None
    failures = LogLimit(1, LOG_AGAIN_S)
    try:
        while True:
            try:
                journal = await in_daemon_thread(Journal, url)
            except TakenError:
                if sqlite_file(url) is not None:
                    raise
            except PlatformError as error:
                if follower is None:
                    raise
                _log_away(failures, error)
            else:
                known = follower.recovered if follower else None
                return await in_daemon_thread(_taken_over, journal, fabric, grace_s, kept, known)
            if follower is None:
                follower = await in_daemon_thread(Follower, url, fabric, grace_s, kept)
                log.info("following another controller, which leads", events=follower.recovered.link.number)
                on_following()
            try:
                await in_daemon_thread(follower.follow)
            except PlatformError as error:
                _log_away(failures, error)
            await asyncio.sleep(POLL_S)
    finally:
        if follower is not None:
            follower.close()


def _log_away(failures: LogLimit, error: PlatformError) -> None:
    if failures.take("away"):
        log.warning("the journal cannot be followed", reason=str(error))


class Follower:
    """Takes in what another controller writes to the journal."""

    def __init__(self, url: Location, fabric: Fabric, grace_s: float, kept: Retention) -> None:
        self._journal = Journal(url, writes=False)
        self._fabric = fabric
        self._grace_s = grace_s
        self._kept = kept
        self.recovered = recover(self._journal, fabric, grace_s, kept)

    def follow(self) -> None:
        """Take in what was written since the last time. Raises as `recover`."""
        self.recovered = caught_up(self._journal, self._fabric, self._grace_s, self._kept, self.recovered)

    def close(self) -> None:
        """Let go of the database."""
        self._journal.close()


def caught_up(journal: Journal, fabric: Fabric, grace_s: float, kept: Retention, known: Recovered) -> Recovered:
    """Return what all of the journal leads to. known: what its beginning did; it is used up. Raises as `recover`."""
    try:
        known.follow(journal)
    except InputError:
        snapshot = journal.snapshot()
        if snapshot is None or snapshot.link.number <= known.link.number:
            raise
        return recover(journal, fabric, grace_s, kept)  # The events after the last one known were compacted meanwhile.
    return known


def _taken_over(journal: Journal, fabric: Fabric, grace_s: float, kept: Retention, known: Recovered | None) -> Lead:
    try:
        recovered = caught_up(journal, fabric, grace_s, kept, known) if known else recover(journal, fabric, grace_s, kept)
    except BaseException:
        journal.close()
        raise
    return Lead(journal, recovered)
