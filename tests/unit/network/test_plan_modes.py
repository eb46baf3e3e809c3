"""How an order becomes classes and ceilings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.network.ceilings import Ceilings
from beamer.network.decide import check_plan
from beamer.network.job import JobSpec
from beamer.network.plan import JobPlan, Plan
from beamer.network.plan_modes import PLAN_MODES, ByClasses, ByRates, Hybrid, plan_mode
from beamer.network.policy import Order, Tier
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StageView, StudyView
from beamer.studies.model import Role, Worker
from beamer.testing.fabrics import star
from beamer.testing.profile import PROFILE
from tests.support.loads import snapshot as of_loads
from tests.support.strategies import networks, orders

FABRIC = star(8)
RATE = 20_000_000
STRICT = Ceilings(minimum=0.1, oversubscription=1.0, step=1e-9)


def ring(key: str, *hosts: int, compute_s: float = 0.0, cap_bps: int | None = None) -> JobView:
    workers = tuple(Worker(rank, f"h{host}") for rank, host in enumerate(hosts))
    return JobView(f"s/{key}", JobSpec(key, workers, 10, 1_000_000, compute_s=compute_s), 10, 0, 0.0, None, cap_bps)


def snapshot(*jobs: JobView) -> Snapshot:
    return Snapshot.of(FABRIC, (StudyView("s", 1.0, (StageView("r", jobs, 0.0),)),))


def one_by_one(*keys: str) -> Order:
    return tuple(Tier((f"s/{key}",)) for key in keys)


def shares(rule: Ceilings, seen: Snapshot, order: Order) -> dict[str, float]:
    return {key.removeprefix("s/"): share for key, share in rule.shares(order, seen, set(seen.jobs.key)).items()}


def test_the_first_has_all_of_its_links_and_the_next_on_one_of_them_the_minimum() -> None:
    found = shares(STRICT, snapshot(ring("a", 1, 2), ring("b", 2, 3), ring("c", 4, 5)), one_by_one("a", "b", "c"))
    assert found["a"] >= 1
    assert found["b"] == pytest.approx(0.05), "two jobs share the minimum of h2's links"
    assert found["c"] >= 1


def test_a_job_that_has_to_wait_leaves_its_other_links_to_those_behind_it() -> None:
    found = shares(STRICT, snapshot(ring("a", 1, 2), ring("b", 2, 3), ring("c", 3, 4)), one_by_one("a", "b", "c"))
    assert found["c"] == pytest.approx(0.95)


def test_a_job_that_computes_half_of_the_time_leaves_half() -> None:
    alone_s = float(snapshot(ring("a", 1, 2)).jobs.iteration_s[0])
    found = shares(STRICT, snapshot(ring("a", 1, 2, compute_s=alone_s), ring("b", 1, 2)), one_by_one("a", "b"))
    assert found["b"] == pytest.approx(0.5)
    twice = shares(replace(STRICT, oversubscription=1.5), snapshot(ring("a", 1, 2, compute_s=alone_s), ring("b", 1, 2)),
                   one_by_one("a", "b"))  # fmt: skip
    assert twice["b"] >= 1


def test_jobs_that_are_meant_to_share_do_not_hold_each_other_down() -> None:
    seen = snapshot(ring("a", 1, 2), ring("b", 1, 2), ring("c", 1, 2))
    found = shares(STRICT, seen, (Tier(("s/a", "s/b")), Tier(("s/c",))))
    assert min(found["a"], found["b"]) >= 1
    assert found["c"] == pytest.approx(0.1 / 3)
    divided = shares(STRICT, seen, (Tier(("s/a", "s/b"), divisible=True), Tier(("s/c",))))
    assert divided["b"] < 0.1


@pytest.mark.parametrize(("factor", "moved"), [(0.97, False), (1.06, False), (1.2, True), (0.8, True)])
def test_a_ceiling_stands_until_it_is_too_high_or_two_steps_too_low(factor: float, moved: bool) -> None:
    rule = Ceilings()
    seen = snapshot(ring("a", 1, 2), ring("b", 1, 2))
    order = one_by_one("a", "b", "c")[:2]
    first = rule.of(order, seen, {"s/b"} | {"s/a"})["s/b"]
    assert first == rule.of(order, seen, {"s/a", "s/b"})["s/b"]
    exact = RATE * rule.shares(order, seen, {"s/a", "s/b"})["s/b"]
    present = int(exact / factor)
    again = rule.of(order, snapshot(ring("a", 1, 2), ring("b", 1, 2, cap_bps=present)), {"s/a", "s/b"})["s/b"]
    assert (again != present) == (moved or present > exact)
    assert exact / (1 + rule.step) ** 2 <= again <= exact


@PROFILE
@given(networks().flatmap(lambda network: st.tuples(st.just(network), orders(len(network[0])))))
def test_mean_loads_at_the_ceilings_exceed_no_link_by_more_than_the_minimum(drawn: object) -> None:
    (loads, capacity), order = drawn  # type: ignore[misc]
    seen = of_loads(loads, capacity)
    loading = {seen.jobs.key[j] for j in seen.jobs.owner[seen.jobs.seconds > 0].tolist()}
    tiers = tuple(Tier(tuple(k for k in t.jobs if k in loading), divisible=True) for t in order)
    found = STRICT.shares(tiers, seen, loading)
    users = [0] * len(capacity)
    taken = [0.0] * len(capacity)
    for key, share in found.items():
        j = seen.jobs.position[key]
        own = slice(seen.jobs.first[j], seen.jobs.first[j + 1])
        seconds = seen.jobs.seconds[own]
        period = max(float(seen.jobs.iteration_s[j] - seconds.max()), 0.0) + float(seconds.max()) / min(share, 1.0)
        for link, each in zip(seen.jobs.link[own].tolist(), seconds.tolist(), strict=True):
            users[link] += 1
            taken[link] += each / period
        assert share > 0
    assert all(each <= 1 + STRICT.minimum + 1e-9 for each in taken)


@pytest.mark.parametrize("wrong", [{"minimum": 0.0}, {"minimum": 1.1}, {"oversubscription": 0.9}, {"step": 0.0}])
def test_a_rule_under_which_jobs_could_not_send_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Ceilings(**wrong)


FOUR = snapshot(*(ring(key, 1, 2) for key in "abcd"))


def test_classes_cap_nobody() -> None:
    plan = ByClasses().plan(one_by_one(*"abcd"), FOUR, 2)
    assert {key: (job.klass, job.cap_bps) for key, job in plan.items()} == {
        "s/a": (0, None), "s/b": (1, None), "s/c": (1, None), "s/d": (1, None),
    }  # fmt: skip


def test_rates_use_one_class_and_cap_all_but_the_first() -> None:
    plan = ByRates(STRICT).plan(one_by_one(*"abcd"), FOUR, 2)
    assert {job.klass for job in plan.values()} == {0}
    assert plan["s/a"].cap_bps is None
    assert [plan[f"s/{key}"].cap_bps for key in "bcd"] == [pytest.approx(RATE * 0.1 / 4, abs=2)] * 3


def test_hybrid_caps_those_of_the_lowest_class_that_others_of_it_go_before() -> None:
    plan = Hybrid(STRICT).plan(one_by_one(*"abcd"), FOUR, 2)
    assert {key: job.klass for key, job in plan.items()} == {"s/a": 0, "s/b": 1, "s/c": 1, "s/d": 1}
    assert plan["s/a"].cap_bps is None
    assert plan["s/b"].cap_bps is None, "the class above has priority anyway"
    assert plan["s/c"].cap_bps is not None
    assert {job.cap_bps for job in Hybrid(STRICT).plan(one_by_one(*"abcd"), FOUR, 4).values()} == {None}


@pytest.mark.parametrize("mode", PLAN_MODES.values(), ids=lambda mode: mode.name)
def test_an_order_that_prefers_nobody_caps_nobody_and_a_job_of_one_host_has_no_place(mode: object) -> None:
    assert isinstance(mode, (ByClasses, ByRates, Hybrid))
    seen = snapshot(ring("a", 1, 2), ring("b", 1, 2), ring("inside", 3))
    plan = mode.plan((Tier(("s/a", "s/b", "s/inside")),), seen, 8)
    assert {key: (job.klass, job.cap_bps) for key, job in plan.items()} == {"s/a": (0, None), "s/b": (0, None)}


def test_a_mode_is_found_by_its_name_or_the_nearest_is_named() -> None:
    assert {name: plan_mode(name).name for name in PLAN_MODES} == {name: name for name in ("classes", "rates", "hybrid")}
    with pytest.raises(InputError, match=r"--mode: got 'hybird'.*hybrid"):
        plan_mode("hybird")


def test_the_server_sends_what_its_workers_send_together() -> None:
    workers = (*(Worker(rank, f"h{rank + 1}") for rank in range(3)), Worker(3, "h4", Role.SERVER))
    spec = JobSpec("ps", workers, 10, 1_000_000, "parameter-server")
    seen = snapshot(JobView("s/ps", spec, 10, 0, 0.0))
    assert seen.jobs.sender_bps.tolist() == [pytest.approx(RATE)]


def test_a_plan_whose_cap_lets_nothing_through_is_refused() -> None:
    plan = Plan(8, {f"s/{key}": JobPlan(0, 0 if key == "b" else None) for key in "abcd"})
    with pytest.raises(InputError, match=r"plan.jobs\[s/b\].cap_bps: got 0"):
        check_plan(FOUR, plan)
