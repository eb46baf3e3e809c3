"""What a running trial is waited for, and how far that is: from the model of studies to what policies order."""

from beamer.network.estimates import Source, Sourced
from beamer.network.views import LaterRung
from beamer.studies.model import StageStatus
from beamer.studies.records import StudyRecord, TrialRecord


def waiting_stage(study: StudyRecord, trial: TrialRecord) -> str | None:
    """Return the stage that a running trial belongs to now, None where its own next milestone is all that is waited for.

    The first that waits for it; where none does, the last that it has arrived at, as long as that waits for others.
    """
    for target in trial.unreached:
        if target.stage is not None:
            return target.stage
    last = trial.target
    if last is None or last.stage is None or study.stages[last.stage].status is StageStatus.DONE:
        return None
    return last.stage


def remaining_steps(study: StudyRecord, trial: TrialRecord, end_step: float | None = None) -> Sourced:
    """Return how many steps a trial has left to what is waited for next.

    Of one that has arrived at a barrier, none. Where no target is set, to its budget; where there is none either, to
    `end_step`, at which it is forecast to have stopped improving; without a forecast, as many as it has done: of what lasts for
    an unknown time, what has lasted long is expected to last long (as in least attained service, Nuyens and Wierman 2008,
    Performance Evaluation 65). What is predicted is at least one step: the trial goes on.
    """
    left = [target.step - trial.done for target in trial.unreached]
    if left:
        return Sourced(max(min(left), 0), Source.DECLARED)
    if study.barriers and trial.targets:
        return Sourced(0, Source.DECLARED)
    if trial.budget is not None:
        return Sourced(max(trial.budget - trial.done, 0), Source.DECLARED)
    expected = trial.done if end_step is None else round(end_step) - trial.done
    return Sourced(max(expected, 1), Source.PREDICTED)


def later_rungs(study: StudyRecord) -> tuple[LaterRung, ...]:
    """Return the declared rungs that have not begun, with what each adds to the rung declared before it.

    A rung that does not lie behind the one before it begins with new trials, as a bracket's first one does.
    """
    later = {rung.name for rung in study.later}
    found: list[LaterRung] = []
    before = 0
    for rung in study.rungs:
        if rung.name in later:
            found.append(LaterRung(rung.name, rung.jobs, rung.step - before if rung.step > before else rung.step))
        before = rung.step
    return tuple(found)
