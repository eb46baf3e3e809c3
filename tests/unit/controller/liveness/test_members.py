"""Members: who is gone when nothing is heard of it, and what is left out of account with it; time is an argument."""

from beamer.studies.events import (
    AttemptStarted,
    Event,
    FellSilent,
    MemberJoined,
    MemberLeft,
    Progressed,
    StudyRegistered,
    TrialRegistered,
)
from beamer.studies.model import StudyStatus, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from controller.liveness.members import Members
from controller.liveness.silence import Silence
from tests.support.effort import effort

LEASE_S = 30.0


class Scene:
    """A tracker, and who was heard of when."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.now = 100.0
        self.members, self.silence = Members(self.now), Silence(600.0, self.now)
        self.held: frozenset[str] = frozenset()
        self.changes = 0

    def say(self, *events: Event) -> None:
        for event in events:
            changes = self.tracker.check(event)
            self.members.hear(event, self.now)
            self.silence.hear(event, self.now)
            if changes:
                self.changes += 1
                self.tracker.apply(event)

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass; return what follows, with the time of the scene's beginning."""
        self.now += seconds
        found: list[Event] = []
        for watch in (self.members, self.silence):
            for event in watch.due(self.tracker, self.now, self.held):
                assert self.tracker.check(event)
                self.tracker.apply(event)
                found.append(event)
        return found

    def join(self, member: str = "m") -> None:
        self.say(MemberJoined(self.now, "s", member, LEASE_S))


def scene() -> Scene:
    """A study with one member, that has begun a trial, which runs."""
    made = Scene()
    made.say(StudyRegistered(100.0, "s", "r"))
    made.join()
    made.say(TrialRegistered(100.0, "s", "t", member="m"), AttemptStarted(100.0, "s/t", "1", (Worker(0, "h1"),)))
    return made


def kinds(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(type(event).__name__, getattr(event, "trial", None)) for event in events]


def test_a_member_that_is_gone_takes_its_trials_and_its_study_out_of_account() -> None:
    made = scene()
    assert made.wait(29.0) == []
    assert made.members.next_s == 130.0
    assert kinds(made.wait(1.0)) == [("MemberLeft", None), ("FellSilent", "t"), ("FellSilent", None)]
    study = made.tracker.studies["s"]
    assert (study.status, study.trials["t"].status, study.members) == (StudyStatus.SILENT, TrialStatus.SILENT, {})
    assert made.wait(100.0) == []


def test_renewals_keep_it_and_change_nothing() -> None:
    made = scene()
    before = made.changes
    for _ in range(200):
        assert [event for event in made.wait(10.0) if isinstance(event, MemberLeft)] == []
        made.join()
    assert made.changes == before
    assert made.tracker.studies["s"].status is StudyStatus.ACTIVE


def test_what_a_member_says_of_itself_again_replaces_what_it_said() -> None:
    made = scene()
    made.wait(5.0)
    made.say(MemberJoined(made.now, "s", "m", 2 * LEASE_S, "h2", 9))
    member = made.tracker.studies["s"].members["m"]
    assert (member.joined_s, member.lease_s, member.host, member.pid) == (100.0, 60.0, "h2", 9)
    assert made.wait(59.0) == []
    assert kinds(made.wait(1.0))[0] == ("MemberLeft", None)


def test_members_cost_no_look_at_trials_while_they_renew() -> None:
    def cost(trials: int) -> int:
        made = scene()
        for number in range(trials):
            made.say(TrialRegistered(made.now, "s", f"t{number}", member="m"))
        return effort(lambda: made.members.due(made.tracker, made.now + 1.0, frozenset()))

    assert cost(1000) < 1.5 * cost(10)


def test_a_report_on_its_trial_counts_as_news_of_it() -> None:
    made = scene()
    for step in range(1, 5):
        assert made.wait(20.0) == []
        made.say(Progressed(made.now, "s/t", step))
    assert kinds(made.wait(30.0)) == [("MemberLeft", None), ("FellSilent", "t"), ("FellSilent", None)]


def test_trials_whose_workers_hold_leases_go_on_and_with_them_the_study() -> None:
    made = scene()
    made.held = frozenset({"s/t"})
    assert kinds(made.wait(30.0)) == [("MemberLeft", None)]
    assert made.tracker.studies["s"].status is StudyStatus.ACTIVE


def test_another_member_keeps_the_study() -> None:
    made = scene()
    made.wait(15.0)
    made.join("other")
    assert kinds(made.wait(15.0)) == [("MemberLeft", None), ("FellSilent", "t")]
    assert made.tracker.studies["s"].status is StudyStatus.ACTIVE
    made.say(MemberLeft(made.now, "s", "other"))
    assert made.tracker.studies["s"].status is StudyStatus.ENDED


def test_one_that_comes_back_is_a_member_again_and_its_study_active() -> None:
    made = scene()
    made.wait(30.0)
    made.join()
    made.say(Progressed(made.now, "s/t", 3))
    study = made.tracker.studies["s"]
    assert (study.status, study.trials["t"].status, [*study.members]) == (StudyStatus.ACTIVE, TrialStatus.RUNNING, ["m"])
    assert [event for event in made.wait(10.0) if isinstance(event, FellSilent)] == []


def test_after_a_restart_reports_of_trials_count_before_any_member_has_renewed() -> None:
    made = scene()
    made.members = Members(made.now)
    assert made.wait(20.0) == []
    made.say(Progressed(made.now, "s/t", 3))
    assert made.wait(15.0) == []
    assert kinds(made.wait(20.0))[:2] == [("MemberLeft", None), ("FellSilent", "t")]
