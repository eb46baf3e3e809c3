"""Every legal and illegal transition of a study, of a stage and of a trial, in one table each.

The tracker decides from these tables and from nothing else, and the tests go through all of their cells. Messages of several
processes may arrive late, twice or in another order than they were sent: what the tables call `LATE` changes nothing, and what
is `REFUSED` is an error of whoever asked for it, which they are told.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto

from beamer.studies.model import EndReason, StageStatus, StudyStatus, TrialStatus


class NoTransition(Enum):
    """What becomes of an input that leads to no status."""

    LATE = auto()  # The input changes nothing.
    REFUSED = auto()  # The input is an error.


class TrialInput(StrEnum):
    """What can happen to a trial."""

    REGISTER = "registered again"
    TARGET = "given a target, or waited for no longer"
    START = "an attempt started"
    ATTACH = "a worker attached"
    DETACH = "a worker detached"
    PROGRESS = "progress reported"
    PAUSE = "its attempt ended on purpose"
    LOSE = "the processes of its attempt are gone"
    SILENCE = "nothing was heard of it"
    FINISH = "finished"
    KILL = "killed"
    FAIL = "failed"


class StudyInput(StrEnum):
    """What can happen to a run of a study."""

    REGISTER = "registered again"
    ADD = "given another trial or stage"
    HEAR = "heard of, or of a trial or stage of it"
    SILENCE = "nothing was heard of it"
    END = "ended, or replaced by another run"


class StageInput(StrEnum):
    """What can happen to a stage."""

    REGISTER = "registered again"
    JOIN = "joined by a trial"
    SEAL = "sealed"
    HEAR = "one of its trials was heard of"
    SILENCE = "nothing was heard of it"
    COMPLETE = "its last trial arrived"


_W, _R, _P, _L, _S = (
    TrialStatus.WAITING, TrialStatus.RUNNING, TrialStatus.PAUSED, TrialStatus.LOST, TrialStatus.SILENT,
)  # fmt: skip
_END = (TrialStatus.FINISHED, TrialStatus.KILLED, TrialStatus.FAILED)
_LATE, _REFUSED = NoTransition.LATE, NoTransition.REFUSED

TrialOutcome = TrialStatus | NoTransition
StageOutcome = StageStatus | NoTransition


def _row(*outcomes: TrialOutcome) -> Mapping[TrialStatus, TrialOutcome]:
    """Return outcomes by the statuses of trials, the last one for each way to have ended."""
    return dict(zip(TrialStatus, (*outcomes, *2 * outcomes[-1:]), strict=True))


TRIAL_TRANSITIONS: Mapping[TrialInput, Mapping[TrialStatus, TrialOutcome]] = {
    #                         WAITING   RUNNING   PAUSED    LOST      SILENT    ended
    TrialInput.REGISTER: _row(_W,       _R,       _P,       _L,       _S,       _LATE),
    TrialInput.TARGET:   _row(_W,       _R,       _P,       _L,       _S,       _LATE),
    TrialInput.START:    _row(_R,       _R,       _R,       _R,       _R,       _REFUSED),
    TrialInput.ATTACH:   _row(_REFUSED, _R,       _LATE,    _R,       _R,       _LATE),
    TrialInput.DETACH:   _row(_REFUSED, _R,       _LATE,    _LATE,    _LATE,    _LATE),
    TrialInput.PROGRESS: _row(_W,       _R,       _P,       _L,       _R,       _LATE),
    TrialInput.PAUSE:    _row(_REFUSED, _P,       _LATE,    _P,       _P,       _LATE),
    TrialInput.LOSE:     _row(_REFUSED, _L,       _LATE,    _LATE,    _L,       _LATE),
    TrialInput.SILENCE:  _row(_LATE,    _S,       _LATE,    _LATE,    _LATE,    _LATE),
    TrialInput.FINISH:   _row(_END[0],  _END[0],  _END[0],  _END[0],  _END[0],  _LATE),
    TrialInput.KILL:     _row(_END[1],  _END[1],  _END[1],  _END[1],  _END[1],  _LATE),
    TrialInput.FAIL:     _row(_END[2],  _END[2],  _END[2],  _END[2],  _END[2],  _LATE),
}  # fmt: skip
"""What a trial is after an input, by what it was; one that never ran has no attempt that could be ended or attached to."""

_ACTIVE, _SILENT, _ENDED = StudyStatus.ACTIVE, StudyStatus.SILENT, StudyStatus.ENDED

STUDY_TRANSITIONS: Mapping[StudyInput, Mapping[StudyStatus, StudyStatus | NoTransition]] = {
    StudyInput.REGISTER: {_ACTIVE: _ACTIVE, _SILENT: _ACTIVE, _ENDED: _REFUSED},
    StudyInput.ADD:      {_ACTIVE: _ACTIVE, _SILENT: _ACTIVE, _ENDED: _REFUSED},
    StudyInput.HEAR:     {_ACTIVE: _ACTIVE, _SILENT: _ACTIVE, _ENDED: _LATE},
    StudyInput.SILENCE:  {_ACTIVE: _SILENT, _SILENT: _LATE,   _ENDED: _LATE},
    StudyInput.END:      {_ACTIVE: _ENDED,  _SILENT: _ENDED,  _ENDED: _LATE},
}  # fmt: skip
"""What a run of a study is after an input, by what it was."""

_OPEN, _SEALED, _DONE = StageStatus.OPEN, StageStatus.SEALED, StageStatus.DONE


def _stage_row(*outcomes: StageOutcome) -> Mapping[StageStatus, StageOutcome]:
    return dict(zip(StageStatus, outcomes, strict=True))


STAGE_TRANSITIONS: Mapping[StageInput, Mapping[StageStatus, StageOutcome]] = {
    #                               OPEN                SEALED                     SILENT   SEALED_SILENT  DONE
    StageInput.REGISTER: _stage_row(_OPEN,              _LATE,                     _OPEN,   _SEALED,       _LATE),
    StageInput.JOIN:     _stage_row(_OPEN,              _REFUSED,                  _OPEN,   _REFUSED,      _REFUSED),
    StageInput.SEAL:     _stage_row(_SEALED,            _LATE,                     _SEALED, _SEALED,       _LATE),
    StageInput.HEAR:     _stage_row(_OPEN,              _SEALED,                   _OPEN,   _SEALED,       _LATE),
    StageInput.SILENCE:  _stage_row(StageStatus.SILENT, StageStatus.SEALED_SILENT, _LATE,   _LATE,         _LATE),
    StageInput.COMPLETE: _stage_row(_LATE,              _DONE,                     _LATE,   _LATE,         _LATE),
}  # fmt: skip
"""What a stage is after an input, by what it was. It is heard of before it completes: its last trial has just arrived."""

ENDS: Mapping[TrialStatus, TrialInput] = {
    TrialStatus.FINISHED: TrialInput.FINISH,
    TrialStatus.KILLED: TrialInput.KILL,
    TrialStatus.FAILED: TrialInput.FAIL,
}
"""The input that a report of a trial's end is, by how it ended."""

ATTEMPT_ENDS: Mapping[EndReason, TrialInput] = {EndReason.PAUSED: TrialInput.PAUSE, EndReason.LOST: TrialInput.LOSE}
"""The input that a report of an attempt's end is, by its reason; no other reason is reported."""
