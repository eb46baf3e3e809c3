"""Admission control: valid input beyond the controller's limits is refused before anything is computed from it.

Pure: what is known and an event come in, an error comes out or nothing does. What is known already is always taken.
"""

from collections.abc import Callable, Collection
from typing import Any

from beamer.errors import InputError
from beamer.gpu.events import GpusRequested
from beamer.gpu.model import check_request
from beamer.network.collectives import check_sizes, different_transfers
from beamer.network.message_limits import PARTS
from beamer.network.protocol import AgentReport, Counters, ReportLimits
from beamer.studies.events import (
    AttemptStarted,
    Event,
    MemberJoined,
    StageRegistered,
    StudyRegistered,
    TargetSet,
    TrialRegistered,
)
from beamer.studies.model import Role, TrialStatus
from beamer.studies.tracker import Tracker
from controller.limits import Limits


def check_admission(event: Event, tracker: Tracker, limits: Limits) -> None:
    """Check that there is room for what an event adds. Raises `InputError` that names field, value and limit."""
    if check := _CHECKS.get(type(event)):
        check(event, tracker, limits)


def _check_study(event: StudyRegistered, tracker: Tracker, limits: Limits) -> None:
    _check_room("study", event.study, tracker.studies, limits.studies, "studies")
    if len(event.rungs) > limits.rungs:
        raise InputError("rungs", len(event.rungs), f"at most {limits.rungs} rungs")
    declared = sum(rung.trials for rung in event.rungs)
    if declared > limits.declared_trials:
        raise InputError("rungs.trials", declared, f"at most {limits.declared_trials} trials in all rungs of a study together")


def _check_stage(event: StageRegistered, tracker: Tracker, limits: Limits) -> None:
    if study := tracker.studies.get(event.study):
        _check_room("stage", event.stage, study.stages, limits.stages, "stages of a study")


def _check_trial(event: TrialRegistered, tracker: Tracker, limits: Limits) -> None:
    if study := tracker.studies.get(event.study):
        _check_room("trial", event.trial, study.trials, limits.trials, "trials of a study")


def _check_member(event: MemberJoined, tracker: Tracker, limits: Limits) -> None:
    if study := tracker.studies.get(event.study):
        _check_room("member", event.member, study.members, limits.members, "processes that take part in a study")


def _check_target(event: TargetSet, tracker: Tracker, limits: Limits) -> None:
    trial = tracker.trials.get(event.trial)
    if trial and len(trial.targets) >= limits.targets and (event.step, event.stage) not in (
        (target.step, target.stage) for target in trial.targets
    ):  # fmt: skip
        raise InputError("step", event.step, f"one of at most {limits.targets} targets of a trial")


def _check_attempt(event: AttemptStarted, tracker: Tracker, limits: Limits) -> None:
    if len(event.workers) > limits.workers:
        raise InputError("workers", len(event.workers), f"at most {limits.workers} workers")
    servers = sum(worker.role is Role.SERVER for worker in event.workers)
    transfers = different_transfers(event.profile.collective, len(event.workers) - servers, servers)
    if transfers > limits.transfers:
        expected = (
            f"fewer: {event.profile.collective} among them makes {transfers} different transfers, at most {limits.transfers}"
        )
        raise InputError("workers", len(event.workers), expected)
    trial = tracker.trials.get(event.trial)
    starts = trial is not None and trial.status is not TrialStatus.RUNNING and event.attempt not in trial.attempts
    if starts and len(tracker.running_keys) >= limits.jobs:
        raise InputError("attempt", event.attempt, f"one of at most {limits.jobs} trials that run at once")
    if trial is not None and event.attempt not in trial.attempts:
        before = len(trial.attempt.workers) if trial.attempt and trial.status is TrialStatus.RUNNING else 0
        others = tracker.running_workers - before
        if others + len(event.workers) > limits.running_workers:
            expected = f"fewer: {others} others run, and at most {limits.running_workers} do at once"
            raise InputError("workers", len(event.workers), expected)


def _check_room(field: str, name: str, known: Collection[str], limit: int, what: str) -> None:
    if name not in known and len(known) >= limit:
        raise InputError(field, name, f"one of at most {limit} {what}")


def _check_gpus(event: GpusRequested, tracker: Tracker, limits: Limits) -> None:
    request = event.request
    if request.most > limits.workers:
        raise InputError("request.max_gpus", request.most, f"at most {limits.workers} workers of a trial")
    check_request(request, "request")
    collective, servers = request.traffic.collective, request.most if request.servers else 0
    transfers = different_transfers(collective, request.most, servers)
    if transfers > limits.transfers:
        expected = f"one of at most {limits.transfers} different transfers; among {request.most} workers it makes {transfers}"
        raise InputError("request.traffic.collective", collective, expected)
    check_sizes("request.traffic.collective", collective, request.least, request.most, request.servers)


_CHECKS: dict[type[Event], Callable[[Any, Tracker, Limits], None]] = {
    StudyRegistered: _check_study,
    StageRegistered: _check_stage,
    MemberJoined: _check_member,
    TrialRegistered: _check_trial,
    TargetSet: _check_target,
    AttemptStarted: _check_attempt,
    GpusRequested: _check_gpus,
}


def check_report(report: AgentReport, limits: ReportLimits) -> None:
    """Check that an agent's report is no longer than it may be. Raises `InputError` that names field, value and limit."""
    sizes = [(field, len(getattr(report, field)), limit) for field, limit in PARTS.get(type(report), {}).items()]
    ports = report.ports if isinstance(report, Counters) else ()
    sizes += ((f"ports[{i}].classes", len(port.classes), "classes") for i, port in enumerate(ports))
    for field, size, limit in sizes:
        if size > (most := getattr(limits, limit)):
            raise InputError(field, size, f"at most {most} of them in a report")


def entries_of(report: AgentReport) -> int:
    """Return how many things a report names, at least 1."""
    if isinstance(report, Counters):
        return 1 + sum(len(port.classes) for port in report.ports) + len(report.workers)
    return 1 + sum(len(getattr(report, part)) for part in PARTS.get(type(report), ()))
