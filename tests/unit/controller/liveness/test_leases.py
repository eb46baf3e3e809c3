"""Leases: who is attached by them, and what ends where they do; agents are played, time is an argument."""

from collections.abc import Iterable, Iterator

import pytest

from beamer.network.protocol import WorkerId, WorkerLease, Workers
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    StudyEnded,
    StudyRegistered,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
)
from beamer.studies.model import EndReason, Process, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from controller.liveness.leases import Leases
from topologies.single import build

FABRIC = build(hosts=3)
H1, H2, H3 = (host.name for host in FABRIC.hosts)
AGENT = {host.name: host.agent for host in FABRIC.hosts}
GRACE_S = 10.0
KEY = "s/t"


def process(pid: int, leased: bool = True, uid: int | None = 1000) -> Process:
    return Process(pid, start=pid, uid=uid, leased=leased)


def lease(rank: int, pid: int, run: str | None = None, trial: str = "t", uid: int | None = 1000) -> WorkerLease:
    return WorkerLease(study="s", trial=trial, rank=rank, run=run, process=process(pid, uid=uid))


class Scene:
    """A tracker and its leases, as the runtime brings them together; the trial `s/t` runs on two hosts."""

    def __init__(self, started: bool = True) -> None:
        self.tracker = Tracker()
        self.leases = Leases(FABRIC, GRACE_S)
        self.now = 100.0
        self.take(StudyRegistered(100.0, "s"), TrialRegistered(100.0, "s", "t"))
        if started:
            self.start("one")

    def take(self, *events: Event) -> None:
        for event in events:
            if self.tracker.check(event):
                self.tracker.apply(event)
                self.leases.take_in(event, self.tracker)

    def start(self, attempt: str, hosts: Iterable[str] = (H1, H2)) -> None:
        workers = tuple(Worker(rank, host) for rank, host in enumerate(hosts))
        self.take(AttemptStarted(self.now, KEY, attempt, workers))

    def report(self, host: str, *leases: WorkerLease, gone: Iterable[int] = ()) -> list[Event]:
        missing = tuple(WorkerId(job=KEY, rank=rank) for rank in gone)
        self.leases.report(AGENT[host], Workers(leases=leases, gone=missing))
        return self.look()

    def both(self) -> None:
        self.report(H1, lease(0, 11))
        self.report(H2, lease(1, 12))

    def look(self) -> list[Event]:
        events = self.leases.due(self.tracker, self.now)
        self.take(*events)
        return events

    def wait(self, seconds: float) -> list[Event]:
        self.now += seconds
        return self.look()

    @property
    def status(self) -> TrialStatus:
        return self.tracker.trials[KEY].status

    @property
    def processes(self) -> dict[int, Process]:
        attempt = self.tracker.trials[KEY].attempt
        assert attempt is not None
        return attempt.processes

    def restarted(self) -> "Scene":
        """Return the scene after a restart of the controller: the tracker is as it was, reports are not known."""
        again = Scene(started=False)
        again.tracker, again.now = self.tracker, self.now
        return again


def test_a_lease_attaches_its_process() -> None:
    scene = Scene()
    assert scene.report(H1, lease(0, 11)) == [WorkerAttached(100.0, KEY, 0, process(11))]
    assert scene.look() == []
    assert scene.processes == {0: process(11)}
    assert KEY in scene.leases.held


def test_a_lease_waits_for_its_trials_attempt_and_for_its_run() -> None:
    scene = Scene(started=False)
    assert scene.report(H1, lease(0, 11, run="2"), lease(0, 21, trial="u")) == []
    scene.start("one")
    assert scene.look() == []
    scene.take(StudyRegistered(101.0, "s", run="2"), TrialRegistered(101.0, "s", "t"))
    assert scene.look() == []
    scene.start("one")
    assert scene.look() == [WorkerAttached(100.0, KEY, 0, process(11))]


def test_a_lease_of_a_replaced_run_attaches_nothing() -> None:
    scene = Scene(started=False)
    scene.take(StudyRegistered(101.0, "s", run="2"), TrialRegistered(101.0, "s", "t"))
    scene.start("one")
    assert scene.report(H1, lease(0, 11, run="1")) == []


def test_a_lease_of_a_rank_on_another_host_is_refused_in_words() -> None:
    scene = Scene()
    assert scene.report(H3, lease(0, 11)) == []
    [found] = scene.leases.unattached(scene.tracker)
    assert (found.trial, found.rank, found.agent) == (KEY, 0, AGENT[H3])
    assert H1 in found.reason


def test_a_lease_of_a_process_that_no_worker_can_be_keeps_no_other_back() -> None:
    scene = Scene(started=False)
    scene.start("one", (H1, H1))
    assert scene.report(H1, lease(1, 1), lease(0, 11)) == [WorkerAttached(100.0, KEY, 0, process(11))]
    [found] = scene.leases.unattached(scene.tracker)
    assert (found.trial, found.rank, found.agent) == (KEY, 1, AGENT[H1])
    assert "pid" in found.reason
    scene.report(H1, lease(0, 11))
    assert scene.leases.unattached(scene.tracker) == []


def test_a_look_goes_through_the_ranks_of_an_attempt_a_few_times_and_not_once_for_every_lease() -> None:
    walks = 0

    class Counted(tuple[Worker, ...]):
        def __iter__(self) -> Iterator[Worker]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    ranks = 50
    scene = Scene(started=False)
    scene.start("one", [H1] * ranks)
    attempt = scene.tracker.trials[KEY].attempt
    assert attempt is not None
    scene.report(H1, *(lease(rank, 100 + rank) for rank in range(ranks)))
    attempt.workers = Counted(attempt.workers)
    assert scene.look() == []
    assert scene.leases.unattached(scene.tracker) == []
    assert walks < 10


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lease_of_another_user_attaches_nothing_and_is_shown(rank: int) -> None:
    scene = Scene()
    scene.report(H1, lease(0, 11))
    host = (H1, H2)[rank]
    mine = (lease(0, 11),) if rank == 0 else ()
    assert scene.report(host, *mine, lease(rank, 66, uid=1001)) == []
    [found] = scene.leases.unattached(scene.tracker)
    assert (found.trial, found.rank, found.agent) == (KEY, rank, AGENT[host])
    assert found.reason == "its process is user 1001's, its attempt user 1000's"
    assert scene.processes == {0: process(11)}
    scene.take(WorkerDetached(scene.now, KEY, 0))
    assert scene.look() == [], "the attempt is the same user's when its worker has left"
    again = scene.restarted()
    again.leases.take_in(WorkerAttached(scene.now, KEY, 0, process(11)), again.tracker)
    assert again.report(host, lease(rank, 66, uid=1001)) == [], "and after a restart"


def test_of_leases_of_two_users_that_come_together_one_users_attach() -> None:
    scene = Scene()
    scene.start("two", (H1, H1, H1))
    assert len(scene.report(H1, lease(0, 11), lease(1, 66, uid=1001), lease(2, 13))) == 2
    assert scene.processes == {0: process(11), 2: process(13)}
    assert scene.look() == []
    assert [found.rank for found in scene.leases.unattached(scene.tracker)] == [1]


def test_root_may_attach_to_what_is_anothers_which_stays_theirs() -> None:
    scene = Scene()
    scene.start("two", (H1, H1, H1))
    scene.report(H1, lease(1, 11))
    scene.report(H1, lease(1, 11), lease(0, 12, uid=0), lease(2, 66, uid=1001))
    assert scene.processes == {0: process(12, uid=0), 1: process(11)}
    scene.report(H1, lease(1, 11), lease(0, 12, uid=0), lease(2, 13))
    assert scene.processes == {0: process(12, uid=0), 1: process(11), 2: process(13)}


def test_the_next_attempt_may_be_another_users() -> None:
    scene = Scene()
    scene.report(H1, lease(0, 11))
    scene.report(H1)
    scene.start("two")
    assert scene.report(H1, lease(0, 66, uid=1001)) == [WorkerAttached(scene.now, KEY, 0, process(66, uid=1001))]


def test_what_an_agent_does_not_mark_is_named() -> None:
    scene = Scene()
    scene.leases.report(AGENT[H1], Workers(refused=((WorkerId(job=KEY, rank=0), "of another process namespace"),)))
    [found] = scene.leases.unattached(scene.tracker)
    assert (found.rank, found.reason) == (0, "of another process namespace")


@pytest.mark.parametrize("how", ["closed", "gone", "agent"])
def test_a_worker_that_is_gone_ends_its_attempt_after_the_grace(how: str) -> None:
    scene = Scene()
    scene.both()
    if how == "closed":
        assert scene.report(H1) == []
    elif how == "gone":  # a child has inherited the connection
        assert scene.report(H1, lease(0, 11), gone=[0]) == []
    else:
        scene.leases.forget(AGENT[H1])
        assert scene.look() == []
    assert scene.leases.next_s == 110.0
    assert scene.wait(9.9) == []
    assert scene.wait(0.2) == [AttemptEnded(scene.now, KEY, "one", EndReason.LOST)]
    assert scene.status is TrialStatus.LOST
    assert scene.wait(100.0) == [], "the survivor does not bring it back"
    assert scene.leases.next_s is None


def test_an_agent_that_is_back_within_the_grace_ends_nothing() -> None:
    scene = Scene()
    scene.both()
    scene.leases.forget(AGENT[H1])
    scene.look()
    assert scene.wait(5.0) == []
    assert scene.report(H1, lease(0, 11)) == []
    assert scene.wait(60.0) == []
    scene.leases.forget(AGENT[H1])
    assert scene.look() == []
    assert scene.wait(9.0) == [], "the grace counts anew"


def test_another_process_in_the_place_of_one_that_is_gone() -> None:
    scene = Scene()
    scene.both()
    scene.report(H1)
    scene.now += 5.0
    assert scene.report(H1, lease(0, 13)) == [WorkerAttached(105.0, KEY, 0, process(13))]
    assert scene.wait(60.0) == []


def test_a_lost_attempt_goes_on_when_its_worker_is_back() -> None:
    scene = Scene()
    scene.both()
    scene.report(H1)
    scene.wait(11.0)
    assert scene.status is TrialStatus.LOST
    events = scene.report(H1, lease(0, 13))
    assert [(event.rank, event.process.pid) for event in events if isinstance(event, WorkerAttached)] == [(0, 13), (1, 12)]
    assert (scene.status, scene.look()) == (TrialStatus.RUNNING, [])


def test_an_attempt_that_is_reported_lost_is_not_brought_back_by_leases_that_were_there() -> None:
    scene = Scene()
    scene.both()
    scene.take(AttemptEnded(scene.now, KEY, "one", EndReason.LOST))
    assert scene.wait(60.0) == []
    assert scene.status is TrialStatus.LOST


def test_the_same_processes_go_on_in_the_next_attempt() -> None:
    scene = Scene()
    scene.both()
    scene.take(AttemptEnded(scene.now, KEY, "one", EndReason.PAUSED))
    assert scene.wait(60.0) == []
    scene.start("two")
    assert len(scene.look()) == 2
    assert scene.processes == {0: process(11), 1: process(12)}


def test_a_trial_that_moves_leaves_its_old_process_behind() -> None:
    scene = Scene()
    scene.both()
    scene.start("two", (H3, H2))
    assert scene.look() == []
    assert scene.processes == {1: process(12)}, "this one stays where it is"
    assert [found.agent for found in scene.leases.unattached(scene.tracker)] == [AGENT[H1]]
    assert scene.report(H3, lease(0, 13)) == [WorkerAttached(100.0, KEY, 0, process(13))]
    scene.report(H1)
    assert scene.wait(60.0) == []


def test_of_two_processes_with_one_rank_the_later_one_counts() -> None:
    scene = Scene()
    scene.report(H1, lease(0, 13), lease(0, 11))
    assert scene.processes == {0: process(13)}


def test_a_worker_that_detaches_is_not_lost() -> None:
    scene = Scene()
    scene.both()
    scene.take(WorkerDetached(scene.now, KEY, 0))
    assert scene.look() == [], "its agent may notice later"
    assert scene.report(H1) == []
    assert scene.wait(60.0) == []
    assert scene.processes == {1: process(12)}


def test_when_the_last_worker_has_detached_the_attempt_is_paused_after_the_grace() -> None:
    scene = Scene()
    scene.both()
    scene.take(WorkerDetached(scene.now, KEY, 0), WorkerDetached(scene.now, KEY, 1))
    scene.report(H1)
    assert scene.report(H2) == []
    assert scene.wait(9.0) == []
    assert scene.wait(2.0) == [AttemptEnded(scene.now, KEY, "one", EndReason.PAUSED)]
    assert scene.status is TrialStatus.PAUSED


def test_a_worker_that_detached_and_attached_at_once_is_taken_up_again() -> None:
    scene = Scene()
    scene.both()
    scene.take(WorkerDetached(scene.now, KEY, 0))
    scene.look()
    assert scene.wait(GRACE_S) == [WorkerAttached(scene.now, KEY, 0, process(11))], "its agent's report never changed"
    assert scene.wait(60.0) == []


def test_an_attempt_to_which_nobody_has_attached_goes_on() -> None:
    scene = Scene()
    assert scene.look() == []
    assert scene.wait(1000.0) == []
    assert scene.leases.next_s is None


def test_without_a_lease_a_worker_is_there_until_its_agent_misses_it() -> None:
    scene = Scene()
    scene.take(WorkerAttached(scene.now, KEY, 0, process(11, leased=False)))
    assert scene.look() == []
    assert scene.wait(1000.0) == [], "it may have no agent"
    assert scene.report(H1, gone=[0]) == []
    assert scene.wait(11.0) == [AttemptEnded(scene.now, KEY, "one", EndReason.LOST)]
    scene.report(H1)
    scene.take(WorkerAttached(scene.now, KEY, 0, process(15, leased=False)))
    assert scene.status is TrialStatus.RUNNING
    assert scene.wait(60.0) == []


def test_after_a_restart_of_the_controller_leases_have_a_whole_grace() -> None:
    scene = Scene()
    scene.both()
    scene.now += 500.0
    again = scene.restarted()
    assert again.look() == []
    assert again.leases.next_s == again.now + GRACE_S
    assert again.report(H1, lease(0, 11)) == []
    again.now += 9.0
    assert again.report(H2, lease(1, 12)) == []
    assert again.wait(60.0) == []

    once_more = again.restarted()
    once_more.look()
    assert [type(event) for event in once_more.wait(11.0)] == [AttemptEnded]
    assert once_more.report(H2, lease(1, 12)) == [], "one of two alone does not bring it back"
    assert len(once_more.report(H1, lease(0, 14))) == 2
    assert once_more.status is TrialStatus.RUNNING


def test_a_trial_that_has_ended_misses_nobody() -> None:
    scene = Scene()
    scene.both()
    scene.take(TrialEnded(scene.now, KEY, TrialStatus.FINISHED))
    scene.report(H1)
    assert scene.wait(60.0) == []


@pytest.mark.parametrize("how", ["the trial ends", "the study ends", "it begins anew"])
def test_of_trials_that_are_over_nothing_is_kept(how: str) -> None:
    scene = Scene()
    scene.both()
    scene.report(H1)
    scene.wait(11.0)
    assert scene.status is TrialStatus.LOST
    scene.take(
        {
            "the trial ends": TrialEnded(scene.now, KEY, TrialStatus.KILLED),
            "the study ends": StudyEnded(scene.now, "s"),
            "it begins anew": StudyRegistered(scene.now, "s", run="2"),
        }[how]
    )
    assert [vars(scene.leases)[kept] for kept in ("_populated", "_owner", "_lost", "_attached")] == [{}, {}, {}, {}]
