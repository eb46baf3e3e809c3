"""Silence: what falls silent when nothing is heard of it, and what does not; time is an argument."""

from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import StageStatus, StudyStatus, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from controller.liveness.silence import Silence

LIMIT_S = 900.0
WORKERS = (Worker(0, "h1"), Worker(1, "h2"))


class Scene:
    """A tracker, and who was heard of when."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.tracker = Tracker()
        self.now = 100.0
        self.silence = Silence(limit_s, self.now)
        self.held: frozenset[str] = frozenset()

    def say(self, *events: Event) -> None:
        for event in events:
            changes = self.tracker.check(event)
            self.silence.hear(event, self.now)
            if changes:
                self.tracker.apply(event)
                self.silence.take_in(event, self.tracker)

    def wait(self, seconds: float) -> list[tuple[str, str | None, str | None]]:
        self.now += seconds
        events = self.silence.due(self.tracker, self.now, self.held)
        for event in events:
            assert self.tracker.check(event)
            self.tracker.apply(event)
        return [(event.study, event.stage, event.trial) for event in events]


def searching(limit_s: float = LIMIT_S) -> Scene:
    scene = Scene(limit_s)
    scene.say(StudyRegistered(100.0, "s"), StageRegistered(100.0, "s", "r"))
    for name in "ab":
        key = f"s/{name}"
        scene.say(
            TrialRegistered(100.0, "s", name),
            TargetSet(100.0, key, 10, "r"),
            AttemptStarted(100.0, key, "one", WORKERS),
        )
    return scene


def test_a_trial_that_nothing_is_heard_of_falls_silent_and_speaks_again() -> None:
    scene = searching()
    assert scene.wait(800.0) == []
    scene.say(Progressed(scene.now, "s/a", 1))
    assert scene.silence.next_s == 1000.0
    assert scene.wait(100.0) == [("s", None, "b")]
    assert scene.tracker.trials["s/b"].status is TrialStatus.SILENT
    scene.say(Progressed(scene.now, "s/b", 1))
    assert scene.tracker.trials["s/b"].status is TrialStatus.RUNNING


def test_a_repeat_is_news_as_well() -> None:
    scene = searching()
    scene.say(Progressed(scene.now, "s/a", 1))
    scene.wait(800.0)
    scene.say(Progressed(scene.now, "s/a", 1), AttemptStarted(scene.now, "s/b", "one", WORKERS))
    assert scene.wait(100.0) == []


def test_a_lease_says_enough() -> None:
    scene = searching()
    scene.held = frozenset({"s/a"})
    assert scene.wait(5000.0) == [("s", None, "b")]
    assert scene.wait(5000.0) == []


def test_a_vanished_search_is_left_out_as_a_whole_and_comes_back_with_one_word() -> None:
    scene = searching()
    assert scene.wait(LIMIT_S) == [("s", None, "a"), ("s", None, "b"), ("s", "r", None), ("s", None, None)]
    study = scene.tracker.study("s")
    assert (study.status, study.stages["r"].status) == (StudyStatus.SILENT, StageStatus.SILENT)
    assert scene.wait(LIMIT_S) == []
    scene.say(AttemptStarted(scene.now, "s/a", "one", WORKERS))
    assert (study.status, study.stages["r"].status) == (StudyStatus.ACTIVE, StageStatus.OPEN)
    assert [trial.name for trial in scene.tracker.running] == ["a"]


def test_a_target_that_is_set_again_takes_its_stage_up_again() -> None:
    scene = searching()
    scene.say(*(AttemptEnded(scene.now, f"s/{name}", "one") for name in "ab"))
    assert ("s", "r", None) in scene.wait(LIMIT_S)
    scene.say(TargetSet(scene.now, "s/a", 10, "r"))
    assert scene.tracker.stage("s", "r").status is StageStatus.OPEN
    assert len(scene.tracker.trials["s/a"].targets) == 1


def test_a_stage_that_nobody_seals_falls_silent() -> None:
    scene = searching()
    scene.say(*(Progressed(scene.now, f"s/{name}", 10) for name in "ab"))
    assert scene.wait(500.0) == []
    scene.say(*(Progressed(scene.now, f"s/{name}", 20) for name in "ab"))
    assert scene.wait(500.0) == [("s", "r", None)], "its trials run on, for something else"
    scene.say(StageSealed(scene.now, "s", "r"))
    assert scene.tracker.stage("s", "r").status is StageStatus.DONE


def test_a_stage_waits_for_a_trial_that_runs() -> None:
    scene = searching()
    scene.say(StageSealed(scene.now, "s", "r"), TrialEnded(scene.now, "s/b", TrialStatus.KILLED))
    for step in range(1, 6):
        assert scene.wait(600.0) == []
        scene.say(Progressed(scene.now, "s/a", step))


def test_a_paused_search_falls_silent_only_when_its_tuner_is() -> None:
    scene = searching()
    scene.say(*(AttemptEnded(scene.now, f"s/{name}", "one") for name in "ab"))
    scene.wait(800.0)
    scene.say(TrialRegistered(scene.now, "s", "c"), StageSealed(scene.now, "s", "r"))
    assert scene.wait(800.0) == []
    assert scene.wait(100.0) == [("s", "r", None), ("s", None, None)]


def test_zero_is_never() -> None:
    scene = searching(0.0)
    assert scene.wait(1e6) == []
    assert scene.silence.next_s is None


def test_what_has_fallen_silent_is_not_news() -> None:
    scene = searching()
    scene.silence.hear(FellSilent(900.0, "s", trial="a"), 900.0)
    assert ("s", None, "a") in scene.wait(LIMIT_S)


def test_who_has_ended_is_forgotten() -> None:
    scene = searching()
    began = vars(scene.silence)["_heard_s"].copy()
    scene.say(TrialEnded(scene.now, "s/a", TrialStatus.FINISHED))
    assert ("s", "trial", "a") in began
    assert ("s", "trial", "a") not in vars(scene.silence)["_heard_s"]
    scene.say(StudyRegistered(scene.now, "s", run="2"))
    assert vars(scene.silence)["_heard_s"].keys() == {("s",)}
    scene.say(StudyEnded(scene.now, "s"))
    assert vars(scene.silence)["_heard_s"] == {}
