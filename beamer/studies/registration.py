"""What may be registered: checks of studies, trials and attempts as they come from outside."""

from collections.abc import Iterable

from beamer.errors import InputError
from beamer.studies.model import (
    MAX_LEASE_S,
    MAX_PID,
    MAX_RANK,
    MAX_RUNG_TRIALS,
    MAX_SECONDS,
    MAX_STEPS,
    MAX_SYNC_BYTES,
    MAX_TICKS,
    MAX_WEIGHT,
    MIN_LEASE_S,
    MIN_WEIGHT,
    Process,
    Profile,
    Rung,
    Worker,
    check_name,
)


def check_weight(weight: float) -> None:
    """Check that a study may have this weight. Raises `InputError`."""
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InputError("weight", weight, f"a number above 0, from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}")


def check_lease(lease_s: float) -> None:
    """Check that a member may be taken for gone after so long. Raises `InputError`."""
    if not MIN_LEASE_S <= lease_s <= MAX_LEASE_S:
        raise InputError("lease_s", lease_s, f"{MIN_LEASE_S:g} to {MAX_LEASE_S:g} seconds")


def check_step(step: int, field: str, least: int = 0) -> None:
    """Check that a trial may come to a step. Raises `InputError`."""
    if not least <= step <= MAX_STEPS:
        raise InputError(field, step, f"{least} to {MAX_STEPS}, in the trial's own steps from its beginning")


def check_workers(workers: Iterable[Worker]) -> None:
    """Check that an attempt may have these workers. Raises `InputError` naming the first field that cannot be."""
    seen: set[int] = set()
    for i, worker in enumerate(workers):
        if not 0 <= worker.rank <= MAX_RANK:
            raise InputError(f"workers[{i}].rank", worker.rank, f"a rank from 0 to {MAX_RANK}")
        if worker.rank in seen:
            raise InputError(f"workers[{i}].rank", worker.rank, "a rank that no other worker of the attempt has")
        seen.add(worker.rank)
    if not seen:
        raise InputError("workers", [], "at least one worker")


def check_profile(profile: Profile) -> None:
    """Check that an attempt may be described so. Raises `InputError` naming the first field that cannot be."""
    if profile.sync_bytes is not None and not 0 <= profile.sync_bytes <= MAX_SYNC_BYTES:
        raise InputError("sync_bytes", profile.sync_bytes, f"0 to {MAX_SYNC_BYTES} bytes")
    if profile.compute_s is not None and not 0 <= profile.compute_s <= MAX_SECONDS:
        raise InputError("compute_s", profile.compute_s, f"0 to {MAX_SECONDS} seconds")
    if not 0 <= profile.overlap <= 1:
        raise InputError("overlap", profile.overlap, "a share from 0 to 1")


def check_process(process: Process) -> None:
    """Check that a worker may be this process. Raises `InputError`."""
    if process.pid <= 1:
        expected = "a process id above 1, the ancestor of all others; a container's first process can attach through the agent"
        raise InputError("pid", process.pid, expected)
    if process.pid > MAX_PID:
        raise InputError("pid", process.pid, f"a process id of at most {MAX_PID}")
    for name in ("start", "namespace"):
        value = getattr(process, name)
        if not 0 <= value <= MAX_TICKS:
            raise InputError(name, value, f"0 to {MAX_TICKS}")
    if process.uid is not None and not 0 <= process.uid < 2**32:  # The limit is that of Linux's uid_t.
        raise InputError("uid", process.uid, "a user's number, below 2^32")


def check_rungs(rungs: Iterable[Rung]) -> None:
    """Check that a study may declare `rungs`. Raises `InputError`."""
    seen: set[str] = set()
    for i, rung in enumerate(rungs):
        check_name(rung.name, f"rungs[{i}].name")
        if rung.name in seen:
            raise InputError(f"rungs[{i}].name", rung.name, "a name that no other rung of the study has")
        seen.add(rung.name)
        if not 0 <= rung.trials <= MAX_RUNG_TRIALS:
            expected = f"how many it will hold, up to {MAX_RUNG_TRIALS}; 0 where that is not known"
            raise InputError(f"rungs[{i}].trials", rung.trials, expected)
        check_step(rung.step, f"rungs[{i}].step", 1)
