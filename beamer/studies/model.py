"""What Beamer knows: studies run stages one after another, a stage holds jobs, a job's iteration moves one coflow.

Units: bytes, bit/s, seconds.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from beamer.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def check_name(name: str, field: str) -> str:
    """Return `name` if it may name a study, stage or job; raise `InputError` otherwise."""
    if not _NAME.fullmatch(name):
        raise InputError(field, name, "a name of 1 to 63 letters, digits, '.', '_' or '-' that starts with a letter or digit")
    return name


StageKey = tuple[str, str]
"""A study's name and its stage's."""


def job_key(study: str, stage: str, job: str) -> str:
    """Return the one string that names a job everywhere: `study/stage/job`."""
    return f"{study}/{stage}/{job}"


def split_key(key: str) -> tuple[str, str, str]:
    """Return the study, stage and job that `job_key` joined."""
    study, stage, job = key.split("/")
    return study, stage, job


class Role(StrEnum):
    """What a process of a job does in its synchronisation."""

    WORKER = "worker"
    SERVER = "server"  # a parameter server


class StageStatus(StrEnum):
    """A stage is open (jobs may join), then sealed, then done."""

    OPEN = "open"
    SEALED = "sealed"
    DONE = "done"


class JobStatus(StrEnum):
    """A job runs until it finishes its iterations, is killed, or breaks off."""

    RUNNING = "running"
    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"


@dataclass(frozen=True)
class Worker:
    """One process of a job.

    rank: unique within the job, servers included.
    host: the fabric's name of the host it runs on.
    """

    rank: int
    host: str
    role: Role = Role.WORKER


@dataclass(frozen=True)
class JobSpec:
    """What a job is, as registered.

    name: unique within its stage.
    workers: its processes, ordered by rank.
    iterations: how many iterations it runs (N_j).
    sync_bytes: gradient bytes of one synchronisation (G).
    collective: a name in `beamer.network.collectives.COLLECTIVES`.
    compute_s: seconds of computing per iteration (c_j).
    overlap: share of the computing in [0, 1] during which the coflow already runs.
    """

    name: str
    workers: tuple[Worker, ...]
    iterations: int
    sync_bytes: int
    collective: str = "ring"
    compute_s: float = 0.0
    overlap: float = 0.0


@dataclass(frozen=True)
class Rung:
    """A later stage that a study declares before it starts.

    name: the stage's name when it is registered. jobs: how many jobs it will hold. iterations: of each of them.
    """

    name: str
    jobs: int
    iterations: int
