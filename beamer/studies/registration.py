"""What may be registered: checks of studies, trials and attempts as they come from outside."""

import math
from collections.abc import Iterable

from beamer.errors import InputError
from beamer.studies.model import MOST_STEPS, Process, Profile, Rung, Worker, check_name


def check_weight(weight: float) -> None:
    """Check that a study may have this weight. Raises `InputError`."""
    if not (math.isfinite(weight) and weight > 0):
        raise InputError("weight", weight, "a finite number above 0")


def check_step(step: int, field: str, least: int = 0) -> None:
    """Check that a trial may come to a step. Raises `InputError`."""
    if not least <= step <= MOST_STEPS:
        raise InputError(field, step, f"{least} to {MOST_STEPS}, in the trial's own steps from its beginning")


def check_workers(workers: Iterable[Worker]) -> None:
    """Check that an attempt may have these workers. Raises `InputError` naming the first field that cannot be."""
    seen: set[int] = set()
    for i, worker in enumerate(workers):
        if worker.rank < 0:
            raise InputError(f"workers[{i}].rank", worker.rank, "a rank from 0")
        if worker.rank in seen:
            raise InputError(f"workers[{i}].rank", worker.rank, "a rank that no other worker of the attempt has")
        seen.add(worker.rank)
    if not seen:
        raise InputError("workers", [], "at least one worker")


def check_profile(profile: Profile) -> None:
    """Check that an attempt may be described so. Raises `InputError` naming the first field that cannot be."""
    if profile.sync_bytes is not None and not 0 <= profile.sync_bytes <= MOST_STEPS:
        raise InputError("sync_bytes", profile.sync_bytes, f"0 to {MOST_STEPS} bytes")
    if profile.compute_s is not None and not (math.isfinite(profile.compute_s) and profile.compute_s >= 0):
        raise InputError("compute_s", profile.compute_s, "a finite number of seconds, at least 0")
    if not 0 <= profile.overlap <= 1:
        raise InputError("overlap", profile.overlap, "a share from 0 to 1")


def check_process(process: Process) -> None:
    """Check that a worker may be this process. Raises `InputError`."""
    if process.pid <= 1:
        expected = "a process id above 1, the ancestor of all others; a container's first process can attach through the agent"
        raise InputError("pid", process.pid, expected)
    if process.start < 0:
        raise InputError("start", process.start, "clock ticks, at least 0")


def check_rungs(rungs: Iterable[Rung]) -> None:
    """Check that a study may declare `rungs`. Raises `InputError`."""
    seen: set[str] = set()
    for i, rung in enumerate(rungs):
        check_name(rung.name, f"rungs[{i}].name")
        if rung.name in seen:
            raise InputError(f"rungs[{i}].name", rung.name, "a name that no other rung of the study has")
        seen.add(rung.name)
        if not 0 <= rung.trials <= MOST_STEPS:
            raise InputError(f"rungs[{i}].trials", rung.trials, "how many it will hold, 0 where that is not known")
        check_step(rung.step, f"rungs[{i}].step", 1)
