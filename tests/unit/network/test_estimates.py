"""What is used of trials' profiles, where it comes from, and that nobody gains rank by declaring less than they send."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.network.estimates import CHANGE, RECENT_TRIALS, Source, Sourced
from beamer.network.events import Measured
from beamer.network.job import UNDECLARED_BYTES
from beamer.network.protocol import WorkerBytes
from beamer.network.traffic_measurement import UNREPORTED_S
from beamer.studies.events import (
    AttemptEnded,
    Progressed,
    StudyRegistered,
    TargetSet,
    TrialEnded,
)
from beamer.studies.model import Profile, TrialStatus, Worker
from tests.support.counted import FABRIC, MB, Site, forecast


def test_before_anything_is_known_a_constant_is_used() -> None:
    site = Site()
    assert site.sync_bytes(site.start("s/a")) == Sourced(UNDECLARED_BYTES, Source.PREDICTED)


def test_what_is_not_declared_is_measured() -> None:
    site = Site()
    trial = site.start("s/a")
    site.run({trial: 3 * MB})
    used = site.sync_bytes(trial)
    assert used.source is Source.MEASURED
    assert used.value == pytest.approx(3 * MB, rel=0.01)
    assert used.error == pytest.approx(0.0, abs=CHANGE)
    assert site.compute_s(trial).source is Source.MEASURED


def test_trials_that_are_measured_nearly_alike_load_the_network_alike() -> None:
    site = Site()
    trials = [site.start(f"s/{i}") for i in range(20)]
    for i, trial in enumerate(trials):
        site.take(Measured(1.0, trial, "1", 3_141_592.6 + i, 1.0, 0.1))
    assert {site.sync_bytes(trial).value for trial in trials} == {3_140_000.0}
    site.order("beamer")
    assert len(site.ledger.footprints._known) == 1


def test_before_it_is_measured_a_trial_is_like_the_others_of_its_study() -> None:
    site = Site()
    for name, size in (("a", 1), ("b", 2), ("c", 9)):
        trial = site.start(f"s/{name}")
        site.run({trial: size * MB})
        site.take(TrialEnded(site.tracker.now_s, trial, TrialStatus.FINISHED))
    used = site.sync_bytes(site.start("s/d"))
    assert (used.source, used.error) == (Source.PREDICTED, None)
    assert used.value == pytest.approx(2 * MB, rel=0.01)
    assert site.sync_bytes(site.start("other/d")) == Sourced(UNDECLARED_BYTES, Source.PREDICTED)


def test_a_declaration_near_the_truth_stands_and_shows_how_near_it_is() -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=3 * MB))
    site.run({trial: 4 * MB})
    used = site.sync_bytes(trial)
    assert (used.value, used.source, used.overruled) == (3 * MB, Source.DECLARED, False)
    assert used.error == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("declared", [0, 300_000, 30 * MB])
def test_a_declaration_that_counters_contradict_is_overruled(declared: int) -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=declared))
    site.run({trial: 3 * MB})
    used = site.sync_bytes(trial)
    assert (used.source, used.overruled) == (Source.MEASURED, True)
    assert used.value == pytest.approx(3 * MB, rel=0.01)


@pytest.mark.parametrize("policy", ["beamer", "sebf"])
def test_nobody_gains_rank_by_declaring_a_tenth(policy: str) -> None:
    site = Site()
    honest = site.start("s/honest", Profile(sync_bytes=2 * MB, compute_s=0.0))
    liar = site.start("t/liar", Profile(sync_bytes=400_000, compute_s=0.0))
    for trial in (honest, liar):
        site.take(TargetSet(0.0, trial, 1000))
    assert site.order(policy) == [liar, honest]
    site.run({honest: 2 * MB, liar: 4 * MB})
    assert site.order(policy) == [honest, liar]


@pytest.mark.parametrize("policy", ["beamer", "sebf"])
def test_who_declares_too_much_is_not_served_late_for_it(policy: str) -> None:
    site = Site()
    modest = site.start("s/modest", Profile(sync_bytes=20 * MB, compute_s=0.0))
    other = site.start("t/other", Profile(sync_bytes=4 * MB, compute_s=0.0))
    for trial in (modest, other):
        site.take(TargetSet(0.0, trial, 1000))
    assert site.order(policy) == [other, modest]
    site.run({modest: 2 * MB, other: 4 * MB})
    assert site.order(policy) == [modest, other]


def send(site: Site, trial: str, size: int, lasts: int, step: int | None = None) -> None:
    """Let a trial send `size` bytes a second per rank, as agents count, and report the same step again and again, or none."""
    began_s = site.tracker.now_s
    for second in range(lasts):
        attempt = site.tracker.trial(trial).attempt
        assert attempt is not None
        for worker in attempt.workers:
            count = WorkerBytes(job=trial, rank=worker.rank, sent_bytes=second * size)
            site.take(*site.meters.counted(FABRIC.host[worker.host].agent, (count,), began_s + second))
        if step is not None:
            site.take(Progressed(began_s + second, trial, step))
            site.take(*site.meters.progressed(trial, began_s + second))


@pytest.mark.parametrize("policy", ["beamer", "sebf"])
@pytest.mark.parametrize("step", [None, 0, 1])
def test_nobody_gains_rank_by_declaring_a_byte_and_reporting_no_progress(policy: str, step: int | None) -> None:
    site = Site()
    honest = site.start("s/honest", Profile(sync_bytes=2 * MB, compute_s=0.0))
    liar = site.start("t/liar", Profile(sync_bytes=1, compute_s=0.0))
    for trial in (honest, liar):
        site.take(TargetSet(0.0, trial, 1000))
    assert site.order(policy) == [liar, honest]
    send(site, liar, 40 * MB, 90, step)
    assert site.sync_bytes(liar) == Sourced(UNDECLARED_BYTES, Source.PREDICTED, None, True)
    assert site.order(policy) == [honest, liar]
    assert len(site.measurements()) == 1
    again = site.replayed()
    assert again.tracker == site.tracker
    assert again.sync_bytes(liar) == site.sync_bytes(liar)


def test_who_is_not_believed_counts_like_the_others_of_the_study_until_measured() -> None:
    site = Site()
    other = site.start("s/other")
    site.run({other: 5 * MB})
    liar = site.start("s/liar", Profile(sync_bytes=1))
    send(site, liar, 40 * MB, 90)
    used = site.sync_bytes(liar)
    assert (used.source, used.overruled) == (Source.PREDICTED, True)
    assert used.value == pytest.approx(5 * MB, rel=0.01)
    site.start("s/liar", Profile(sync_bytes=2), attempt="2")  # another attempt is not another chance
    assert (site.sync_bytes(liar).source, site.sync_bytes(liar).overruled) == (Source.PREDICTED, True)
    site.run({liar: 3 * MB})
    used = site.sync_bytes(liar)
    assert (used.source, used.overruled) == (Source.MEASURED, True)
    assert used.value == pytest.approx(3 * MB, rel=0.01)


def test_progress_on_one_host_is_none_on_two() -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=1), workers=(Worker(0, "h1"), Worker(1, "h1")))
    site.run({trial: 0})
    assert [event.sync_bytes for event in site.measurements()] == [None]
    site.start(trial, Profile(sync_bytes=1), attempt="2")
    send(site, trial, 40 * MB, 90)
    assert site.sync_bytes(trial).overruled


def test_a_declaration_stands_without_progress_while_the_bytes_bear_it_out_or_are_few() -> None:
    site = Site()
    honest = site.start("s/honest", Profile(sync_bytes=3 * MB))
    send(site, honest, 30 * MB, 600)  # reports every ten minutes, ten steps a second
    idle = site.start("s/idle", Profile(sync_bytes=0))
    send(site, idle, 1000, 600)  # heartbeats
    early = site.start("s/early", Profile(sync_bytes=1))
    send(site, early, 40 * MB, int(UNREPORTED_S))
    local = site.start("s/local", Profile(sync_bytes=1), workers=(Worker(0, "h1"), Worker(1, "h1")))
    send(site, local, 40 * MB, 90)
    assert {site.sync_bytes(trial).source for trial in (honest, idle, early, local)} == {Source.DECLARED}
    assert site.measurements() == []


def test_what_was_measured_before_is_not_lost_for_want_of_progress() -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=3 * MB))
    site.run({trial: 3 * MB})
    site.start(trial, Profile(sync_bytes=3 * MB), attempt="2")
    send(site, trial, 3_000 * MB, 90)
    assert site.sync_bytes(trial).source is Source.DECLARED
    assert len(site.measurements()) == 1


def test_more_computing_than_an_iteration_lasts_is_overruled_and_less_is_not() -> None:
    site = Site()
    much, little = (
        site.start("s/much", Profile(100_000, compute_s=30.0)),
        site.start("s/little", Profile(100_000, compute_s=0.01)),
    )
    site.run({much: 100_000, little: 100_000})
    assert site.compute_s(much).overruled
    assert site.compute_s(much).value < 1.0
    assert (site.compute_s(little).source, site.compute_s(little).overruled) == (Source.DECLARED, False)


def test_what_is_overruled_stays_so_however_near_the_measurement_comes() -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=1 * MB))
    for i, size in enumerate((2.5, 1.8, 2.5, 1.2, 2.5)):
        site.take(Measured(float(i), trial, "1", size * MB, 1.0, 0.1))
        assert site.sync_bytes(trial) == Sourced(size * MB, Source.MEASURED, 0.0, True)


@given(st.lists(st.floats(0.6, 1.9), min_size=1, max_size=20))
@settings(deadline=None)
def test_what_is_never_contradicted_is_never_overruled(measured: list[float]) -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=MB))
    for i, size in enumerate(measured):
        site.take(Measured(float(i), trial, "1", size * MB, 1.0, 0.1))
        assert (site.sync_bytes(trial).value, site.sync_bytes(trial).overruled) == (MB, False)


def test_a_moved_trial_begins_with_what_was_measured_before() -> None:
    site = Site()
    trial = site.start("s/a")
    site.run({trial: 3 * MB})
    site.start("s/a", attempt="2", workers=(Worker(0, "h3"), Worker(1, "h4")))
    assert site.sync_bytes(trial).source is Source.PREDICTED
    assert site.sync_bytes(trial).value == pytest.approx(3 * MB, rel=0.01)
    site.run({trial: 5 * MB})
    assert site.sync_bytes(trial).source is Source.MEASURED
    assert site.sync_bytes(trial).value == pytest.approx(5 * MB, rel=0.01)


def test_who_was_overruled_is_not_believed_the_same_in_the_next_attempt() -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=MB))
    site.run({trial: 8 * MB})
    site.start(trial, Profile(sync_bytes=MB), attempt="2")
    assert (site.sync_bytes(trial).source, site.sync_bytes(trial).overruled) == (Source.PREDICTED, True)
    site.start(trial, Profile(sync_bytes=7 * MB), attempt="3")
    assert (site.sync_bytes(trial).source, site.sync_bytes(trial).overruled) == (Source.DECLARED, False)


def test_counters_of_the_host_that_a_rank_has_left_are_not_taken() -> None:
    site = Site()
    trial = site.start("s/a", workers=(Worker(0, "h3"), Worker(1, "h4")))
    for second in range(60):
        for rank, agent in ((0, "h1"), (1, "h2")):
            count = WorkerBytes(job=trial, rank=rank, sent_bytes=second * MB)
            assert site.meters.counted(agent, (count,), float(second)) == ()
        site.take(Progressed(float(second), trial, second))
        assert site.meters.progressed(trial, float(second)) == ()
    assert site.meters.measurement(trial) is None


def test_counters_of_many_ranks_go_through_the_ranks_a_few_times_and_not_once_for_each() -> None:
    walks = 0

    class Counted(tuple[Worker, ...]):
        def __iter__(self) -> Iterator[Worker]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    ranks = 50
    site = Site()
    trial = site.start("s/a", workers=tuple(Worker(rank, "h1") for rank in range(ranks)))
    attempt = site.tracker.trial(trial).attempt
    assert attempt is not None
    counts = [WorkerBytes(job=trial, rank=rank, sent_bytes=0) for rank in range(ranks)]
    site.meters.counted("h1", counts, 1.0)
    attempt.workers = Counted(attempt.workers)
    site.meters.counted("h1", counts, 2.0)
    assert walks < 10


def test_a_trial_that_does_not_run_or_is_not_known_is_not_measured() -> None:
    site = Site()
    trial = site.start("s/a")
    site.take(AttemptEnded(1.0, trial, "1"))
    counts = [WorkerBytes(job=job, rank=0, sent_bytes=1) for job in (trial, "s/nobody")]
    assert site.meters.counted("h1", counts, 2.0) == ()
    assert site.meters.progressed(trial, 2.0) == ()


def test_a_long_steady_run_is_recorded_once() -> None:
    site = Site()
    trials = {site.start("s/a"): 3 * MB, site.start("s/b", Profile(sync_bytes=MB)): MB}
    site.run(trials, iteration_s=0.7, lasts=400)
    assert len(site.measurements()) == 2


def test_a_measurement_of_an_attempt_that_is_over_changes_nothing() -> None:
    site = Site()
    trial = site.start("s/a")
    site.start(trial, attempt="2")
    assert not site.tracker.check(Measured(1.0, trial, "1", 1.0, 1.0, 1.0))
    assert site.tracker.check(Measured(1.0, trial, "2", 1.0, 1.0, 1.0))


def test_a_study_that_begins_anew_begins_without_what_was_measured() -> None:
    site = Site()
    trial = site.start("s/a", Profile(sync_bytes=1))
    site.run({trial: 3 * MB})
    assert site.ledger.profiles.overruled
    site.take(StudyRegistered(site.tracker.now_s, "s", run="2", barriers=False))
    assert site.sync_bytes(site.start("s/a")) == Sourced(UNDECLARED_BYTES, Source.PREDICTED)
    assert not site.ledger.profiles.overruled


def test_of_trials_that_ended_only_what_predictions_need_is_kept() -> None:
    site = Site()
    for i in range(2 * RECENT_TRIALS):
        trial = site.start(f"s/t{i}", Profile(sync_bytes=1))
        site.take(Measured(site.tracker.now_s, trial, "1", i * MB, 1.0, 1.0))
        site.take(TrialEnded(site.tracker.now_s, trial, TrialStatus.FINISHED))
    profiles = site.ledger.profiles
    assert len(profiles.measured["s"]) == len(profiles.overruled) == RECENT_TRIALS
    assert site.sync_bytes(site.start("s/next")).value == pytest.approx((3 * RECENT_TRIALS - 1) / 2 * MB, rel=0.01)
    assert site.replayed().tracker == site.tracker
    site.take(StudyRegistered(site.tracker.now_s, "s", run="2", barriers=False))
    assert profiles.measured == profiles.ended == {}
    assert not profiles.overruled


def test_a_journal_tells_what_was_learnt() -> None:
    site = Site(forecast)
    trials = {site.start("s/a", Profile(sync_bytes=MB // 10)): MB, site.start("s/b"): 2 * MB, site.start("t/c"): 3 * MB}
    site.run(trials)
    for i, trial in enumerate(trials):
        for step in range(50, 80):
            site.take(Progressed(100.0 + step, trial, step, 1 / step + i))
    site.take(TrialEnded(300.0, "s/b", TrialStatus.KILLED))
    site.start("s/a", Profile(sync_bytes=MB // 10), attempt="2")
    again = site.replayed()
    assert again.tracker == site.tracker
    assert again.ledger.views(again.tracker) == site.ledger.views(site.tracker)
    assert again.ledger.profiles.overruled == {("s/a", "sync_bytes")}
