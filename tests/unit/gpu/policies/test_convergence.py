"""What jobs of unknown ends have left, how milestones are weighed, and what `convergence` decides by both."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from beamer.errors import InputError
from beamer.gpu.model import (
    Allocation,
    Cluster,
    Costs,
    Grant,
    Job,
    Node,
    Report,
    Request,
    RungWithoutBarrier,
    Speed,
    Stage,
    check_allocation,
)
from beamer.gpu.policies.convergence import (
    MAX_ENDED_JOBS,
    Convergence,
    ConvergenceState,
    _change_costs_s,
    _likelihoods,
    expected_ranks,
)  # fmt: skip
from beamer.gpu.predictors.work_left import MIN_ENDED, WorkLeft
from tests.support.jobs import known_job

MIN_S = 60.0


def left(ended: list[float], attained: float, running: tuple[float, ...] = ()) -> float:
    return float(WorkLeft.of(ended, running).expected(np.array([attained]), MIN_S)[0])


class TestWorkLeft:
    def test_with_few_ended_as_much_is_left_as_was_done(self) -> None:
        assert left([100.0] * (MIN_ENDED - 1), 30.0) == 30.0 + MIN_S
        assert left([], 0.0) == MIN_S

    def test_jobs_of_one_size_have_left_what_they_lack_of_it(self) -> None:
        assert left([100.0] * 10_000, 30.0) == pytest.approx(70.0, rel=1e-3)

    def test_the_few_that_took_longer_weigh_less_than_an_assumption(self) -> None:
        assert left([100.0] * 8, 30.0) == pytest.approx(90.0 ** (2 / 10) * 70.0 ** (8 / 10))

    def test_beyond_the_largest_nothing_was_learnt(self) -> None:
        assert left([100.0] * 10_000, 100.0) == 100.0 + MIN_S

    def test_the_index_is_that_of_the_next_likely_end(self) -> None:
        # half of the jobs take 10, the others 1000: serving for 10 ends half of them, so that 10 / (1/2) is expected per end
        ended = [10.0] * 5_000 + [1000.0] * 5_000
        assert left(ended, 0.0) == pytest.approx(20.0, rel=1e-3)
        assert left(ended, 10.0) == pytest.approx(990.0, rel=1e-2)

    def test_jobs_that_run_count_as_longer_than_what_they_have_had(self) -> None:
        # Kaplan and Meier: of 20 at risk at 10, ten end; the ten that run have passed it
        assert left([10.0] * 10_000, 0.0, (11.0,) * 10_000) == pytest.approx(20.0, rel=1e-3)

    @pytest.mark.parametrize("seed", range(5))
    def test_indices_are_those_of_a_plain_search(self, seed: int) -> None:
        rng = Random(seed)
        ended = sorted(rng.choice((1.0, 3.0, 10.0)) * rng.lognormvariate(3, 1) for _ in range(40))
        work = WorkLeft.of(ended, ())
        for attained in (0.0, *rng.sample(ended, 5)):
            longer = [size - attained for size in ended if size > attained]
            index = max((sum(one <= by for one in longer) / sum(min(one, by) for one in longer) for by in longer), default=0.0)
            assert work._index(np.array([attained]))[0] == pytest.approx(index)


class TestExpectedRanks:
    def test_sure_ones_are_plain_ranks(self) -> None:
        assert expected_ranks(np.array([0.0, 9.0, 5.0]), 50.0).tolist() == pytest.approx([1.0, 3.0, 2.0])

    def test_equal_ones_share_theirs(self) -> None:
        assert expected_ranks(np.zeros(5), 1.0).tolist() == pytest.approx([3.0] * 5)

    def test_twice_as_near_comes_first_two_times_of_three(self) -> None:
        assert expected_ranks(np.array([0.0, np.log(2.0)]), 1.0).tolist() == pytest.approx([4 / 3, 5 / 3], abs=0.01)

    @pytest.mark.parametrize("sharpness", [0.5, 1.0, 4.0])
    def test_they_add_up(self, sharpness: float) -> None:
        ranks = expected_ranks(np.random.default_rng(0).normal(size=40), sharpness)
        assert ranks.sum() == pytest.approx(40 * 41 / 2)
        assert ranks.min() >= 1.0


def cluster(nodes: int = 1, gpus: int = 8) -> Cluster:
    return Cluster(tuple(Node(f"n{number}", gpus) for number in range(nodes)))


def job(name: str, done: float, grant: Grant | None = None, study: str = "", **request: Any) -> Job:
    """A job that was measured on up to eight GPUs, where it is four times as fast as on one; `study`: "" for one of its own."""
    asked = Request(**{"iterations": 10**9, "known_end": False, "min_gpus": 1, "max_gpus": 8, **request})
    speeds = tuple(Speed(n, 1, 0, 1, n ** (-2 / 3)) for n in (1, 2, 4, 8))
    return known_job(
        f"s/{name}",
        asked,
        0.0,
        Stage(study or name, ""),
        (Report(1.0, done, 1.0, 1.0),),
        speeds,
        grant,
        costs=Costs(restart_s=1.0),
    )


def decide(
    *jobs: Job, state: ConvergenceState | None = None, on: Cluster | None = None, policy: Convergence | None = None
) -> tuple[ConvergenceState, Allocation]:
    policy, on = policy or Convergence(), on or cluster()
    state, allocation, _ = policy.allocate(state or policy.initial(), on, jobs, 1000.0, Random(0))
    check_allocation(on, jobs, allocation)
    return state, allocation


def sizes(allocation: Allocation) -> dict[str, int]:
    return {key.removeprefix("s/"): grant.size for key, grant in allocation.items()}


def test_of_jobs_of_unknown_ends_those_that_have_had_least_get_most() -> None:
    _, allocation = decide(job("new", 10.0), job("old", 1_000_000.0))
    assert sizes(allocation)["new"] > sizes(allocation)["old"] > 0


def test_of_new_jobs_of_unknown_ends_those_that_need_many_gpus_count_as_large() -> None:
    small, large = job("small", 1.0), job("large", 1.0, gpus=8, min_gpus=8)
    assert set(sizes(decide(large, small)[1])) == {"small"}


def test_a_change_that_gains_less_than_a_tenth_is_left() -> None:
    speeds = tuple(Speed(n, 1, 0, 1, 1.0 / speed) for n, speed in ((4, 1.0), (8, 1.08)))
    one = replace(job("one", 1e6, Grant.of({"n0": 4})), speeds=speeds, costs=Costs(restart_s=0.001))
    assert sizes(decide(one)[1]) == {"one": 4}


def test_what_is_left_is_learnt_from_jobs_that_ended() -> None:
    near_its_end, fresh = job("near", 9000.0), job("fresh", 1000.0)
    _, before = decide(near_its_end, fresh)
    _, after = decide(near_its_end, fresh, state=ConvergenceState(ended=(10_000.0,) * MAX_ENDED_JOBS))
    assert sizes(before)["near"] <= sizes(before)["fresh"]
    assert sizes(after)["near"] > sizes(after)["fresh"]


def test_jobs_that_are_gone_count_as_ended_with_what_they_had() -> None:
    state, _ = decide(job("one", 500.0), job("known", 500.0, known_end=True, iterations=1000))
    assert [(one.key, one.work_gpu_s) for one in state.open] == [("s/one", pytest.approx(500.0, rel=0.1))]
    state, _ = decide(job("two", 10.0), state=state)
    assert state.ended == (pytest.approx(500.0, rel=0.1),)
    assert [one.key for one in state.open] == ["s/two"]
    assert decide(job("two", 10.0), state=state)[0] == state
    little_more = decide(job("two", 10.2), state=state)[0]
    assert little_more == state, "nothing new is journaled for so little"
    full = replace(state, ended=tuple(map(float, range(MAX_ENDED_JOBS))))
    assert decide(job("three", 1.0), state=full)[0].ended[0] == 1.0, "the oldest is forgotten"
    adapter = TypeAdapter(ConvergenceState)
    assert adapter.validate_json(adapter.dump_json(state)) == state


def test_a_job_told_its_end_counts_by_it() -> None:
    short, long = (job(name, 100.0, known_end=True, iterations=end) for name, end in (("short", 1000), ("long", 1_000_000)))
    _, allocation = decide(short, long)
    assert sizes(allocation)["short"] > sizes(allocation)["long"]


def test_growth_that_would_not_pay_for_its_restart_is_left() -> None:
    held = Grant.of({"n0": 4})
    for restart_s, expected in ((1.0, 8), (250.0, 4)):
        one = replace(job("one", 1e6, held), costs=Costs(restart_s=restart_s))
        assert sizes(decide(one)[1]) == {"one": expected}


def test_a_job_that_does_not_report_does_not_keep_its_size_for_ever() -> None:
    held = Grant.of({"n0": 1})
    silent = replace(job("silent", 0.0, held), reports=(), speeds=())
    measured = job("measured", 0.0)
    on = cluster(nodes=2)
    for since_s, expected in ((900.0, 1), (100.0, 8)):
        assert sizes(decide(replace(silent, since_s=since_s), measured, on=on)[1])["silent"] == expected


@pytest.mark.parametrize(
    ("measured", "held", "asked", "expected"),
    [((1,), 1, 1, 2), ((1, 2), 2, 1, 4), ((2,), 0, 1, 4), ((1,), 6, 1, 6), ((1,), 1, 5, 5)],
)
def test_a_job_grows_to_what_it_asks_for_or_twice_what_it_was_measured_on(
    measured: tuple[int, ...], held: int, asked: int, expected: int
) -> None:
    speeds = tuple(Speed(n, 1, 0, 1, 1.0 / n) for n in measured)
    one = replace(job("one", 1e6, Grant.of({"n0": held}) if held else None, gpus=asked), speeds=speeds)
    assert sizes(decide(one)[1]) == {"one": expected}


def test_it_asks_to_decide_again_when_a_silent_job_may_grow() -> None:
    policy = Convergence()
    silent = replace(job("silent", 0.0, Grant.of({"n0": 1})), reports=(), speeds=())
    for since_s, expected in ((900.0, 1200.0), (700.0, None)):
        one = replace(silent, since_s=since_s)
        _, grants, wake_at = policy.allocate(policy.initial(), cluster(), [one], 1000.0, Random(0))
        assert (grants[one.key].size, wake_at) == (1 if expected else 8, expected)
    assert policy.allocate(policy.initial(), cluster(), [job("measured", 0.0)], 1000.0, Random(0))[2] is None


def trial(name: str, *losses: float, study: str = "search") -> Job:
    reports = tuple(Report(float(k), float(k), loss, float(k)) for k, loss in enumerate(losses))
    return replace(job(name, 0.0, study=study, max_gpus=1), reports=reports)


def test_of_trials_without_a_target_those_that_converge_fastest_run() -> None:
    falling, slower = trial("falling", 9.0, 6.0, 4.0, 3.0, 2.5, 2.2), trial("slower", 9.0, 8.9, 8.8, 8.7, 8.6, 8.5)
    flat, rising = trial("flat", *[9.0] * 6), trial("rising", *map(float, range(9, 15)))
    diverged = trial("diverged", 9.0, 8.0, *[float("nan")] * 4)
    new = trial("new", 9.0)
    order = [new, falling, slower, flat, rising, diverged]
    policy = Convergence(window=5)
    for count in range(1, 6):
        chosen = sizes(decide(*reversed(order), on=cluster(gpus=count), policy=policy)[1])
        assert set(chosen) == {one.key[2:] for one in order[:count]}


def test_of_trials_at_rungs_those_that_few_have_come_as_far_as_run_first() -> None:
    def at(name: str, jobs: int, iterations: int) -> Job:
        one = job(name, 0.0, study="search", max_gpus=1)
        return replace(one, stage=replace(one.stage, jobs=jobs), request=replace(one.request, iterations=iterations))

    first, second = [at(f"first {i}", 12, 100) for i in range(3)], at("second", 3, 300)
    assert set(sizes(decide(*first, second, on=cluster(gpus=1))[1])) == {"second"}
    assert "second" not in sizes(decide(*first, at("second", 12, 300), on=cluster(gpus=1))[1])


RUNG = RungWithoutBarrier("search", "rung1", 4)


def at_rung(name: str, *losses: float, stage: Stage = RUNG, iterations: int = 100, **fields: Any) -> Job:
    one = trial(name, *losses)
    return replace(one, stage=stage, request=replace(one.request, iterations=iterations, known_end=True), **fields)


def test_of_trials_at_one_rung_those_of_the_least_losses_run_first() -> None:
    jobs = [at_rung(f"t{loss}", 9.0, float(loss)) for loss in (5, 3, 7, 1)]
    for count in range(1, 4):
        assert set(sizes(decide(*jobs, on=cluster(gpus=count))[1])) == {f"t{loss}" for loss in (1, 3, 5)[:count]}
    waiting = [replace(one, stage=Stage("search", "rung1", 4)) for one in jobs]
    assert set(sizes(decide(*waiting, on=cluster(gpus=1))[1])) == {"t5"}  # All of them are waited for: the first comes first.


def test_a_trial_that_goes_on_for_nothing_is_weighed_beside_any_number_of_others() -> None:
    """Of many jobs few are weighed: what their changes cost tells which."""
    start = Costs(resume_s=5.0, restart_s=5.0)
    running = at_rung("running", 9.0, 5.0, iterations=2, grant=Grant.of({"n0": 1}), costs=start)
    first = replace(RUNG, name="rung0", jobs=6)
    others = [at_rung(f"other{k}", stage=first, iterations=1, costs=start) for k in range(8)]

    def chosen(resume_s: float) -> set[str]:
        costs = replace(start, resume_s=resume_s)
        ready = at_rung("ready", 9.0, 1.0, stage=replace(RUNG, jobs=1), iterations=16, costs=costs)
        return set(sizes(decide(running, *others, ready, on=cluster(gpus=2))[1]))

    assert chosen(0.01) == {"running", "ready"}
    assert chosen(500.0) == {"running", "other0"}


def test_ranks_at_rungs_are_those_within_a_search_and_its_best_trial_counts_as_much_as_without() -> None:
    """Of ranks r, each trial's share is 1/r; the best trial of many is not more likely than a job that is sure."""
    many = [at_rung(f"t{rank}", float(rank)) for rank in range(1, 101)]
    many = [replace(one, stage=replace(one.stage, jobs=100)) for one in many]
    other = [replace(one, key=f"o/{one.key[2:]}", stage=replace(one.stage, study="other")) for one in many[1:3]]
    shares = _likelihoods([*many, *other, replace(many[0], key="s/new", reports=())])
    assert [shares[one.key] for one in many] == pytest.approx([1.0 / rank for rank in range(1, 101)])
    assert [shares[one.key] for one in other] == [1.0, 0.5]
    assert shares["s/new"] == pytest.approx(sum(1.0 / rank for rank in range(1, 101)) / 100)
    sure = job("sure", 0.0, max_gpus=1, iterations=90, known_end=True)
    assert set(sizes(decide(*many, sure, on=cluster(gpus=1))[1])) == {"sure"}


def test_trials_of_a_stage_do_not_take_turns_whatever_changes_cost() -> None:
    here = Grant.of({"n0": 1})
    for seconds in (0.0, 20.0, 1e4):
        stage = Stage("search", "rung0", 2, 1)
        asked: dict[str, Any] = {"iterations": 130, "known_end": True, "max_gpus": 1}
        both = [replace(job(name, 100.0, **asked), stage=stage, last=here, costs=Costs(0.0, seconds, seconds)) for name in "ab"]
        for runs in range(2):
            jobs = [replace(one, grant=here) if row == runs else one for row, one in enumerate(both)]
            assert set(sizes(decide(*jobs, on=cluster(gpus=1))[1])) == {"ab"[runs]}


@pytest.mark.parametrize(("seconds", "kept"), [(1.0, False), (15.0, True)])
def test_a_change_costs_the_time_of_all_gpus_of_a_job(seconds: float, kept: bool) -> None:
    here = Grant.of({"n0": 4})
    asked: dict[str, Any] = {"known_end": True, "min_gpus": 4, "max_gpus": 4, "gpus": 4}
    a, b = job("a", 1.0, iterations=253, **asked), job("b", 1.0, iterations=127, **asked)  # 100 s and 50 s on four GPUs
    a, b = (replace(one, last=here, costs=Costs(0.0, seconds, seconds)) for one in (a, b))
    assert set(sizes(decide(replace(a, grant=here), b, on=cluster(gpus=4))[1])) == {"a" if kept else "b"}


def test_what_a_change_displaces_is_the_median_of_those_that_run() -> None:
    here = Grant.of({"n0": 2})
    running = [replace(job(f"r{cost}", 1.0), grant=here, costs=Costs(1.0, cost)) for cost in (1.0, 2.0, 30.0)]
    waiting = [replace(job("w", 1.0), costs=Costs(0.5, 4.0, 9.0)), replace(job("new", 1.0), costs=Costs())]
    assert _change_costs_s([*running, *waiting]).tolist() == [0.0, 0.0, 0.0, 7.5, 3.0]
    assert _change_costs_s(waiting).tolist() == [4.5, 0.0]


@pytest.mark.parametrize(
    ("runs", "waits", "kept"),
    [
        (Costs(), Costs(), False),
        (Costs(0.0, 0.1), Costs(0.0, 0.1), False),  # seconds of memory kept
        (Costs(0.0, 0.1, 60.0), Costs(0.0, 0.1, 60.0), False),
        (Costs(5.0, 5.0), Costs(5.0, 5.0), True),
        (Costs(), Costs(restart_s=60.0), True),  # its own start
        (Costs(0.0, 60.0), Costs(), True),  # what the other will need
        (Costs(restart_s=60.0), Costs(), True),
    ],
)
def test_a_trial_is_paused_for_one_that_falls_faster_only_if_that_pays_for_the_change(
    runs: Costs, waits: Costs, kept: bool
) -> None:
    here = Grant.of({"n0": 1})
    slower = replace(trial("slower", *[9.0 - 0.1 * k for k in range(12)]), grant=here, last=here, costs=runs)
    faster = replace(trial("faster", *[9.0 - 0.4 * k for k in range(12)]), last=here, costs=waits)
    assert set(sizes(decide(slower, faster, on=cluster(gpus=1))[1])) == {"slower" if kept else "faster"}


def test_a_job_of_its_own_is_not_judged_by_its_loss() -> None:
    flat = replace(trial("flat", *[9.0] * 6, study="a"), reports=(Report(1.0, 1.0, 9.0, 1.0),) * 6)
    falling = replace(trial("falling", 9.0, 6.0, 4.0, 3.0, 2.5, 2.2, study="b"))
    falling = replace(falling, reports=tuple(replace(one, iteration=1e6 + one.iteration) for one in falling.reports))
    assert set(sizes(decide(falling, flat, on=cluster(gpus=1))[1])) == {"flat"}, "it has had less"


@pytest.mark.parametrize(
    ("field", "value"), [("sharpness", 0.0), ("speedup", 1.0), ("speedup", 0.0), ("least_s", -1.0), ("window", 0)]
)
def test_parameters_out_of_range_are_named(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        Convergence(**{field: value})
