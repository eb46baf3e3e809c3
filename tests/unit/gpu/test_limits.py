"""What a search bears of its trials' runs: limits, and that a failure counts once whenever whoever counts it dies."""

from math import copysign, inf, isnan

import pytest

from beamer.engines.simulated import SimulatedJob
from beamer.errors import InputError
from beamer.gpu.decider import by_policy
from beamer.gpu.driver import SearchDriver
from beamer.gpu.engine import Observed, RunState
from beamer.gpu.events import ReportRefused, RunFailed
from beamer.gpu.limits import RunLimits
from beamer.gpu.model import MAX_LOSS, Costs, Node, Report, Request
from beamer.gpu.policies import gpu_policy
from beamer.gpu.tuners import NoTuner
from beamer.studies.events import Event, StudyRegistered, TrialEnded, decode, encode
from beamer.studies.model import TrialStatus
from beamer.testing.gpu_policies import Exponential
from tests.support.flawed_engines import REASON, Flaw, FlawedCluster


def seen(state: RunState = RunState.RUNNING, launch: int = 1, ran_s: float = 0.0, quiet_s: float = 0.0) -> Observed:
    return Observed(state, launch=launch, ran_s=ran_s, quiet_s=quiet_s)


def test_a_run_is_within_its_limits_or_beyond_one_that_is_named() -> None:
    limits = RunLimits(timeout_s=60.0, silent_s=10.0)
    assert limits.exceeded(seen(ran_s=60.0, quiet_s=10.0)) == ""
    assert "longer than silent_s: 10" in limits.exceeded(seen(ran_s=11.0, quiet_s=11.0))
    assert "longer than timeout_s: 60" in limits.exceeded(seen(ran_s=61.0, quiet_s=1.0))
    assert RunLimits().exceeded(seen(ran_s=1e9, quiet_s=1e9)) == ""


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_what_does_not_run_is_beyond_no_limit(state: RunState) -> None:
    assert RunLimits(timeout_s=1.0, silent_s=1.0).exceeded(seen(state, ran_s=9.0, quiet_s=9.0)) == ""


def test_a_run_that_has_no_number_cannot_be_given_up() -> None:
    assert RunLimits(silent_s=1.0).exceeded(seen(launch=0, quiet_s=9.0)) == ""


@pytest.mark.parametrize(
    ("field", "value"), [("retries", -1), ("timeout_s", 0.0), ("silent_s", -1.0), ("silent_s", float("nan"))]
)
def test_limits_that_cannot_be(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{field}: got"):
        RunLimits(**{field: value})  # type: ignore[arg-type]  # a value of either kind


def test_failures_and_refusals_survive_the_journal() -> None:
    events: list[Event] = [RunFailed(1.0, "s/a", 3, "two\nlines"), ReportRefused(2.0, "s/a", "iteration: got 1e+30")]
    assert [decode(*encode(event)) for event in events] == events


class Search:
    """Trials of a search on a cluster, under a policy, with a journal that outlives its scheduler."""

    def __init__(
        self, flaws: dict[str, Flaw], limits: RunLimits, policy: str = "fifo", gpus: int = 1, trials: str = "abc"
    ) -> None:
        jobs = {
            f"s/{name}": SimulatedJob(Request(iterations=10), Exponential(0.1, 0.3), Costs(0.1, 0.1, 0.5)) for name in trials
        }
        self.cluster = FlawedCluster([Node("n", gpus)], jobs, flaws={f"s/{name}": flaw for name, flaw in flaws.items()})
        self.limits = limits
        self.policy = policy
        self.journal: list[Event] = []
        self.driver = self.begin()

    def begin(self) -> SearchDriver:
        """Have a scheduler take over."""
        policy = gpu_policy(self.policy)
        return SearchDriver(
            by_policy(policy), self.cluster, NoTuner(), tuple(self.journal), self.journal.append, limits=self.limits
        )  # fmt: skip

    def submit(self) -> None:
        self.driver.take(StudyRegistered(0.0, "s"))
        for key, job in self.cluster.jobs.items():
            self.driver.submit("s", key.partition("/")[2], job.request, 0.0)

    def step(self) -> None:
        wake_s = self.driver.step(self.cluster.now)
        next_s = min(self.cluster.next_s(), inf if wake_s is None else wake_s)
        if self.cluster.now < next_s < inf:
            self.cluster.advance(next_s)

    def run(self, most_s: float = 10_000.0) -> dict[str, TrialStatus]:
        self.submit()
        while self.driver.ledger.live_jobs and self.cluster.now < most_s:
            self.step()
        return self.statuses()

    def statuses(self) -> dict[str, TrialStatus]:
        return {event.trial: event.status for event in self.journal if isinstance(event, TrialEnded)}

    def failures(self, name: str) -> list[RunFailed]:
        return [event for event in self.journal if isinstance(event, RunFailed) and event.trial == f"s/{name}"]


F, E = TrialStatus.FINISHED, TrialStatus.FAILED


def test_a_run_that_fails_is_started_again_from_its_checkpoint() -> None:
    search = Search({"a": Flaw((4.0, 7.0))}, RunLimits(retries=2))
    assert search.run() == {"s/a": F, "s/b": F, "s/c": F}
    assert [(failure.launch, failure.reason) for failure in search.failures("a")] == [(1, REASON), (2, REASON)]
    assert [report.iteration for report in search.driver.ledger.ended["s/a"].reports] == list(range(11)), "no step is repeated"


def test_a_trial_that_fails_too_often_has_failed_and_holds_nobody_up() -> None:
    search = Search({"a": Flaw((4.0,), always=True)}, RunLimits(retries=2))
    assert search.run() == {"s/a": E, "s/b": F, "s/c": F}
    assert len(search.failures("a")) == 3
    assert search.cluster.report() == {}


def test_without_retries_the_first_failure_is_the_end() -> None:
    search = Search({"a": Flaw((4.0,))}, RunLimits())
    assert search.run() == {"s/a": E, "s/b": F, "s/c": F}
    assert len(search.failures("a")) == 1


class Killed(Exception):
    pass


@pytest.mark.parametrize("durable", [False, True], ids=["before it is durable", "after it is"])
def test_a_failure_counts_once_whenever_the_scheduler_dies(durable: bool) -> None:
    """Kill a scheduler at its n-th event, before it is in the journal or after, for every n."""
    undisturbed = Search({"a": Flaw((4.0,)), "b": Flaw((6.0,), always=True)}, RunLimits(retries=1))
    expected = undisturbed.run()
    for fatal in range(1, len(undisturbed.journal) + 1):
        search = Search({"a": Flaw((4.0,)), "b": Flaw((6.0,), always=True)}, RunLimits(retries=1))
        left = fatal

        def write(event: Event, search: Search = search) -> None:
            nonlocal left
            left -= 1
            if left or durable:
                search.journal.append(event)
            if not left:
                raise Killed

        search.driver = SearchDriver(
            by_policy(gpu_policy("fifo")), search.cluster, NoTuner(), (), write, limits=search.limits
        )  # fmt: skip
        try:
            search.run()
        except Killed:
            search.driver = search.begin()
            assert search.run() == expected, fatal
        assert [len(search.failures(name)) for name in "abc"] == [1, 2, 0], fatal
        search.step()  # it may have died before the last was forgotten
        assert search.cluster.report() == {}


@pytest.mark.parametrize("policy", ["fifo", "round-robin", "hermes", "convergence", "slaq", "tiresias", "srtf"])
def test_a_run_that_prints_nothing_is_given_up(policy: str) -> None:
    search = Search({"a": Flaw(hangs=True)}, RunLimits(retries=1, silent_s=30.0), policy)
    assert search.run() == {"s/a": E, "s/b": F, "s/c": F}
    assert len(search.failures("a")) == 2
    assert all("printed nothing for" in failure.reason for failure in search.failures("a"))


def test_a_run_that_takes_too_long_is_given_up() -> None:
    search = Search({"b": Flaw(hangs=True)}, RunLimits(timeout_s=60.0))
    assert search.run() == {"s/a": F, "s/b": E, "s/c": F}
    assert "longer than timeout_s: 60" in search.failures("b")[0].reason


@pytest.mark.parametrize("policy", ["hermes", "convergence"])
def test_a_job_that_never_reports_does_not_keep_the_only_gpu_from_others(policy: str) -> None:
    search = Search({"a": Flaw(hangs=True)}, RunLimits(), policy)
    assert search.run() == {"s/b": F, "s/c": F}, "nobody has said how long it may be silent, but the others come first by now"
    job = search.driver.ledger.job("s/a")
    assert job is not None
    assert job.grant is not None, "nobody else wants the GPU"


@pytest.mark.parametrize("policy", ["hermes", "convergence"])
def test_several_jobs_that_never_report_do_not_keep_the_gpus_from_others_either(policy: str) -> None:
    search = Search({name: Flaw(hangs=True) for name in "abcdef"}, RunLimits(), policy, gpus=2, trials="abcdefgh")
    assert search.run(10_000.0) == {"s/g": F, "s/h": F}


@pytest.mark.parametrize("loss", [-1e308, -2 * MAX_LOSS, 2 * MAX_LOSS])
def test_a_loss_beyond_32_bits_is_an_overflow(loss: float) -> None:
    search = Search({"a": Flaw(lies=Report(0.0, 1.0, loss, 1.0))}, RunLimits())
    search.run()
    first, *others = search.driver.ledger.ended["s/a"].reports
    assert first.loss == copysign(inf, loss)
    assert all(abs(report.loss) < 1.0 for report in others)


def test_a_report_that_cannot_be_is_left_out_shown_and_ends_nothing() -> None:
    search = Search({"a": Flaw(lies=Report(0.0, 1e30, -1e308, 1.0))}, RunLimits())
    assert search.run() == {"s/a": F, "s/b": F, "s/c": F}
    (refused,) = [event for event in search.journal if isinstance(event, ReportRefused)]
    assert refused.trial == "s/a"
    assert refused.reason.startswith("report.iteration: got 1e+30, expected a number from 0 to")
    assert max(report.iteration for report in search.driver.ledger.ended["s/a"].reports) == 10


def test_a_refused_last_report_is_the_worst_loss_of_its_trial() -> None:
    search = Search({"a": Flaw(lies_last=Report(0.0, 1e30, 0.5, 1.0))}, RunLimits())
    assert search.run() == {"s/a": F, "s/b": F, "s/c": F}
    reports = search.driver.ledger.ended["s/a"].reports
    assert [report.iteration for report in reports] == list(range(11))
    assert isnan(reports[-1].loss), "the one before is not that of the end"
    assert reports[-1].service_s == reports[-2].service_s
