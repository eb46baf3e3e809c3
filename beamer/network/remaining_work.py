"""What a running trial is waited for, and how far that is: from the model of studies to what policies order."""

from beamer.network.estimates import Source, Sourced
from beamer.network.views import LaterRung
from beamer.studies.records import StudyRecord, TrialRecord


def waiting_stage(study: StudyRecord, trial: TrialRecord) -> str | None:
    """Return the stage that a running trial belongs to now, None where no stage waits for it.

    The first that waits for it; where none does, the last that it has arrived at, until it is given another target.
    """
    for target in trial.unreached:
        if target.stage is not None:
            return target.stage
    return trial.target.stage if trial.target is not None else None


def completion_step(study: StudyRecord) -> int | None:
    """Return the step at which a study's trials complete, as far as is known: its last rung's.

    Where no rungs are declared, the farthest target that a trial of it was given: its trials are alike. None: no target was.
    """
    if study.rungs:
        return max(rung.step for rung in study.rungs)
    return study.farthest or None


def remaining_steps(study: StudyRecord, trial: TrialRecord, end_step: float | None = None) -> Sourced:
    """Return how many steps a trial has left to what is waited for.

    That is the barrier ahead of it. One that has just arrived has a step left: other ranks may not be through with it, and its
    search waits for the processes to leave. One that goes on beyond it has none. Where no stage waits for it, it is not the
    next milestone, which would put every trial that a search has just begun before those that it has promoted, but the step at
    which the trial completes: its budget or, where it has none, that of its study. Where neither is known, `end_step`, at
    which it is forecast to have stopped improving; without a forecast, as many steps as it has done: of what lasts for an
    unknown time, what has lasted long is expected to last long (as in least attained service, Nuyens and Wierman 2008,
    Performance Evaluation 65). What is predicted is at least one step: the trial goes on.
    """
    ahead = [target.step for target in trial.unreached if target.stage is not None]
    if ahead:
        return Sourced(_left(min(ahead), trial.done), Source.DECLARED)
    if trial.target is not None and trial.target.stage is not None:
        return Sourced(_left(trial.target.step, trial.done), Source.DECLARED)
    complete = trial.budget or completion_step(study)
    if complete is None:
        expected = trial.done if end_step is None else round(end_step) - trial.done
        return Sourced(max(expected, 1), Source.PREDICTED)
    milestones = [target.step for target in trial.unreached]
    step = max((complete, *milestones))
    is_own = trial.budget is not None or bool(study.rungs) or step in milestones
    return Sourced(_left(step, trial.done), Source.DECLARED if is_own else Source.PREDICTED)


def _left(step: int, done: int) -> int:
    """Return the steps from `done` to `step`: one at it, as it is not over before the processes have left, none beyond."""
    return 1 if done == step else max(step - done, 0)


def later_rungs(study: StudyRecord) -> tuple[LaterRung, ...]:
    """Return the declared rungs that have not begun, with what each adds to the rung declared before it.

    A rung that does not lie behind the one before it begins with new trials, as a bracket's first one does.
    """
    later = {rung.name for rung in study.later}
    found: list[LaterRung] = []
    before = 0
    for rung in study.rungs:
        if rung.name in later:
            found.append(LaterRung(rung.name, rung.trials, rung.step - before if rung.step > before else rung.step))
        before = rung.step
    return tuple(found)
