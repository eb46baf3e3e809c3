"""The simulator on cases small enough to work out by hand."""

from dataclasses import replace

import pytest

from beamer.errors import InputError
from beamer.network.allocation import Allocator, Classes
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.sim import Assumptions, SimResult, simulate
from beamer.studies.model import MAX_SECONDS, Role, Worker
from beamer.testing.fabrics import star, two_spines
from beamer.units import ETHERNET_MTU, segment
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan

SEGMENT_PAYLOAD, SEGMENT_FRAME = segment(ETHERNET_MTU)

RATE_BPS = 8 * SEGMENT_FRAME * 1000
SECOND = 1000 * SEGMENT_PAYLOAD  # payload bytes that take a link one second
PLAIN = Assumptions(acknowledgements=False)


def ring(name: str, hosts: str, seconds: float, iterations: int = 1, compute_s: float = 0.0, overlap: float = 0.0) -> JobSpec:
    """A job whose synchronisation takes a link out of each host `seconds`."""
    workers = tuple(Worker(i, f"h{h}") for i, h in enumerate(hosts))
    size = seconds * SECOND * len(hosts) / (2 * (len(hosts) - 1)) if len(hosts) > 1 else SECOND
    return JobSpec(name, workers, iterations, round(size), compute_s=compute_s, overlap=overlap)


def run(
    *studies: tuple[JobSpec, ...],
    policy: str = "fair",
    assumptions: Assumptions = PLAIN,
    fabric: Fabric | None = None,
    allocator: Allocator | None = None,
) -> SimResult:
    """One study per argument, each of one stage."""
    plans = tuple(StudyPlan(f"study{i}", 1.0, 0.0, (StagePlan("rung0", jobs),)) for i, jobs in enumerate(studies))
    scenario = Scenario("small", fabric or star(4, RATE_BPS), seed=0, queues=8, studies=plans)
    return simulate(scenario, policy, assumptions=assumptions, allocator=allocator)


def ends(result: SimResult) -> list[float]:
    return [job.end_s for job in result.jobs]


@pytest.mark.parametrize(
    ("overlap", "iteration_s"),
    [(0.0, 3.0), (0.5, 2.0), (1.0, 2.0)],
)
def test_an_iteration_waits_for_computing_and_synchronisation(overlap: float, iteration_s: float) -> None:
    result = run((ring("job", "12", seconds=1.0, iterations=3, compute_s=2.0, overlap=overlap),))
    assert ends(result) == pytest.approx([3 * iteration_s])


def test_a_long_synchronisation_outlasts_the_computing_that_it_overlaps() -> None:
    assert ends(run((ring("job", "12", seconds=3.0, compute_s=2.0, overlap=1.0),))) == pytest.approx([3.0])


def test_pull_follows_push() -> None:
    workers = (Worker(0, "h1"), Worker(1, "h2"), Worker(2, "h3", Role.SERVER))
    result = run((JobSpec("job", workers, 1, SECOND, collective="parameter-server"),))
    assert ends(result) == pytest.approx([4.0]), "two workers share the server's downlink, then its uplink"


def test_jobs_without_traffic_take_their_computing_alone() -> None:
    assert ends(run((ring("job", "1", seconds=1.0, iterations=5, compute_s=0.2),))) == pytest.approx([1.0])


def test_jobs_with_nothing_to_do_end_at_once() -> None:
    workers = (Worker(0, "h1"), Worker(1, "h2"))
    assert ends(run((JobSpec("job", workers, 3, 0),))) == [0.0]


def test_fair_jobs_share_and_ordered_jobs_wait() -> None:
    jobs = (ring("short", "12", 1.0),), (ring("long", "12", 2.0),)
    assert ends(run(*jobs, policy="fair")) == pytest.approx([2.0, 3.0])
    assert ends(run(*reversed(jobs), policy="fifo")) == pytest.approx([2.0, 3.0])
    assert ends(run(*reversed(jobs), policy="beamer")) == pytest.approx([3.0, 1.0])


def test_a_job_computes_while_a_less_urgent_one_has_the_network() -> None:
    # The first needs 2 s of computing between its two 1 s synchronisations: the second fits into the gaps.
    urgent = ring("urgent", "12", seconds=1.0, iterations=2, compute_s=2.0)
    other = ring("other", "12", seconds=4.0)
    assert ends(run((urgent,), (other,), policy="fifo")) == pytest.approx([6.0, 5.0])


def test_fifo_goes_by_the_release_of_coflows_where_it_knows_them() -> None:
    first_to_send = ring("other", "12", seconds=4.0)
    urgent = ring("urgent", "12", seconds=1.0, iterations=2, compute_s=2.0)
    known = replace(PLAIN, coflows_known=True)
    assert ends(run((urgent,), (first_to_send,), policy="fifo", assumptions=known)) == pytest.approx([8.0, 4.0])


def test_planes_keep_successive_jobs_apart() -> None:
    fabric = two_spines(2, RATE_BPS)
    result = run((ring("one", "13", 1.0), ring("two", "24", 1.0)), fabric=fabric)
    assert ends(result) == pytest.approx([1.0, 1.0])


def test_links_carry_the_acknowledgements_of_the_other_direction() -> None:
    result = run((ring("job", "12", seconds=1.0),), assumptions=Assumptions())
    assert ends(result) == pytest.approx([1 + 66 / (2 * SEGMENT_FRAME)])
    assert result.link_bytes["h1-s1"] == pytest.approx(1000 * SEGMENT_FRAME + 500 * 66)


def test_jobs_start_up_before_their_first_iteration_in_every_stage() -> None:
    plan = StudyPlan("study", 1.0, 0.5, (StagePlan("one", (ring("a", "12", 1.0),)), StagePlan("two", (ring("a", "12", 1.0),))))
    result = simulate(Scenario("slow", star(2, RATE_BPS), 0, 8, (plan,), start_up_s=0.8), "fair", assumptions=PLAIN)
    assert [at for stage in result.stages for at in (stage.start_s, stage.end_s)] == pytest.approx([0.5, 2.3, 2.3, 4.1])


def test_a_minimum_share_keeps_the_least_urgent_moving() -> None:
    jobs = (ring("first", "12", 0.9),), (ring("second", "12", 0.9),)
    assert ends(run(*jobs, policy="fifo", allocator=Classes(minimum_share=0.1))) == pytest.approx([1.0, 1.8])


def test_utilisation_is_the_share_of_the_run_that_links_were_busy() -> None:
    result = run((ring("job", "12", seconds=1.0, compute_s=3.0),))
    assert result.utilisation["h1-s1"] == pytest.approx(0.25)
    assert result.utilisation["h3-s1"] == 0.0


def test_late_studies_start_when_they_arrive() -> None:
    study = StudyPlan(
        "late", 1.0, 5.0, (StagePlan("rung0", (ring("job", "12", 1.0),)), StagePlan("rung1", (ring("job", "12", 2.0),)))
    )
    result = simulate(Scenario("late", star(2, RATE_BPS), 0, 8, (study,)), "beamer", assumptions=PLAIN)
    assert [(s.start_s, s.end_s) for s in result.stages] == [pytest.approx((5.0, 6.0)), pytest.approx((6.0, 8.0))]
    assert result.makespans_s == pytest.approx({"late": 3.0})


def test_a_study_takes_as_long_however_late_it_arrives() -> None:
    def makespan(arrival_s: float) -> float:
        study = StudyPlan("late", 1.0, arrival_s, (StagePlan("rung0", (ring("job", "12", 1.0, iterations=3),)),))
        return simulate(Scenario("late", star(2, RATE_BPS), 0, 8, (study,)), "beamer", assumptions=PLAIN).makespans_s["late"]

    assert makespan(MAX_SECONDS) == pytest.approx(makespan(0.0), rel=1e-7)


def test_assumptions_that_cannot_be() -> None:
    with pytest.raises(InputError, match="progress_s: got 0"):
        Assumptions(progress_s=0)
    with pytest.raises(InputError, match=r"minimum_share: got 0\.6"):
        run((ring("a", "12", 1.0),), (ring("b", "12", 1.0),), policy="fifo", allocator=Classes(minimum_share=0.6))
