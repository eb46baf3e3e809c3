"""Which calls are due: what frees GPUs first, nothing on a GPU that another job computes on."""

from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.reconcile import Action, Call, actions

ONE = Placement((("n", 0),))
TWO = Placement((("n", 0), ("n", 1)))
OTHER = Placement((("n", 1),))


def running(placement: Placement) -> Observed:
    return Observed(RunState.RUNNING, placement)


def test_nothing_is_due_when_all_is_as_wanted() -> None:
    assert actions({"x": ONE}, {"x", "y"}, {"x": running(ONE)}) == ()


def test_an_unknown_job_is_started_once_its_gpus_are_free() -> None:
    assert actions({"x": ONE}, {"x"}, {}) == (Action(Call.START, "x", ONE),)
    assert actions({"x": ONE}, {"x", "y"}, {"y": running(ONE)}) == (Action(Call.SUSPEND, "y"),)
    assert actions({"x": ONE}, {"x", "y"}, {"y": Observed(RunState.STOPPING, ONE)}) == ()


def test_a_suspended_job_does_not_hold_its_gpus() -> None:
    assert actions({"x": ONE}, {"x", "y"}, {"y": Observed(RunState.SUSPENDED, ONE)}) == (Action(Call.START, "x", ONE),)


def test_a_suspended_job_is_resumed_where_it_is_and_restarted_elsewhere() -> None:
    suspended = {"x": Observed(RunState.SUSPENDED, ONE)}
    assert actions({"x": ONE}, {"x"}, suspended) == (Action(Call.RESUME, "x", ONE),)
    assert actions({"x": OTHER}, {"x"}, suspended) == (Action(Call.RESIZE, "x", OTHER),)


def test_a_running_job_is_resized_into_free_gpus_and_parked_when_they_are_taken() -> None:
    assert actions({"x": TWO}, {"x"}, {"x": running(ONE)}) == (Action(Call.RESIZE, "x", TWO),)
    swapped = actions({"x": OTHER, "y": ONE}, {"x", "y"}, {"x": running(ONE), "y": running(OTHER)})
    assert set(swapped) == {Action(Call.PARK, "x"), Action(Call.PARK, "y")}


def test_a_job_that_ended_is_stopped_before_anything_else() -> None:
    assert actions({"x": ONE}, {"x"}, {"y": running(ONE)}) == (Action(Call.STOP, "y"),)


def test_another_batch_size_is_another_placement() -> None:
    larger = Placement(ONE.devices, batch_size=64)
    assert actions({"x": larger}, {"x"}, {"x": running(ONE)}) == (Action(Call.RESIZE, "x", larger),)


def test_a_job_that_a_call_has_failed_for_keeps_its_gpus_and_holds_up_nobody_else() -> None:
    seen = {"gone": running(ONE), "y": running(OTHER)}
    wanted = {"x": ONE, "z": Placement((("n", 2),))}
    live = {"x", "y", "z"}
    assert actions(wanted, live, seen) == (Action(Call.STOP, "gone"), Action(Call.SUSPEND, "y"))
    assert actions(wanted, live, seen, {"gone", "y"}) == (Action(Call.START, "z", wanted["z"]),)
    assert actions(wanted, live, seen, {"gone", "y", "z"}) == ()


def test_what_runs_of_a_launch_that_has_failed_is_stopped_and_a_later_launch_is_not() -> None:
    hung = Observed(RunState.RUNNING, ONE, launch=3)
    assert actions({"x": ONE}, {"x"}, {"x": hung}, failed={"x": 3}) == (Action(Call.STOP, "x"),)
    assert actions({"x": ONE}, {"x"}, {"x": hung}, failed={"x": 2}) == ()
    assert actions({"x": ONE}, {"x"}, {"x": Observed(RunState.RUNNING, ONE)}, failed={"x": 3}) == (), "launches are not counted"


def test_a_job_that_is_being_parked_by_nobodys_call_is_waited_for() -> None:
    parking = {"x": Observed(RunState.STOPPING, ONE, launch=1), "y": running(ONE)}
    assert actions({"y": ONE}, {"x", "y"}, parking) == (), "it leaves by itself, beside the job that runs there"
    assert actions({"z": ONE}, {"x", "z"}, {"x": Observed(RunState.STOPPING, ONE)}) == ()
    parked = {"x": Observed(RunState.PARKED, None, launch=1)}
    assert actions({"x": ONE}, {"x"}, parked) == (Action(Call.START, "x", ONE),)


def ahead(placement: Placement, is_held: bool) -> Observed:
    return Observed(RunState.PREPARED if is_held else RunState.PREPARING, placement)


def test_who_has_the_gpus_of_one_without_processes_goes_on_until_that_is_ready() -> None:
    wanted, live = {"x": ONE}, {"x", "y"}
    assert actions(wanted, live, {"y": running(ONE)}, prepares=True) == (Action(Call.PREPARE, "x", ONE),)
    parked = {"x": Observed(RunState.PARKED), "y": running(ONE)}
    assert actions(wanted, live, parked, prepares=True) == (Action(Call.PREPARE, "x", ONE),)
    assert actions(wanted, live, {"x": ahead(ONE, False), "y": running(ONE)}, prepares=True) == ()
    ready = {"x": ahead(ONE, True), "y": running(ONE)}
    assert actions(wanted, live, ready, prepares=True) == (Action(Call.SUSPEND, "y"),)
    ready["y"] = Observed(RunState.SUSPENDED, ONE)
    assert actions(wanted, live, ready, prepares=True) == (Action(Call.START, "x", ONE),)


def test_one_that_was_prepared_for_other_gpus_is_prepared_for_these() -> None:
    seen = {"x": ahead(OTHER, True), "y": running(ONE)}
    assert actions({"x": ONE}, {"x", "y"}, seen, prepares=True) == (Action(Call.PREPARE, "x", ONE),)
    assert actions({"x": ONE}, {"x"}, {"x": ahead(OTHER, True)}, prepares=True) == (Action(Call.START, "x", ONE),)


def test_gpus_of_which_not_all_are_waited_for_are_freed_at_once() -> None:
    wanted, live = {"x": ONE, "z": OTHER}, {"x", "y", "z"}
    seen = {"y": running(TWO), "z": Observed(RunState.SUSPENDED, OTHER)}
    assert actions(wanted, live, seen, prepares=True) == (Action(Call.SUSPEND, "y"),)
    assert actions({"x": ONE}, live, {"y": running(TWO)}, prepares=True) == (Action(Call.SUSPEND, "y"),)


def test_one_on_free_gpus_is_not_prepared_but_started_and_so_is_everyone_where_nothing_is_prepared() -> None:
    assert actions({"x": ONE}, {"x"}, {}, prepares=True) == (Action(Call.START, "x", ONE),)
    assert actions({"x": ONE}, {"x"}, {"x": ahead(ONE, False)}, prepares=True) == (Action(Call.START, "x", ONE),)
    assert actions({"x": ONE}, {"x", "y"}, {"y": running(ONE)}) == (Action(Call.SUSPEND, "y"),)


def test_nobody_waits_for_one_whose_preparation_fails_or_that_has_ended() -> None:
    assert actions({"x": ONE}, {"x", "y"}, {"y": running(ONE)}, {"x"}, prepares=True) == (Action(Call.SUSPEND, "y"),)
    assert actions({"x": ONE}, {"y"}, {"y": running(ONE)}, prepares=True) == (Action(Call.SUSPEND, "y"),)


def test_one_that_was_prepared_and_is_not_wanted_any_more_is_left() -> None:
    assert actions({}, {"x"}, {"x": ahead(ONE, True)}, prepares=True) == ()
    assert actions({}, set(), {"x": ahead(ONE, True)}, prepares=True) == (Action(Call.STOP, "x"),)
