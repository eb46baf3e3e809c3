"""Meters of attempts, on counters and progress as agents and trainers report them: late, uneven, interrupted."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.network.estimates import CONTRADICTION
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec
from beamer.network.traffic_measurement import UNREPORTED_S, AttemptMeasurer, TrafficPattern
from beamer.studies.model import Role, Worker
from beamer.testing.fabrics import star

FABRIC = star(4, rate_bps=80_000_000)
PAIR = (Worker(0, "h1"), Worker(1, "h2"))
SYNC_BYTES = 5_000_000


def pattern(spec: JobSpec) -> TrafficPattern:
    return TrafficPattern.of(spec, 0, FABRIC, Footprints(FABRIC))


TWO_BY_TWO = tuple(Worker(rank, host) for rank, host in enumerate(("h1", "h1", "h2", "h2")))


def test_a_process_that_attaches_for_its_host_counts_for_all_ranks_there() -> None:
    """In a ring the second rank of each host sends to the other host, and the first is the one that is attached."""
    spec = JobSpec("t", TWO_BY_TWO, 0, SYNC_BYTES)
    each = pattern(spec).sent_bytes
    by_host = TrafficPattern.of(spec, 0, FABRIC, Footprints(FABRIC), by_host=True)
    assert each == {0: 0.0, 1: 1.5, 2: 0.0, 3: 1.5}
    assert (by_host.sent_bytes, by_host.counts_for) == ({0: 1.5, 2: 1.5}, {0: 0, 1: 0, 2: 2, 3: 2})
    for counted in ((0, 2), (0, 1, 2, 3)):  # by their hosts' processes, or each by its own
        meter = AttemptMeasurer(by_host)
        for step in range(40):
            for rank in counted:
                share = by_host.sent_bytes.get(rank, 0.0) if len(counted) == 2 else each[rank]
                meter.read(step + 0.9, rank, round(step * share * SYNC_BYTES))
            meter.progressed(step + 1.0, step)
        assert meter.measurement is not None
        assert meter.measurement.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.01)


@dataclass
class Trainer:
    """What a job's counters and reports say. iteration_s: of one step; its traffic fills the last `busy` of it.

    jitter: share by which steps differ. every: steps between reports. late_s: at most, of reports. period_s: of readings.
    """

    spec: JobSpec
    seed: int = 0
    iteration_s: float = 1.3
    busy: float = 0.4
    jitter: float = 0.2
    every: int = 1
    late_s: float = 0.02
    period_s: float = 1.0
    start_up_bytes: int = 30_000_000
    restarts: dict[int, float] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()

    def messages(self, lasts_s: float) -> Iterator[tuple[float, int | None, int]]:
        """Yield (time, rank, bytes) of counters and (time, None, step) of reports, in order of time."""
        rng = Random(self.seed)
        ends = [2.0]
        while ends[-1] < lasts_s:
            ends.append(ends[-1] + self.iteration_s * (1 + self.jitter * rng.uniform(-1, 1)))
        found: list[tuple[float, int | None, int]] = [
            (end + self.late_s * rng.random(), None, step) for step, end in enumerate(ends) if step and step % self.every == 0
        ]
        for rank, share in pattern(self.spec).sent_bytes.items():
            at_s = self.period_s * rng.random()
            while rank not in self.silent and at_s < lasts_s:
                since = self.restarts.get(rank, 0.0)
                sent = self._sent(ends, at_s, share) - (self._sent(ends, since, share) if at_s >= since > 0 else 0.0)
                found.append((at_s, rank, round(sent)))
                at_s += self.period_s * rng.uniform(0.9, 1.1)
        yield from sorted(found, key=lambda message: message[0])

    def _sent(self, ends: list[float], at_s: float, share: float) -> float:
        step = bisect_right(ends, at_s)
        if step == 0:
            return self.start_up_bytes * at_s / ends[0]
        if step == len(ends):
            return self.start_up_bytes + (step - 1) * share * self.spec.sync_bytes
        lasted = ends[step] - ends[step - 1]
        into = (at_s - ends[step - 1]) / lasted
        done = step - 1 + max(0.0, (into - (1 - self.busy)) / self.busy)
        return self.start_up_bytes + done * share * self.spec.sync_bytes


def measured(trainer: Trainer, lasts_s: float = 60.0, cap_share: float = 1.0) -> AttemptMeasurer:
    meter = AttemptMeasurer(pattern(trainer.spec))
    for at_s, rank, value in trainer.messages(lasts_s):
        if rank is None:
            meter.progressed(at_s, value, cap_share)
        else:
            meter.read(at_s, rank, value)
    return meter


RING = JobSpec("t", PAIR, 0, SYNC_BYTES)
SPECS = {
    "ring": RING,
    "ring of hosts with two ranks": JobSpec("t", tuple(Worker(i, f"h{1 + i // 2}") for i in range(4)), 0, SYNC_BYTES),
    "ring whose ranks alternate": JobSpec("t", tuple(Worker(i, f"h{1 + i % 2}") for i in range(4)), 0, SYNC_BYTES),
    "parameter server": JobSpec(
        "t", (Worker(0, "h1", Role.SERVER), *(Worker(i, f"h{i + 1}") for i in range(1, 4))), 0, SYNC_BYTES, "parameter-server"
    ),
    "parameter server beside a worker": JobSpec(
        "t", (Worker(0, "h1", Role.SERVER), Worker(1, "h1"), Worker(2, "h2")), 0, SYNC_BYTES, "parameter-server"
    ),
    "sharded": JobSpec("t", tuple(Worker(i, f"h{i + 1}") for i in range(4)), 0, SYNC_BYTES, "fsdp"),
}


@pytest.mark.parametrize("name", SPECS)
def test_bytes_of_a_synchronisation_are_measured(name: str) -> None:
    found = measured(Trainer(SPECS[name])).measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)


def test_computing_is_what_an_iteration_leaves_beside_the_synchronisation_alone() -> None:
    gamma_s = pattern(RING).gamma_s * SYNC_BYTES
    found = measured(Trainer(RING, iteration_s=0.3 + gamma_s, busy=gamma_s / (0.3 + gamma_s), jitter=0.02)).measurement
    assert found is not None
    assert found.compute_s == pytest.approx(0.3, rel=0.15)


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_computing_follows_from_the_overlap(overlap: float) -> None:
    spec = JobSpec("t", PAIR, 0, SYNC_BYTES, overlap=overlap)
    gamma_s = pattern(spec).gamma_s * SYNC_BYTES
    compute_s = 2 * gamma_s
    iteration_s = max(compute_s, (1 - overlap) * compute_s + gamma_s)
    assert pattern(spec).compute_s(iteration_s, SYNC_BYTES) == pytest.approx(compute_s)


def test_computing_once_seen_short_stays_short_though_the_network_is_shared_later() -> None:
    gamma_s = pattern(RING).gamma_s * SYNC_BYTES
    meter = AttemptMeasurer(pattern(RING))
    sent = step = 0
    at_s = 0.0
    for iteration_s in [0.3 + gamma_s] * 60 + [5.0] * 60:
        at_s, step, sent = at_s + iteration_s, step + 1, sent + SYNC_BYTES
        for rank in (0, 1):
            meter.read(at_s - 1e-3, rank, sent)
        meter.progressed(at_s, step)
    found = meter.measurement
    assert found is not None
    assert found.compute_s == pytest.approx(0.3, rel=0.05)


def test_what_a_job_sends_to_start_up_is_not_counted() -> None:
    found = measured(Trainer(RING, start_up_bytes=100 * SYNC_BYTES)).measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("iteration_s", [0.01, 0.2, 1.0, 8.0])
def test_any_pace_is_measured(iteration_s: float, every: int) -> None:
    found = measured(Trainer(RING, iteration_s=iteration_s, every=every), lasts_s=60 + 50 * iteration_s).measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)


def test_counters_that_begin_anew_break_a_window_and_no_more() -> None:
    found = measured(Trainer(RING, restarts={0: 31.0, 1: 33.5})).measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)


def test_ranks_whose_agents_do_not_count_are_left_out() -> None:
    found = measured(Trainer(SPECS["parameter server"], silent=frozenset({0, 2}))).measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)


def test_a_rank_that_falls_silent_is_measured_without() -> None:
    meter = AttemptMeasurer(pattern(RING))
    for at_s, rank, value in Trainer(RING).messages(200.0):
        if rank is None:
            meter.progressed(at_s, value)
        elif rank == 0 or at_s < 8.0:
            meter.read(at_s, rank, value)
    assert meter.measurement is not None
    assert meter.measurement.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)


def test_without_progress_nothing_is_measured() -> None:
    meter = AttemptMeasurer(pattern(RING))
    for at_s, rank, value in Trainer(RING).messages(60.0):
        if rank is not None:
            meter.read(at_s, rank, value)
    assert meter.measurement is None


def test_what_no_agent_counts_is_not_measured() -> None:
    assert measured(Trainer(RING, silent=frozenset({0, 1}))).measurement is None


def test_connections_that_no_agent_sees_do_not_make_a_job_small() -> None:
    meter = AttemptMeasurer(pattern(RING))
    for second in range(100):
        meter.read(second, 0, 0)
        meter.read(second, 1, 0)
        meter.progressed(second + 0.5, second)
    assert meter.measurement is None


def test_a_job_on_one_host_is_measured_by_its_progress_alone() -> None:
    meter = AttemptMeasurer(pattern(JobSpec("t", (Worker(0, "h1"), Worker(1, "h1")), 0, SYNC_BYTES)))
    for step in range(200):
        meter.progressed(0.25 * step, step)
    found = meter.measurement
    assert found is not None
    assert found.sync_bytes is None
    assert found.compute_s == pytest.approx(0.25)


def test_a_trial_that_waits_to_be_promoted_is_measured_as_before() -> None:
    meter = AttemptMeasurer(pattern(RING))
    pauses_s = {40: 100.0, 80: 300.0}
    at_s = 0.0
    for step in range(120):
        for _ in range(int(pauses_s.get(step, 0.0)) + 1):
            at_s += 1.0
            for rank in (0, 1):
                meter.read(at_s, rank, step * SYNC_BYTES)
        meter.progressed(at_s + 1e-3, step)
    found = meter.measurement
    assert found is not None
    assert found.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)
    assert found.iteration_s == pytest.approx(1.0, rel=0.1)


def test_one_odd_window_does_not_count() -> None:
    meter = AttemptMeasurer(pattern(RING))
    sent = 0
    for second in range(200):
        sent += 50 * SYNC_BYTES if second == 100 else SYNC_BYTES  # an evaluation, say
        for rank in (0, 1):
            meter.read(second, rank, sent)
        meter.progressed(second + 0.001, second)
        if meter.measurement is not None:
            assert meter.measurement.sync_bytes == pytest.approx(SYNC_BYTES, rel=0.1)
    assert meter.measurement is not None


@given(
    seed=st.integers(0, 2**32),
    name=st.sampled_from(sorted(SPECS)),
    iteration_s=st.floats(0.02, 6.0),
    busy=st.floats(0.05, 1.0),
    jitter=st.floats(0.0, 0.5),
    every=st.integers(1, 5),
    late_s=st.floats(0.0, 0.2),
    period_s=st.floats(0.5, 2.0),
)
@settings(max_examples=60, deadline=None)
def test_an_honest_declaration_is_never_contradicted(
    seed: int, name: str, iteration_s: float, busy: float, jitter: float, every: int, late_s: float, period_s: float
) -> None:
    trainer = Trainer(SPECS[name], seed, iteration_s, busy, jitter, every, late_s, period_s)
    meter = AttemptMeasurer(pattern(trainer.spec))
    for at_s, rank, value in trainer.messages(40.0):
        if rank is None:
            meter.progressed(at_s, value)
        else:
            meter.read(at_s, rank, value)
        found = meter.measurement
        if found is not None and found.sync_bytes is not None:
            assert SYNC_BYTES / CONTRADICTION < found.sync_bytes < CONTRADICTION * SYNC_BYTES


def test_bytes_without_progress_are_told_from_a_declaration_that_bears_them_out() -> None:
    meter = AttemptMeasurer(pattern(RING))
    for second in range(round(UNREPORTED_S) + 1):  # one rank's counter alone, which begins anew now and then
        meter.read(float(second), 0, second % 20 * SYNC_BYTES)
    assert meter.is_unreported(UNREPORTED_S, 1)
    assert not meter.is_unreported(UNREPORTED_S - 1, 1)
    assert not meter.is_unreported(UNREPORTED_S, SYNC_BYTES)
    meter.progressed(UNREPORTED_S, 1)
    assert not meter.is_unreported(2 * UNREPORTED_S, 1)


def test_progress_without_counters_is_not_missing() -> None:
    meter = AttemptMeasurer(pattern(RING))
    assert not meter.is_unreported(1000.0, 1)


@pytest.mark.parametrize("cap_share", [1.0, 0.5, 0.1])
def test_what_a_cap_makes_a_job_wait_does_not_pass_for_computing(cap_share: float) -> None:
    spec = JobSpec("j", PAIR, 0, SYNC_BYTES)
    gamma_s, compute_s = pattern(spec).gamma_s * SYNC_BYTES, 0.8
    iteration_s = compute_s + gamma_s / cap_share
    trainer = Trainer(spec, iteration_s=iteration_s, busy=1 - compute_s / iteration_s, jitter=0.0, late_s=0.0)
    found = measured(trainer, 60 * iteration_s, cap_share).measurement
    assert found is not None
    assert found.compute_s == pytest.approx(compute_s, rel=0.1)
    assert found.iteration_s == pytest.approx(compute_s + gamma_s, rel=0.1)
