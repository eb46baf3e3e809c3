"""Hypothesis strategies for the input of allocators and the simulator, edge cases included."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import strategies as st

from beamer.network.fabric import Fabric
from beamer.network.policies import Order, Tier
from beamer.sim.traces import Coflow, Trace
from beamer.testing.situations import FABRICS, FAST_FABRICS, HUGE_BYTES, STUDY_WEIGHTS, job_specs
from beamer.workloads.scenario import Scenario, StagePlan, StudyPlan
from eval.asynchronous.searches import Asha, IndependentTrials, LossCurves, MedianStopping
from eval.asynchronous.simulation import AsynchronousPlan, AsynchronousScenario
from tests.support.loads import SyntheticJob
from tests.support.reference.network import Flow

_capacities = st.sampled_from((1.0, 2e7, 2e7, 1e12))  # bit/s
_uses = st.sampled_from((1.0, 1.0, 1.0 + 0.0218, 0.0218, 0.1))
_bits = st.sampled_from((0.0, 8.0, 3e6, 3e6, 8e15))


@st.composite
def scenarios(draw: st.DrawFn, fabrics: Sequence[Fabric] = (*FABRICS, *FABRICS, *FAST_FABRICS)) -> Scenario:
    """Draw a scenario of one to three studies of one to three stages on one of these small fabrics."""
    fabric = draw(st.sampled_from(fabrics))
    studies: list[StudyPlan] = []
    for s in range(draw(st.integers(1, 3))):
        stages = tuple(
            StagePlan(f"rung{g}", tuple(draw(job_specs(fabric, f"trial{j}")) for j in range(draw(st.integers(1, 3)))))
            for g in range(draw(st.integers(1, 3)))
        )
        studies.append(StudyPlan(f"study{s}", draw(STUDY_WEIGHTS), draw(st.sampled_from((0.0, 0.0, 0.3))), stages))
    return Scenario(
        "drawn",
        fabric,
        seed=0,
        queues=draw(st.integers(1, 8)),
        studies=tuple(studies),
        start_up_s=draw(st.sampled_from((0.0, 0.0, 0.4))),
    )


@st.composite
def asynchronous_scenarios(draw: st.DrawFn) -> AsynchronousScenario:
    """Draw a scenario of one or two searches without barriers, one to three slots each, beside at most one other study."""
    beside = draw(scenarios())
    plans = tuple(
        AsynchronousPlan(
            f"search{s}",
            draw(
                st.sampled_from(
                    (
                        Asha(trials=5, eta=2, iterations=1, halvings=2),
                        Asha(trials=9, completed=1, eta=2, iterations=2, halvings=1),
                        MedianStopping(trials=4, iterations=2, reports=2, fewest=1),
                        IndependentTrials(trials=3, iterations=3),
                    )
                )
            ),
            tuple(draw(job_specs(beside.fabric, "slot")) for _ in range(draw(st.integers(1, 3)))),
            LossCurves(f"drawn/{s}"),
            draw(STUDY_WEIGHTS),
            draw(st.sampled_from((0.0, 0.0, 0.3))),
        )
        for s in range(draw(st.integers(1, 2)))
    )
    beside = replace(beside, studies=beside.studies[: draw(st.integers(0, 1))])
    return AsynchronousScenario(**vars(beside), asynchronous=plans)


@st.composite
def traces(draw: st.DrawFn) -> tuple[Trace, float]:
    """Draw up to five coflows of up to four flows and a rate for them, with ties, empty ones, and flows back to their own port.

    The rate, in bit/s, is such that the largest take about a second.
    """
    ports = draw(st.integers(1, 4))
    large, rate_bps = draw(st.sampled_from(((3e7, 1e9), (3e7, 1e9), (float(HUGE_BYTES), 1e16))))
    sizes = st.sampled_from((0.0, 1.0, 2e6, large, large))
    flow = st.tuples(st.integers(0, ports - 1), st.integers(0, ports - 1), sizes)
    drawn = draw(st.lists(st.tuples(st.sampled_from((0.0, 0.0, 0.3, 2.0)), st.lists(flow, max_size=4)), max_size=5))
    coflows = tuple(_coflow(f"c{i}", release_s, flows) for i, (release_s, flows) in enumerate(drawn))
    return Trace(ports, coflows), rate_bps


@st.composite
def traces_without_ties(draw: st.DrawFn) -> tuple[Trace, float]:
    """Draw one to six coflows, of which no two have anything in common but ports, and a rate for them in bit/s."""
    rng = Random(draw(st.integers(0, 2**32)))
    ports = rng.randint(2, 4)
    coflows: list[Coflow] = []
    for i in range(rng.randint(1, 6)):
        flows = [(rng.randrange(ports), rng.randrange(ports), 10 ** rng.uniform(5, 7.8)) for _ in range(rng.randint(1, 5))]
        coflows.append(_coflow(f"c{i}", rng.uniform(0, 1), flows))
    return Trace(ports, tuple(coflows)), 1e9


def _coflow(name: str, release_s: float, flows: Sequence[tuple[int, int, float]]) -> Coflow:
    return Coflow(
        name,
        release_s,
        np.array([src for src, _, _ in flows], np.int64),
        np.array([dst for _, dst, _ in flows], np.int64),
        np.array([size for _, _, size in flows], np.float64),
    )


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[SyntheticJob], list[float]]:
    """Draw up to six coflows of up to four flows on one to five links of very different capacities (bit/s)."""
    capacity = draw(st.lists(_capacities, min_size=1, max_size=5))
    usage = st.dictionaries(st.integers(0, len(capacity) - 1), _uses, max_size=4)
    flow = st.builds(Flow, usage, _bits)
    loads = st.lists(flow, max_size=4).map(lambda flows: SyntheticJob((tuple(flows),)))
    return draw(st.lists(loads, max_size=6)), capacity


@st.composite
def orders(draw: st.DrawFn, jobs: int) -> Order:
    """Draw an order of jobs named `0`, `1`, ..."""
    positions = draw(st.permutations(range(jobs)))
    tiers: list[Tier] = []
    while positions:
        width = draw(st.integers(1, len(positions)))
        tiers.append(Tier(tuple(str(i) for i in positions[:width]), draw(st.booleans())))
        positions = positions[width:]
    return tuple(tiers)
