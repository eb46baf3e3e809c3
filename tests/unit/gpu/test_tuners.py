"""What asynchronous halving does about events, in a search and when a journal is read again."""

from collections.abc import Iterable

from beamer.gpu.events import RunFinished, TrialReported
from beamer.gpu.model import Report
from beamer.gpu.tuners import AsynchronousHalvingTuner
from beamer.studies.asynchronous_halving import AsynchronousHalving
from beamer.studies.events import Event, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.model import TrialStatus


def tuner() -> AsynchronousHalvingTuner:
    return AsynchronousHalvingTuner("s", AsynchronousHalving(16, 4))


def coming(trial: str, loss: float, step: int) -> tuple[Event, ...]:
    """What happens until a trial has come to a rung with a loss."""
    key = f"s/{trial}"
    return TrialReported(0.0, key, Report(0.0, step, loss, 1.0)), RunFinished(0.0, key, step)


def told(of: AsynchronousHalvingTuner, events: Iterable[Event]) -> list[Event]:
    """Return what a tuner does about events, as in a search, where it is told of its own events as well."""
    made: list[Event] = []
    for event in events:
        own = list(of.judge(event))
        made += [event, *own]
        for one in own:
            assert not list(of.judge(one)), one
    return made


def targets(events: Iterable[Event]) -> dict[str, int]:
    return {event.trial: event.step for event in events if isinstance(event, TargetSet)}


def killed(events: Iterable[Event]) -> set[str]:
    return {event.trial for event in events if isinstance(event, TrialEnded)}


def test_sixteen_of_64_equal_trials_go_on_at_a_rung_and_four_at_the_next() -> None:
    judge = tuner()
    events = told(judge, [TrialRegistered(0.0, "s", f"t{i}") for i in range(64)])
    events += told(judge, [event for i in range(64) for event in coming(f"t{i}", 0.5, 1)])
    on = [key for key, step in targets(events).items() if step == 4]
    assert on == [f"s/t{i}" for i in range(0, 64, 4)]
    assert len(killed(events)) == 48
    events += told(judge, [event for i in range(0, 64, 4) for event in coming(f"t{i}", 0.4, 4)])
    assert [key for key, step in targets(events).items() if step == 16] == [f"s/t{i}" for i in range(0, 64, 16)]


def test_a_journal_that_is_read_again_leads_to_the_same_verdicts() -> None:
    first = tuner()
    names = [f"t{i}" for i in range(9)]
    events = told(first, [TrialRegistered(0.0, "s", name) for name in names])
    events += told(first, [event for name in names[:5] for event in coming(name, 0.5, 1)])
    again = tuner()
    for event in events:
        list(again.judge(event))
    rest = [event for name in names[5:] for event in coming(name, 0.5, 1)]
    assert told(again, rest) == told(first, rest)


def test_a_trial_that_ended_before_it_was_sent_on_has_not_gone_on() -> None:
    """An earlier version ended it, or somebody else did."""
    judge = tuner()
    told(judge, [TrialRegistered(0.0, "s", f"t{i}") for i in range(6)])
    told(judge, [event for i in range(4) for event in coming(f"t{i}", 0.5, 1)])
    for event in coming("t4", 0.5, 1):  # the second of five goes on by this version's rule, and did not
        due = list(judge.judge(event))
    assert targets(due) == {"s/t4": 4}
    assert not list(judge.judge(TrialEnded(0.0, "s/t4", TrialStatus.KILLED)))
    assert targets(told(judge, coming("t5", 0.5, 1))) == {"s/t5": 4}


def test_a_trial_that_fails_beyond_a_rung_has_gone_on() -> None:
    judge = tuner()
    told(judge, [TrialRegistered(0.0, "s", f"t{i}") for i in range(6)])
    told(judge, [event for i in range(5) for event in coming(f"t{i}", 0.5, 1)])
    told(judge, [TrialEnded(0.0, "s/t4", TrialStatus.FAILED)])
    assert killed(told(judge, coming("t5", 0.5, 1))) == {"s/t5"}
