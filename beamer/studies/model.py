"""What Beamer knows of searches: studies, their trials, the attempts in which trials run, and the stages that wait for them.

A *study* is a search. A *trial* is one configuration, for as long as the search may come back to it: it waits, runs, pauses and
ends, and runs in *attempts*, each with a placement and a traffic profile of its own. A *stage* is a barrier: some trials, each
with a target, done when every one has reached its target or ended and no further one joins. A search without barriers waits for
its trials' *milestones* instead. Progress is counted in a trial's own steps from its beginning, and a target is such a step.

Units: bytes, bit/s, seconds; a step is an iteration, which moves one coflow.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from beamer.errors import InputError

MAX_NAME_CHARACTERS = 120
"""The longest name of a study, a run, a stage, a trial or an attempt: tuners make names of a trial's parameters."""

MAX_KEY_CHARACTERS = 127
"""The longest key of a trial, which agents of version 1 check."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RESERVED = (".", "..", "*")  # The first two are steps in a path, the last one is every study in a token.


def is_identifier(text: str) -> bool:
    """Return whether a text may name what becomes a file, a certificate's subject or a host."""
    return bool(_IDENTIFIER.fullmatch(text))


def check_identifier(name: str, field: str) -> str:
    """Return `name` if it may name what becomes a file, a certificate's subject or a host; raise `InputError` otherwise."""
    if not isinstance(name, str) or not is_identifier(name):
        raise InputError(field, name, "a name of 1 to 63 letters, digits, '.', '_' or '-' that starts with a letter or digit")
    return name


def check_name(name: str, field: str) -> str:
    """Return `name` if it may name a study, a run, a stage, a trial or an attempt; raise `InputError` otherwise."""
    is_text = isinstance(name, str) and name.isprintable() and name.strip() == name
    if not is_text or not 1 <= len(name) <= MAX_NAME_CHARACTERS or name in _RESERVED:
        expected = f"a name of 1 to {MAX_NAME_CHARACTERS} printable characters without spaces at its ends; not {_RESERVED}"
        raise InputError(field, name, expected)
    return name


def escape_name(name: str) -> str:
    """Return a name without slashes, so that names can be joined by them."""
    return name.replace("%", "%25").replace("/", "%2F")


def unescape_name(text: str) -> str:
    """Return the name that `escape_name` escaped."""
    return text.replace("%2F", "/").replace("%25", "%")


StageKey = tuple[str, str]
"""A study's name and its stage's."""

MAX_STEPS = 2**40
"""The largest step: a year of steps of 30 microseconds. The sum over a million trials is exact in floating point."""

MAX_SECONDS = 366 * 86_400
"""The longest time that computing or a training run is declared to take, seconds: a year."""

MAX_SYNC_BYTES = 10**15
"""The largest synchronisation: a link of 400 Gbit/s takes 5.5 hours for it."""

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6
"""The weights of studies: sums and quotients of all in between keep three decimal places in floating point."""

MIN_LEASE_S, MAX_LEASE_S = 1.0, 86_400.0
"""For how long nothing may be heard of a process that takes part in a study, seconds: a day at most."""

MAX_RANK = 2**20
"""The largest rank of a worker: more processes than any machine room runs for one job."""

MAX_RUNG_TRIALS = 2**20
"""How many trials a rung is declared to hold at most: a search that starts one every 30 seconds takes a year."""

MAX_PID = 2**22
"""The largest process id: Linux's PID_MAX_LIMIT on 64-bit machines."""

MAX_TICKS = 2**53
"""The latest start of a process, clock ticks after the boot, and the largest inode number of a namespace: exact in JSON."""


def trial_key(study: str, trial: str) -> str:
    """Return the one string that names a trial everywhere: `study/trial`, each escaped by `escape_name`."""
    return f"{escape_name(study)}/{escape_name(trial)}"


@lru_cache(maxsize=2**16)  # It is asked of every running trial at every decision.
def split_key(key: str) -> tuple[str, str]:
    """Return the study and the trial that `trial_key` joined."""
    study, trial = key.split("/")
    return (unescape_name(study), unescape_name(trial)) if "%" in key else (study, trial)


class Role(StrEnum):
    """What a process of a trial does in its synchronisation."""

    WORKER = "worker"
    SERVER = "server"  # a parameter server


class StudyStatus(StrEnum):
    """A study is active until its tuner ends it; a silent one is left out of account until it is heard of again."""

    ACTIVE = "active"
    SILENT = "silent"
    ENDED = "ended"


class StageStatus(StrEnum):
    """A stage is open (trials may join), then sealed, then done; a silent one is left out of account until it is heard of.

    SILENT: it was open. SEALED_SILENT: it was sealed.
    """

    OPEN = "open"
    SEALED = "sealed"
    SILENT = "silent"
    SEALED_SILENT = "sealed-silent"
    DONE = "done"

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard of the stage for too long."""
        return self in (StageStatus.SILENT, StageStatus.SEALED_SILENT)


class TrialStatus(StrEnum):
    """What a trial does.

    WAITING: it has not run yet. RUNNING: an attempt runs. PAUSED: its last attempt was ended on purpose. LOST: the processes of
    its attempt are gone. SILENT: nothing was heard of it for too long. FINISHED, KILLED, FAILED: it has ended for good.
    """

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    LOST = "lost"
    SILENT = "silent"
    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"

    @property
    def is_finished(self) -> bool:
        """Whether the trial has ended, well or not."""
        return self in (TrialStatus.FINISHED, TrialStatus.KILLED, TrialStatus.FAILED)


class EndReason(StrEnum):
    """Why an attempt has ended.

    PAUSED: on purpose; the trial may go on in another. MOVED: another attempt has replaced it. LOST: its processes are gone.
    SILENT: nothing was heard of it. ENDED: its trial has ended.
    """

    PAUSED = "paused"
    MOVED = "moved"
    LOST = "lost"
    SILENT = "silent"
    ENDED = "ended"


@dataclass(frozen=True)
class Worker:
    """One process of an attempt.

    rank: unique within the attempt, servers included.
    host: the fabric's name of the host it runs on.
    """

    rank: int
    host: str
    role: Role = Role.WORKER


def by_rank(workers: Iterable[Worker]) -> tuple[Worker, ...]:
    """Return workers in order of their ranks."""
    return tuple(sorted(workers, key=lambda worker: worker.rank))


@dataclass(frozen=True)
class Profile:
    """What an attempt does in a step, as declared; None: not known.

    sync_bytes: gradient bytes of one synchronisation (G).
    collective: a name in `beamer.network.collectives.COLLECTIVES`.
    compute_s: seconds of computing (c_j).
    overlap: share of the computing in [0, 1] during which the coflow already runs.
    """

    sync_bytes: int | None = None
    collective: str = "ring"
    compute_s: float | None = None
    overlap: float = 0.0


UNKNOWN = Profile()
"""The profile of an attempt of which nothing was declared."""


@dataclass(frozen=True)
class Process:
    """A worker's process, the root of its process tree.

    pid: in the process namespace of the host's agent, or where `namespace` says otherwise, in that one. start: clock ticks
    after the host's boot at which it started, which tells it from a later process of the same id; 0: not known. namespace:
    inode number of the process namespace that `pid` is of; 0: not known. uid: of its user, None where not known. leased:
    whether it holds a connection to its host's agent, whose end is the worker's end.
    """

    pid: int
    start: int = 0
    namespace: int = 0
    uid: int | None = None
    leased: bool = False


@dataclass(frozen=True)
class Rung:
    """A rung of a study, declared before it starts.

    name: the stage's name where it is a barrier. trials: how many it will hold; 0: not known. step: at which they are
    judged, counted from their beginning.
    """

    name: str
    trials: int
    step: int
