"""Scenarios in which cables fail, stages end before all their jobs do, and searches wait for others."""

from typing import Any

import pytest

from beamer.errors import InputError
from beamer.network.allocation import Greedy
from beamer.network.job import JobSpec
from beamer.sim import Assumptions, SimResult, simulate
from beamer.units import frame_bytes
from beamer.workloads.scenario import parse
from topologies.emulation.studies import check_emulable

PLAIN = Assumptions(acknowledgements=False)
RATE = 20_000_000
MTU = 1500


def trial(name: str, hosts: str, seconds: float, compute_s: float = 0.0) -> dict[str, Any]:
    """A ring of two whose synchronisation takes each link `seconds`."""
    size = round(seconds * RATE / 8 / frame_bytes(1.0, MTU))
    return {"trial": name, "workers": [f"h{host}" for host in hosts], "bytes": size, "compute_s": compute_s}


def document(*studies: dict[str, Any], failures: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    topology = {"shape": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2, "rate": "20mbit"}
    return {"name": "small", "topology": topology, "studies": list(studies), "failures": failures or []}


def one_stage(name: str, *trials: dict[str, Any], iterations: int = 1, **more: Any) -> dict[str, Any]:
    return {"study": name, "trials": list(trials), "rungs": [{"iterations": iterations}], **more}


def run(data: dict[str, Any], policy: str = "fair") -> SimResult:
    return simulate(parse(data), policy, assumptions=PLAIN)


def ends(result: SimResult) -> dict[str, float]:
    return {job.key: job.end_s for job in result.jobs}


TWO_PATHS = (one_stage("a", trial("t", "13", 4.0)), one_stage("b", trial("t", "24", 4.0)))


def test_jobs_on_two_planes_do_not_meet() -> None:
    assert ends(run(document(*TWO_PATHS))) == pytest.approx({"a/rung0/t": 4.0, "b/rung0/t": 4.0}, rel=1e-5)


def test_traffic_is_led_around_a_dead_cable_and_back() -> None:
    # From 1 s to 3 s both share the other spine: each moves one second's worth in two.
    cut = document(*TWO_PATHS, failures=[{"link": "l1-s1", "at_s": 1.0, "until_s": 3.0}])
    result = run(cut)
    assert ends(result) == pytest.approx({"a/rung0/t": 5.0, "b/rung0/t": 5.0}, rel=1e-5)
    whole = run(document(*TWO_PATHS))
    for host in ("h1-l1", "h2-l1", "l2-h3", "l2-h4"):
        assert result.link_bytes[host] == pytest.approx(whole.link_bytes[host])
    assert result.link_bytes["l1-s1"] < whole.link_bytes["l1-s1"]
    spines = result.link_bytes["l1-s1"] + result.link_bytes["l1-s2"]
    assert spines == pytest.approx(whole.link_bytes["l1-s1"] + whole.link_bytes["l1-s2"])


@pytest.mark.parametrize("policy", ["sebf", "beamer"])
def test_policies_go_on_seeing_coflows_after_a_failure(policy: str) -> None:
    """The small job overtakes the large one on the links that both still have, before and after the cable dies."""
    both = (one_stage("a", trial("large", "13", 6.0)), one_stage("b", trial("small", "13", 1.0), arrival_s=2.0))
    cut = document(*both, failures=[{"link": "l1-s1", "at_s": 1.0}])
    result = simulate(parse(cut), policy, assumptions=PLAIN, allocator=Greedy())
    assert ends(result) == pytest.approx({"a/rung0/large": 7.0, "b/rung0/small": 3.0}, rel=1e-5)


def test_jobs_that_start_while_a_cable_is_dead_go_around_it_too() -> None:
    late = {**TWO_PATHS[1], "arrival_s": 2.0}
    result = run(document(TWO_PATHS[0], late, failures=[{"link": "l1-s2", "at_s": 0.0}]))
    assert result.link_bytes["l1-s2"] == result.link_bytes["s2-l1"] == 0.0
    assert ends(result) == pytest.approx({"a/rung0/t": 6.0, "b/rung0/t": 8.0}, rel=1e-5)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ({"link": "l1-s9"}, r"failures\[0\]\.link: got 'l1-s9', expected one of .*l1-s1"),
        ({"link": "h1-l1"}, r"failures\[0\]\.link: got 'h1-l1', expected one whose loss leaves every job a path"),
        ({"link": "l1-s1", "at_s": 2.0, "until_s": 1.0}, r"failures\[0\]\.until_s: got 1\.0, expected a time after at_s"),
        ({"link": "l1-s1", "at_s": float("nan")}, r"failures\[0\]\.at_s"),
    ],
)
def test_failures_that_cannot_be(failure: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(document(*TWO_PATHS, failures=[failure]))


def test_two_failures_together_may_leave_no_path() -> None:
    apart = [{"link": "l1-s1", "at_s": 0.0, "until_s": 1.0}, {"link": "l1-s2", "at_s": 1.0}]
    parse(document(*TWO_PATHS, failures=apart))
    together = [{"link": "l1-s1", "at_s": 0.0}, {"link": "l1-s2", "at_s": 1.0}]
    with pytest.raises(InputError, match=r"failures\[1\]\.link: got 'l1-s2'"):
        parse(document(*TWO_PATHS, failures=together))


def test_a_stage_ends_when_enough_of_its_jobs_have_finished() -> None:
    study = one_stage("a", trial("short", "12", 1.0), trial("long", "34", 5.0))
    study["rungs"] = [{"iterations": 2, "finish": 1, "keep": 1}, {"iterations": 1}]
    result = run(document(study))
    first, second = result.stages
    assert first.end_s == second.start_s == pytest.approx(2.0, rel=1e-5)
    assert ends(result)["a/rung0/long"] == first.end_s, "killed"
    moved = 2.0 * RATE / 8  # by the killed job until then
    last = 5.0 if "a/rung1/long" in ends(result) else 0.0
    assert result.link_bytes["h3-l2"] == pytest.approx(moved + last * RATE / 8, rel=1e-4)


def test_more_cannot_finish_than_run() -> None:
    study = one_stage("a", trial("t", "12", 1.0))
    study["rungs"] = [{"iterations": 1, "finish": 2}]
    with pytest.raises(InputError, match=r"studies\[0\]\.rungs\[0\]\.finish: got 2, expected 1 to 1"):
        parse(document(study))


def test_a_search_may_wait_for_another() -> None:
    first, second = one_stage("a", trial("t", "12", 1.0)), one_stage("b", trial("t", "12", 2.0), after="a", arrival_s=0.5)
    result = run(document(first, second))
    assert [(s.start_s, s.end_s) for s in result.stages] == [pytest.approx((0.0, 1.0)), pytest.approx((1.5, 3.5), rel=1e-5)]


@pytest.mark.parametrize("after", ["b", "c", "nobody"])
def test_a_search_waits_only_for_one_before_it(after: str) -> None:
    studies = (
        one_stage("a", trial("t", "12", 1.0)),
        one_stage("b", trial("t", "12", 1.0), after=after),
        one_stage("c", trial("t", "12", 1.0)),
    )
    with pytest.raises(InputError, match=rf"studies\[1\]\.after: got '{after}', expected a study listed before it: a"):
        parse(document(*studies))


@pytest.mark.parametrize("what", ["failures", "finish", "collective", "start_up_s"])
def test_the_emulation_says_what_it_cannot_do(what: str) -> None:
    study = one_stage("a", trial("t", "13", 1.0))
    failures = []
    if what == "failures":
        failures = [{"link": "l1-s1"}]
    elif what == "finish":
        study["rungs"][0]["finish"] = 1
    elif what == "collective":
        study["trials"][0]["collective"] = "fsdp"
    start_up_s = 0.4 if what == "start_up_s" else 1.0
    with pytest.raises(InputError, match=what):
        check_emulable(parse(document(study, failures=failures) | {"start_up_s": start_up_s}))


def test_a_plain_scenario_can_be_emulated() -> None:
    check_emulable(parse(document(*TWO_PATHS) | {"start_up_s": 0.5}))
    assert isinstance(parse(document(*TWO_PATHS)).studies[0].stages[0].jobs[0], JobSpec)
