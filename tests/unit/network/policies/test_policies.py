"""What each network policy does with stages, studies and their declared rungs."""

import math
from dataclasses import replace
from random import Random

import pytest

from beamer.errors import InputError
from beamer.network.job import JobSpec
from beamer.network.policies import Tier, network_policy
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, LaterRung, StageView, StudyView
from beamer.network.work import aged, remaining_work
from beamer.studies.model import Worker, trial_key
from beamer.testing.fabrics import star

FABRIC = star(4)
PAIR = (Worker(0, "h1"), Worker(1, "h2"))


def job(
    study: str, name: str, *, iterations: int = 10, done: int = 0, sync_bytes: int = 100_000,
    started_s: float = 0.0, compute_s: float = 0.0, overlap: float = 0.0,
) -> JobView:  # fmt: skip
    spec = JobSpec(name, PAIR, iterations, sync_bytes, compute_s=compute_s, overlap=overlap)
    return JobView(trial_key(study, name), spec, iterations - done, 0, started_s)


def study(
    name: str,
    *jobs: JobView,
    later: tuple[LaterRung, ...] = (),
    weight: float = 1.0,
    stage: str = "rung0",
    since_s: float = 0.0,
) -> StudyView:
    return StudyView(name, weight, (StageView(stage, jobs, since_s),), later)


def tiers(policy: str, *studies: StudyView, now: float = 0.0) -> tuple[Tier, ...]:
    chosen = network_policy(policy)
    return chosen.order(chosen.initial(), Snapshot.of(FABRIC, studies), now, Random(0))[1]


def tier_jobs(policy: str, *studies: StudyView, now: float = 0.0) -> list[tuple[str, ...]]:
    return [tier.jobs for tier in tiers(policy, *studies, now=now)]


def test_fair_puts_everything_into_one_class_that_nothing_divides() -> None:
    assert tiers("fair", study("a", job("a", "x")), study("b", job("b", "y"))) == (Tier(("a/x", "b/y"), False),)


def test_fifo_serves_jobs_by_registration_across_studies() -> None:
    first = study("a", job("a", "x", started_s=5.0), job("a", "y", started_s=1.0))
    second = study("b", job("b", "z", started_s=3.0))
    assert tier_jobs("fifo", first, second) == [("a/y",), ("b/z",), ("a/x",)]


def test_beamer_serves_the_study_with_least_left_to_do_first() -> None:
    long = study("a", job("a", "x", iterations=10), job("a", "y", iterations=10))
    short = study("b", job("b", "z", iterations=10))
    assert tier_jobs("beamer", long, short) == [("b/z",), ("a/x", "a/y")]


def test_beamer_counts_only_what_remains() -> None:
    nearly_done = study("a", job("a", "x", iterations=100, done=99))
    fresh = study("b", job("b", "z", iterations=10))
    assert tier_jobs("beamer", fresh, nearly_done)[0] == ("a/x",)


def test_beamer_honours_weights() -> None:
    light = study("a", job("a", "x", iterations=10))
    heavy = study("b", job("b", "z", iterations=20), weight=3.0)
    assert tier_jobs("beamer", light, heavy)[0] == ("b/z",)


def test_beamer_looks_beyond_the_stage_and_its_ablation_does_not() -> None:
    chained = study("a", job("a", "x", iterations=10), later=(LaterRung("rung1", 1, 40),))
    single = study("b", job("b", "z", iterations=20))
    assert tier_jobs("beamer", chained, single)[0] == ("b/z",)
    assert tier_jobs("beamer-stage", chained, single)[0] == ("a/x",)


def test_a_later_rung_loads_what_its_survivors_do_where_they_are_known() -> None:
    known = LaterRung("rung1", 1, 40, survivors=("y",))
    jobs = (job("a", "x"), job("a", "y", sync_bytes=400_000))
    told, untold = (
        remaining_work(Snapshot.of(FABRIC, (study("a", *jobs, later=(rung,)),)), True).items
        for rung in (known, replace(known, survivors=()))
    )
    alone = remaining_work(Snapshot.of(FABRIC, (study("a", *jobs),)), True).items
    x, y = (float(Snapshot.of(FABRIC, (study("a", one),)).jobs.seconds[0]) for one in jobs)
    assert told.seconds - alone.seconds == pytest.approx(40 * y)
    assert untold.seconds - alone.seconds == pytest.approx(40 * (x + y) / 2)


def test_weights_age_by_the_time_waited_relative_to_what_the_stage_has_left() -> None:
    waiting = study("a", job("a", "x", iterations=10), later=(LaterRung("rung1", 1, 40),), since_s=2.0)
    chosen = Snapshot.of(FABRIC, (waiting, study("b", job("b", "z"), since_s=50.0)))
    left_s = float(10 * chosen.jobs.iteration_s[0])
    young, old = (
        aged(remaining_work(chosen, True), chosen, now, 0.5, 0.0).items.weight.tolist() for now in (2.0, 2.0 + 3 * left_s)
    )
    assert young == [1.0, 1.0]
    assert old == pytest.approx([2.0, 1.0]), "the square root of 1 + 3; later rungs count neither as age nor as left"


def test_the_busiest_link_counts_as_left_where_it_takes_longer_than_any_job() -> None:
    wide = Snapshot.of(FABRIC, (study("a", job("a", "x"), job("a", "y"), job("a", "z")),))
    critical_s = float(10 * wide.jobs.iteration_s[0])
    assert aged(remaining_work(wide, True), wide, 3 * critical_s, 1.0, 0.0).items.weight.tolist() == pytest.approx([2.0])


def test_a_trial_that_no_stage_waits_for_does_not_age() -> None:
    alone = StageView("trial:x", (job("a", "x"),), math.inf, barrier=False)
    now = Snapshot.of(FABRIC, (StudyView("a", 1.0, (alone,)), study("b", job("b", "z"))))
    assert aged(remaining_work(now, True), now, 1e6, 0.5, 3.0).items.weight.tolist()[0] == 1.0


def test_a_stage_that_waits_for_longer_than_fair_shares_would_make_it_is_overdue() -> None:
    two = Snapshot.of(FABRIC, (study("a", job("a", "x")), study("b", job("b", "z"), since_s=1e6)))
    left_s = float(10 * two.jobs.iteration_s[0])
    at = [aged(remaining_work(two, True), two, times * left_s, 1.0, 3.0).items.weight[0] for times in (1.0, 2.0, 4.0)]
    assert at == pytest.approx([2.0, 3.0, 5.0 * 2.0**3])


def test_a_long_stage_that_has_waited_passes_a_shorter_one_that_has_just_begun() -> None:
    long, short = study("a", job("a", "x", iterations=30)), study("b", job("b", "z", iterations=20), since_s=1000.0)
    assert tier_jobs("beamer", long, short)[0] == ("b/z",)
    assert tier_jobs("beamer", long, short, now=1000.0)[0] == ("a/x",)


def test_a_declared_rung_weighs_by_its_number_of_jobs() -> None:
    few = study("a", job("a", "x"), later=(LaterRung("rung1", 1, 10),))
    many = study("b", job("b", "z"), later=(LaterRung("rung1", 4, 10),))
    assert tier_jobs("beamer", many, few)[0] == ("a/x",)


def test_stages_of_a_study_without_declared_rungs_are_ordered_one_by_one() -> None:
    stages = (
        StageView("long", (job("a", "x", iterations=30),), 0.0),
        StageView("short", (job("a", "y", iterations=10),), 0.0),
    )
    assert tier_jobs("beamer", StudyView("a", 1.0, stages)) == [("a/y",), ("a/x",)]


def test_the_slowest_job_of_a_stage_comes_first() -> None:
    jobs = (job("a", "quick"), job("a", "computing", compute_s=1.0), job("a", "large", sync_bytes=400_000))
    assert tier_jobs("beamer", study("a", *jobs)) == [("a/computing", "a/large", "a/quick")]


def test_overlap_shortens_the_critical_path() -> None:
    # 0.0418 s of network beside 0.5 s of computing: 0.5418 s one after the other, 0.5 s side by side.
    jobs = (job("a", "beside", compute_s=0.5, overlap=1.0), job("a", "after", compute_s=0.5))
    assert tier_jobs("beamer", study("a", *jobs)) == [("a/after", "a/beside")]


def test_an_order_stands_until_another_promises_a_real_gain() -> None:
    policy = network_policy("beamer")

    def at(done: int) -> Snapshot:
        return Snapshot.of(
            FABRIC, (study("a", job("a", "x", iterations=100)), study("b", job("b", "z", iterations=102, done=done)))
        )

    state, order, _ = policy.order(policy.initial(), at(0), 0.0, Random(0))
    assert order[0].jobs == ("a/x",)
    state, order, _ = policy.order(state, at(5), 1.0, Random(0))
    assert order[0].jobs == ("a/x",), "3 % less work does not pay for new rules"
    state, order, _ = policy.order(state, at(70), 2.0, Random(0))
    assert order[0].jobs == ("b/z",)


def test_a_new_study_is_ordered_at_once() -> None:
    policy = network_policy("beamer")
    first = study("a", job("a", "x", iterations=100))
    state, _, _ = policy.order(policy.initial(), Snapshot.of(FABRIC, (first,)), 0.0, Random(0))
    _, order, _ = policy.order(state, Snapshot.of(FABRIC, (first, study("b", job("b", "z", iterations=99)))), 1.0, Random(0))
    assert order[0].jobs == ("b/z",)


def test_jobs_of_a_stage_swap_only_when_clearly_slower() -> None:
    policy = network_policy("beamer")
    jobs = (job("a", "x", iterations=100), job("a", "y", iterations=99))
    state, order, _ = policy.order(policy.initial(), Snapshot.of(FABRIC, (study("a", *jobs),)), 0.0, Random(0))
    slightly = (replace(jobs[0], remaining=95), jobs[1])
    state, order, _ = policy.order(state, Snapshot.of(FABRIC, (study("a", *slightly),)), 1.0, Random(0))
    assert order[0].jobs == ("a/x", "a/y")
    clearly = (replace(jobs[0], remaining=70), jobs[1])
    _, order, _ = policy.order(state, Snapshot.of(FABRIC, (study("a", *clearly),)), 2.0, Random(0))
    assert order[0].jobs == ("a/y", "a/x")


def test_a_job_that_ends_does_not_reshuffle_the_others() -> None:
    policy = network_policy("beamer")
    jobs = (job("a", "x", iterations=100), job("a", "y", iterations=99), job("a", "z", iterations=98))
    state, _, _ = policy.order(policy.initial(), Snapshot.of(FABRIC, (study("a", *jobs),)), 0.0, Random(0))
    left = (replace(jobs[1], remaining=96), jobs[2])
    _, order, _ = policy.order(state, Snapshot.of(FABRIC, (study("a", *left),)), 1.0, Random(0))
    assert order[0].jobs == ("a/y", "a/z")


def test_a_trial_that_runs_anew_is_not_held_to_its_former_place() -> None:
    policy = network_policy("beamer")
    jobs = (job("a", "x", iterations=100), job("a", "y", iterations=99))
    state, order, _ = policy.order(policy.initial(), Snapshot.of(FABRIC, (study("a", *jobs),)), 0.0, Random(0))
    anew = (replace(jobs[0], remaining=95, started_s=1.0), replace(jobs[1], started_s=1.0))
    state, order, _ = policy.order(state, Snapshot.of(FABRIC, (study("a", *anew),)), 1.0, Random(0))
    assert order[0].jobs == ("a/y", "a/x"), "nothing of it is in the network yet"


def test_an_unknown_policy_is_named_with_the_nearest_known() -> None:
    with pytest.raises(InputError, match=r"policy: got 'beemer', expected one of .* \(did you mean 'beamer'\?\)"):
        network_policy("beemer")
