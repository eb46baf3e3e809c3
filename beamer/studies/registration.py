"""What may be registered: checks of jobs and rungs as they come from outside."""

import math

from beamer.errors import ConflictError, InputError
from beamer.studies.model import JobSpec, Rung, check_name


def check_spec(spec: JobSpec) -> None:
    """Check that a job may be described so. Raises `InputError` naming the first field that cannot be."""
    check_name(spec.name, "job")
    if not spec.workers:
        raise InputError("workers", [], "at least one worker")
    seen: set[int] = set()
    for i, worker in enumerate(spec.workers):
        if worker.rank < 0:
            raise InputError(f"workers[{i}].rank", worker.rank, "a rank from 0")
        if worker.rank in seen:
            raise InputError(f"workers[{i}].rank", worker.rank, "a rank that no other worker of the job has")
        seen.add(worker.rank)
    if spec.iterations < 1:
        raise InputError("iterations", spec.iterations, "at least 1")
    if spec.sync_bytes < 0:
        raise InputError("sync_bytes", spec.sync_bytes, "at least 0 bytes")
    if not (math.isfinite(spec.compute_s) and spec.compute_s >= 0):
        raise InputError("compute_s", spec.compute_s, "a finite number of seconds, at least 0")
    if not 0 <= spec.overlap <= 1:
        raise InputError("overlap", spec.overlap, "a share from 0 to 1")


def check_rungs(rungs: tuple[Rung, ...]) -> None:
    """Check that a study may declare `rungs`. Raises `InputError`."""
    seen: set[str] = set()
    for i, rung in enumerate(rungs):
        check_name(rung.name, f"rungs[{i}].name")
        if rung.name in seen:
            raise InputError(f"rungs[{i}].name", rung.name, "a name that no other rung of the study has")
        seen.add(rung.name)
        if rung.jobs < 1:
            raise InputError(f"rungs[{i}].jobs", rung.jobs, "at least 1")
        if rung.iterations < 1:
            raise InputError(f"rungs[{i}].iterations", rung.iterations, "at least 1")


def check_same(key: str, known: JobSpec, spec: JobSpec) -> None:
    """Check that a repeated registration of job `key` says what the first one did. Raises `ConflictError`."""
    for name, first in vars(known).items():
        if getattr(spec, name) != first:
            shown, before = getattr(spec, name), first
            if name == "workers":
                shown, before = ([(w.rank, w.host, w.role.value) for w in workers] for workers in (shown, before))
            raise ConflictError(name, shown, f"{before!r}, with which {key} was registered")
