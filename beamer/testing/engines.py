"""What every engine has to satisfy; run each of `ENGINE_CHECKS` on an `EngineHarness` of your own, a fresh one for each.

They check the table in `beamer.gpu.engine`, and that reports, speeds and costs are delivered once and failures with a reason.
Not checked: time-outs, calls from several threads, parameter servers. The checks know nothing of real or virtual time: a
harness lets it pass. One that needs what a harness does not implement raises `unittest.SkipTest`, which pytest shows as a skip.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from unittest import SkipTest

from beamer.errors import BeamerError, EngineError, InputError
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.model import Costs, Report, Speed
from beamer.testing.engine_harness import EngineHarness

TIMEOUT_S = 60.0
"""Of every call: on a machine that stalls calls are slow, not wrong."""
ENDLESS = 10**6
"""Iterations of a job that no check sees the end of."""
SHORT = 12
"""Iterations of a job that is to finish soon."""
STEPS = 3
"""Iterations after which a job counts as progressing."""
BATCH_SIZE = 96
"""Samples of a step where a placement asks for a batch size; no job requests as many."""

EngineCheck = Callable[[EngineHarness], None]


class _Bench:
    """The engine of a harness with all reports, speeds and costs that it has delivered."""

    def __init__(self, harness: EngineHarness) -> None:
        self.harness = harness
        self.engine = harness.engine
        self.reports: dict[str, list[Report]] = {}
        self.speeds: dict[str, list[Speed]] = {}
        self.costs: dict[str, list[Costs]] = {}
        first, second, *_ = (node.name for node in self.engine.nodes())
        self.one = Placement(((first, 0),))
        self.two = Placement(((first, 0), (first, 1)))
        self.other = Placement(((second, 1),))
        self.at_rest = RunState.SUSPENDED if self.engine.keeps_memory else RunState.PARKED

    def look(self) -> Mapping[str, Observed]:
        """Return the engine's report, kept with those before."""
        observed = self.engine.report()
        for key, one in observed.items():
            self.speeds.setdefault(key, []).extend(one.speeds)
            self.costs.setdefault(key, []).extend([one.costs] if one.costs else [])
            known = self.reports.setdefault(key, [])
            if one.state.is_finished:  # The last report is repeated.
                known += [report for report in one.reports if report != (known[-1] if known else None)]
            else:
                known += one.reports
        return observed

    def done(self, key: str) -> float:
        """Return the iterations that a job has reported."""
        return self.reports[key][-1].iteration if self.reports.get(key) else 0.0

    def reaches(self, key: str, state: RunState, placement: Placement | None) -> Observed:
        """Wait until a job is in a state and on a placement."""

        def reached() -> Observed | None:
            one = self.look()[key]
            assert one.state is state or not one.state.is_finished, f"{key}: {one.state}: {one.exit}"
            return one if (one.state, one.placement) == (state, placement) else None

        return self.harness.wait(reached)

    def progresses(self, *keys: str) -> None:
        """Wait until every one of some jobs has reported `STEPS` iterations more."""
        before = {key: self.done(key) for key in keys}

        def reached() -> bool:
            observed = self.look()
            assert not any(observed[key].state.is_finished for key in keys), observed
            return all(self.done(key) >= before[key] + STEPS for key in keys)

        self.harness.wait(reached)

    def runs(self, name: str, placement: Placement) -> str:
        """Start an endless job and wait until it progresses; return its key."""
        key = self.harness.job(name, ENDLESS)
        self.starts(key, placement)
        return key

    def prepares(self, name: str, placement: Placement) -> str:
        """Have an endless job started ahead, and wait until it is held; return its key."""
        if not self.engine.prepares:
            raise SkipTest("the engine does not prepare")
        key = self.harness.job(name, ENDLESS)
        self.engine.prepare(key, placement, TIMEOUT_S)
        self.reaches(key, RunState.PREPARED, placement)
        return key

    def starts(self, key: str, placement: Placement) -> None:
        """Start a job, and wait until it runs there and progresses."""
        self.engine.start(key, placement, TIMEOUT_S)
        self.reaches(key, RunState.RUNNING, placement)
        self.progresses(key)

    def moves(self, key: str, placement: Placement) -> None:
        """Resize a job, and wait until it runs there and progresses."""
        self.engine.resize(key, placement, TIMEOUT_S)
        self.reaches(key, RunState.RUNNING, placement)
        self.progresses(key)

    def calls(self, key: str) -> tuple[Callable[[], None], ...]:
        """Return every call on a job but that which stops it."""
        return (
            partial(self.engine.start, key, self.two, TIMEOUT_S),
            partial(self.engine.suspend, key, TIMEOUT_S),
            partial(self.engine.resume, key, TIMEOUT_S),
            partial(self.engine.resize, key, self.two, TIMEOUT_S),
            partial(self.engine.resize, key, None, TIMEOUT_S),
        )

    def rests(self, key: str, placement: Placement) -> None:
        """Suspend a job that runs on a placement and wait until it is suspended, or parked where memory is not kept."""
        self.engine.suspend(key, TIMEOUT_S)
        self.reaches(key, self.at_rest, placement if self.engine.keeps_memory else None)

    def parks(self, key: str) -> None:
        """Park a job and wait until it is."""
        self.engine.resize(key, None, TIMEOUT_S)
        self.reaches(key, RunState.PARKED, None)

    def finishes(self, name: str) -> tuple[str, Observed]:
        """Run a short job and wait for its end; return its key and what was observed then."""
        key = self.harness.job(name, SHORT)
        self.engine.start(key, self.one, TIMEOUT_S)
        return key, self.reaches(key, RunState.FINISHED, None)

    def measures(self, key: str, gpus: int, has_batch_size: bool) -> None:
        """Wait until the speed of a job is measured on so many GPUs, and at `BATCH_SIZE` or not."""
        before = len(self.speeds.get(key, ()))

        def measured() -> bool:
            self.look()
            return any(
                (speed.gpus, speed.batch_size == BATCH_SIZE) == (gpus, has_batch_size) for speed in self.speeds[key][before:]
            )

        self.harness.wait(measured)

    def never_went_back(self, key: str) -> None:
        """Assert that a job's reports are in order and none came twice."""
        iterations = [report.iteration for report in self.reports[key]]
        assert iterations == sorted(set(iterations)), iterations
        services = [report.service_s for report in self.reports[key]]
        assert services == sorted(services), services


_checks: list[EngineCheck] = []


def _check(check: Callable[[_Bench], None]) -> EngineCheck:
    """Add a check to the suite, given as one of a bench: afterwards the reports of no job may have gone back."""

    @wraps(check)
    def checked(harness: EngineHarness) -> None:
        bench = _Bench(harness)
        check(bench)
        for key in bench.reports:
            bench.never_went_back(key)

    _checks.append(checked)
    return checked


def _refuses(error: type[BeamerError], call: Callable[[], None]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


def has_nodes(harness: EngineHarness) -> None:
    """Nodes differ in their names and have GPUs; a new engine has no jobs."""
    nodes = harness.engine.nodes()
    assert len({node.name for node in nodes}) == len(nodes) >= 2
    assert all(node.gpus >= 2 for node in nodes)
    assert not harness.engine.report()


@_check
def runs_a_job_to_its_end(bench: _Bench) -> None:
    """A job runs, reports and finishes; it holds no GPUs then, and stays known with its last report until it is stopped.

    What was observed says after which iteration it was to end.
    """
    key, observed = bench.finishes("short")
    assert bench.done(key) == SHORT
    assert observed.exit == ""
    last = bench.reports[key][-1]
    for _ in range(2):
        assert bench.engine.report()[key] == replace(observed, reports=(last,), speeds=(), costs=None)
    assert (observed.placement, observed.target) == (None, SHORT)
    bench.engine.stop(key, TIMEOUT_S)
    assert key not in bench.engine.report()


@_check
def says_why_a_job_failed(bench: _Bench) -> None:
    """A job that fails holds no GPUs, and stays known with the reason and its last report until it is stopped."""
    key = bench.harness.failing("job", SHORT)
    bench.engine.start(key, bench.one, TIMEOUT_S)
    observed = bench.reaches(key, RunState.FAILED, None)
    assert observed.exit
    assert bench.done(key) == SHORT
    last = bench.reports[key][-1]
    for call in bench.calls(key):
        call()
        assert bench.engine.report()[key] == replace(observed, reports=(last,), speeds=(), costs=None)
    bench.engine.stop(key, TIMEOUT_S)
    assert key not in bench.engine.report()


@_check
def delivers_every_report_once(bench: _Bench) -> None:
    """No report is delivered twice and none left out, whatever is called between."""
    key = bench.runs("job", bench.two)
    for _ in range(3):
        bench.progresses(key)
        bench.rests(key, bench.two)
        bench.engine.resume(key, TIMEOUT_S)
    bench.progresses(key)
    iterations = [report.iteration for report in bench.reports[key]]
    assert iterations == [iterations[0] + i for i in range(len(iterations))]


@_check
def delivers_measurements_once(bench: _Bench) -> None:
    """Speeds and costs are delivered when they are new; of a job at rest nothing is."""
    key, clock = bench.runs("job", bench.one), bench.runs("clock", bench.other)
    bench.rests(key, bench.one)
    bench.engine.resume(key, TIMEOUT_S)
    bench.progresses(key)
    bench.rests(key, bench.one)
    bench.progresses(clock)  # Reports that were on their way have arrived.
    assert bench.speeds[key]
    assert bench.costs[key]
    for _ in range(2):
        observed = bench.look()[key]
        assert (observed.reports, observed.speeds, observed.costs) == ((), (), None)
        bench.progresses(clock)


@_check
def carries_the_batch_size(bench: _Bench) -> None:
    """A job runs at the batch size of its placement, and one with another batch size is another placement."""
    key = bench.runs("job", replace(bench.one, batch_size=BATCH_SIZE))
    bench.measures(key, 1, has_batch_size=True)
    for placement in (bench.one, replace(bench.two, batch_size=BATCH_SIZE), bench.two):
        bench.engine.resize(key, placement, TIMEOUT_S)
        bench.reaches(key, RunState.RUNNING, placement)
        bench.measures(key, len(placement.devices), has_batch_size=bool(placement.batch_size))


@_check
def starts_once(bench: _Bench) -> None:
    """To start a running job changes nothing, wherever it is to be started."""
    key = bench.runs("job", bench.two)
    for placement in (bench.two, bench.other):
        bench.engine.start(key, placement, TIMEOUT_S)
        observed = bench.look()[key]
        assert (observed.state, observed.placement) == (RunState.RUNNING, bench.two)
    bench.progresses(key)
    assert bench.look()[key].placement == bench.two


@_check
def prepares_only_where_it_says_so(bench: _Bench) -> None:
    """An engine that does not prepare does nothing upon it, and never has it asked for."""
    if bench.engine.prepares:
        raise SkipTest("it prepares")
    key = bench.harness.job("prepared", ENDLESS)
    bench.engine.prepare(key, bench.one, TIMEOUT_S)
    assert key not in bench.look()
    assert not bench.engine.may_prepare(bench.one)


@_check
def holds_a_prepared_job_until_it_is_started(bench: _Bench) -> None:
    """It does not compute before, while another has its GPU, and goes on in the launch that was made ahead."""
    first = bench.runs("first", bench.one)
    key = bench.prepares("prepared", bench.one)
    done = bench.done(key)
    bench.progresses(first)
    assert bench.done(key) == done
    bench.engine.suspend(first, TIMEOUT_S)
    bench.reaches(first, bench.at_rest, bench.one if bench.engine.keeps_memory else None)
    bench.starts(key, bench.one)
    assert bench.look()[key].launch <= 1


@_check
def starts_a_prepared_job_elsewhere(bench: _Bench) -> None:
    """A job that was prepared for other GPUs is launched anew."""
    bench.starts(bench.prepares("prepared", bench.one), bench.other)


@_check
def prepares_a_prepared_job_elsewhere(bench: _Bench) -> None:
    """A job that was prepared for other GPUs is prepared for these."""
    key = bench.prepares("prepared", bench.one)
    bench.engine.prepare(key, bench.other, TIMEOUT_S)
    bench.reaches(key, RunState.PREPARED, bench.other)
    bench.engine.suspend(key, TIMEOUT_S)
    bench.reaches(key, RunState.PREPARED, bench.other)
    bench.engine.resume(key, TIMEOUT_S)
    bench.reaches(key, RunState.RUNNING, bench.other)
    bench.progresses(key)


@_check
def prepares_a_parked_job(bench: _Bench) -> None:
    """It goes on from its checkpoint; parked or stopped before that, nothing of it is left running."""
    bench.prepares("unused", bench.other)
    key = bench.runs("parked", bench.one)
    bench.parks(key)
    done = bench.done(key)
    bench.engine.prepare(key, bench.one, TIMEOUT_S)
    bench.reaches(key, RunState.PREPARED, bench.one)
    bench.parks(key)
    bench.engine.prepare(key, bench.one, TIMEOUT_S)
    bench.reaches(key, RunState.PREPARED, bench.one)
    bench.moves(key, bench.one)
    assert bench.done(key) > done
    for one in list(bench.look()):
        bench.engine.stop(one, TIMEOUT_S)
    assert not bench.look()


@_check
def prepares_no_job_that_has_processes(bench: _Bench) -> None:
    """There is nothing to prepare of a job that has processes."""
    if not bench.engine.prepares:
        raise SkipTest("the engine does not prepare")
    key = bench.runs("running", bench.one)
    bench.engine.prepare(key, bench.other, TIMEOUT_S)
    bench.reaches(key, RunState.RUNNING, bench.one)
    bench.progresses(key)
    bench.rests(key, bench.one)
    if bench.engine.keeps_memory:
        bench.engine.prepare(key, bench.one, TIMEOUT_S)
        bench.reaches(key, RunState.SUSPENDED, bench.one)


@_check
def suspends_and_resumes(bench: _Bench) -> None:
    """A suspended job makes no progress and keeps its GPUs if it keeps its memory; resumed, it continues."""
    key, clock = bench.runs("job", bench.one), bench.runs("clock", bench.other)
    for _ in range(2):
        bench.rests(key, bench.one)
    bench.progresses(clock)  # Reports that were on their way have arrived.
    done = bench.done(key)
    bench.progresses(clock)
    assert bench.done(key) == done
    for _ in range(2):
        bench.engine.resume(key, TIMEOUT_S)
        bench.reaches(key, RunState.RUNNING, bench.one)
    bench.progresses(key)


@_check
def starts_a_suspended_job_where_it_is(bench: _Bench) -> None:
    """To start a suspended job on the GPUs that it has lets it continue there."""
    key = bench.runs("job", bench.two)
    bench.rests(key, bench.two)
    bench.starts(key, bench.two)


@_check
def starts_a_suspended_job_elsewhere(bench: _Bench) -> None:
    """To start a suspended job on other GPUs runs it there, from its checkpoint."""
    key = bench.runs("job", bench.two)
    bench.rests(key, bench.two)
    bench.starts(key, bench.other)


@_check
def resizes(bench: _Bench) -> None:
    """A job moves to other GPUs, more or fewer, without losing progress; resized to those that it has, it is left alone."""
    key = bench.runs("job", bench.one)
    for placement in (bench.two, bench.other, bench.one):
        for _ in range(2):
            bench.engine.resize(key, placement, TIMEOUT_S)
            bench.reaches(key, RunState.RUNNING, placement)
        bench.progresses(key)


@_check
def resizes_a_suspended_job(bench: _Bench) -> None:
    """A suspended job that is resized runs, on the GPUs that it had or on others."""
    key = bench.runs("job", bench.one)
    for before, after in ((bench.one, bench.one), (bench.one, bench.two)):
        bench.rests(key, before)
        bench.moves(key, after)


@_check
def parks_and_starts_again(bench: _Bench) -> None:
    """A parked job holds nothing and starts from its checkpoint, elsewhere, too; it has no memory to be resumed from."""
    key = bench.runs("job", bench.two)
    for placement in (bench.two, bench.other):
        for _ in range(2):
            bench.parks(key)
        bench.engine.suspend(key, TIMEOUT_S)
        bench.reaches(key, RunState.PARKED, None)
        if bench.engine.keeps_memory:
            _refuses(EngineError, partial(bench.engine.resume, key, TIMEOUT_S))
        bench.starts(key, placement)


@_check
def starts_a_job_that_is_being_parked(bench: _Bench) -> None:
    """The last call counts: a job that is started or resized on its way to be parked runs there, suspended before or not."""
    key = bench.runs("job", bench.two)
    bench.engine.resize(key, None, TIMEOUT_S)
    bench.engine.start(key, bench.other, TIMEOUT_S)
    bench.reaches(key, RunState.RUNNING, bench.other)
    bench.engine.resize(key, None, TIMEOUT_S)
    bench.moves(key, bench.one)
    bench.engine.resize(key, None, TIMEOUT_S)
    bench.engine.suspend(key, TIMEOUT_S)
    bench.starts(key, bench.other)


@_check
def suspends_a_job_that_is_stopping(bench: _Bench) -> None:
    """A job that is suspended on its way to other GPUs is suspended there; one on its way to be parked is parked."""
    key = bench.runs("job", bench.two)
    bench.engine.resize(key, bench.other, TIMEOUT_S)
    bench.rests(key, bench.other)
    bench.engine.start(key, bench.other, TIMEOUT_S)
    bench.progresses(key)
    bench.engine.resize(key, None, TIMEOUT_S)
    bench.engine.suspend(key, TIMEOUT_S)
    bench.reaches(key, RunState.PARKED, None)
    bench.engine.start(key, bench.two, TIMEOUT_S)
    bench.progresses(key)


@_check
def resumes_a_job_that_is_stopping(bench: _Bench) -> None:
    """To resume a job on its way to other GPUs, or to be parked, changes nothing; one whose memory is not kept runs."""
    key = bench.runs("job", bench.two)
    bench.engine.resize(key, bench.other, TIMEOUT_S)
    bench.engine.resume(key, TIMEOUT_S)
    bench.reaches(key, RunState.RUNNING, bench.other)
    bench.progresses(key)
    bench.engine.resize(key, None, TIMEOUT_S)
    if bench.engine.keeps_memory:
        with suppress(EngineError):  # The job may be parked already.
            bench.engine.resume(key, TIMEOUT_S)
        bench.reaches(key, RunState.PARKED, None)
        bench.engine.start(key, bench.other, TIMEOUT_S)
    else:
        bench.engine.resume(key, TIMEOUT_S)
    bench.reaches(key, RunState.RUNNING, bench.other)
    bench.progresses(key)


@_check
def parks_a_suspended_job(bench: _Bench) -> None:
    """A suspended job can be parked, and makes way for another on its GPUs."""
    key = bench.runs("job", bench.one)
    bench.rests(key, bench.one)
    bench.parks(key)
    bench.runs("next", bench.one)
    bench.starts(key, bench.other)


@_check
def parks_a_job_that_is_suspended_for_long(bench: _Bench) -> None:
    """A job whose ranks would give each other up is parked before that, by nobody's call, and starts from its checkpoint."""
    if not bench.engine.keeps_memory:
        raise SkipTest("no memory is kept for which ranks could be suspended")
    key = bench.harness.impatient("job", ENDLESS)
    bench.engine.start(key, bench.two, TIMEOUT_S)
    bench.progresses(key)
    for placement in (bench.two, bench.one):
        bench.engine.suspend(key, TIMEOUT_S)
        bench.reaches(key, RunState.PARKED, None)
        assert not bench.harness.has_processes(key)
        _refuses(EngineError, partial(bench.engine.resume, key, TIMEOUT_S))
        bench.starts(key, placement)
        bench.moves(key, bench.two)
    costs = bench.costs[key]
    assert any(0 < one.restart_s == one.resume_s for one in costs), "of a parked job to resume is to restart"


@_check
def stops_for_good(bench: _Bench) -> None:
    """A stopped job is forgotten, in whatever state it was, and its GPUs are free, at once where the engine says so.

    To stop it again is no error.
    """
    states = ("parked", "suspended", "running")
    keys = [bench.harness.job(state, ENDLESS) for state in states]
    for state, key in zip(states, keys, strict=True):
        bench.runs(state, bench.two)
        if state == "suspended":
            bench.rests(key, bench.two)
        elif state == "parked":
            bench.parks(key)
        for _ in range(2):
            bench.engine.stop(key, TIMEOUT_S)
            assert key not in bench.engine.report()
            assert not (bench.engine.stops_at_once and bench.harness.has_processes(key))
        _refuses(EngineError, partial(bench.engine.suspend, key, TIMEOUT_S))
    bench.runs("next", bench.two)
    assert not any(bench.harness.has_processes(key) for key in keys)


@_check
def starts_again_after_stop(bench: _Bench) -> None:
    """A job that was stopped is unknown: it can be started like one that never ran."""
    for placement in (bench.two, bench.other, bench.other):
        key = bench.runs("job", placement)
        bench.never_went_back(key)
        bench.engine.stop(key, TIMEOUT_S)
        for delivered in (bench.reports, bench.speeds, bench.costs):
            del delivered[key]


@_check
def continues_to_a_farther_target(bench: _Bench) -> None:
    """A job that has finished and was stopped goes on from where it was if its description has it run farther."""
    key, _ = bench.finishes("short")
    bench.engine.stop(key, TIMEOUT_S)
    for placement, iterations in ((bench.one, 2 * SHORT), (bench.other, 3 * SHORT)):
        assert bench.harness.job("short", iterations) == key
        bench.engine.start(key, placement, TIMEOUT_S)
        observed = bench.reaches(key, RunState.FINISHED, None)
        assert (observed.target, bench.done(key)) == (iterations, iterations)
        bench.engine.stop(key, TIMEOUT_S)
    reported = [report.iteration for report in bench.reports[key]]
    assert reported == [reported[0] + i for i in range(len(reported))]


@_check
def counts_launches(bench: _Bench) -> None:
    """Every start and restart is a launch of a higher number, also after the job was stopped; to resume a job is none."""
    key = bench.runs("job", bench.one)
    first = bench.look()[key].launch
    if not first:
        raise SkipTest("this engine does not count launches")
    bench.rests(key, bench.one)
    bench.engine.resume(key, TIMEOUT_S)
    resumed = bench.reaches(key, RunState.RUNNING, bench.one).launch
    assert resumed == first if bench.engine.keeps_memory else resumed > first
    bench.engine.resize(key, bench.two, TIMEOUT_S)
    resized = bench.reaches(key, RunState.RUNNING, bench.two).launch
    assert resized > resumed
    bench.engine.stop(key, TIMEOUT_S)
    for delivered in (bench.reports, bench.speeds, bench.costs):
        del delivered[key]
    assert bench.runs("job", bench.one) == key
    assert bench.look()[key].launch > resized


@_check
def hands_jobs_over(bench: _Bench) -> None:
    """Jobs outlive the engine: its successor finds them where they are and as they are."""
    running, resting = bench.runs("running", bench.one), bench.runs("resting", bench.other)
    bench.rests(resting, bench.other)
    bench.harness.succeed()
    after = _Bench(bench.harness)
    after.reaches(running, RunState.RUNNING, after.one)
    after.reaches(resting, after.at_rest, after.other if after.engine.keeps_memory else None)
    after.engine.start(resting, after.other, TIMEOUT_S)
    after.reaches(resting, RunState.RUNNING, after.other)
    after.progresses(running, resting)
    for key in (running, resting):
        after.never_went_back(key)
        after.engine.stop(key, TIMEOUT_S)
    assert not after.engine.report()


@_check
def leaves_ended_jobs_alone(bench: _Bench) -> None:
    """No call but `stop` changes anything about a job that has ended."""
    key, _ = bench.finishes("short")
    for call in bench.calls(key):
        call()
        observed = bench.look()[key]
        assert (observed.state, observed.placement) == (RunState.FINISHED, None)


@_check
def refuses_unknown_jobs(bench: _Bench) -> None:
    """A job that has not been started cannot be called upon, save to stop it; one without a description cannot be started."""
    engine = bench.engine
    never_started = bench.harness.job("job", ENDLESS)
    for key in (never_started, never_started + "-of-nobody"):
        for call in (engine.suspend, engine.resume):
            _refuses(EngineError, partial(call, key))
        for placement in (bench.one, None):
            _refuses(EngineError, partial(engine.resize, key, placement))
        engine.stop(key)
    _refuses(EngineError, partial(engine.start, never_started + "-of-nobody", bench.one))
    assert not engine.report()


@_check
def refuses_placements(bench: _Bench) -> None:
    """A placement that is none is an `InputError`; one on what the engine lacks an `EngineError`. Neither changes anything."""
    node = bench.engine.nodes()[0]
    refused: tuple[tuple[type[BeamerError], Placement], ...] = (
        (InputError, Placement(())),
        (InputError, replace(bench.one, devices=bench.one.devices * 2)),
        (InputError, Placement(((node.name, -1),))),
        (EngineError, Placement(((node.name, node.gpus),))),
        (EngineError, Placement(((node.name + "-of-nobody", 0),))),
    )
    key = bench.harness.job("job", ENDLESS)
    for error, placement in refused:
        _refuses(error, partial(bench.engine.start, key, placement, TIMEOUT_S))
        assert not bench.engine.report()
    bench.runs("job", bench.one)
    for error, placement in refused:
        _refuses(error, partial(bench.engine.resize, key, placement, TIMEOUT_S))
        bench.reaches(key, RunState.RUNNING, bench.one)
    bench.progresses(key)


@_check
def starts_nothing_on_a_lost_node(bench: _Bench) -> None:
    """A lost node is not listed, and a call that places a job there an `EngineError` that changes nothing."""
    key = bench.runs("job", bench.one)
    (lost, _), *_ = bench.other.devices
    bench.harness.lose(lost)

    def listed(expected: bool) -> bool:
        bench.look()
        return (lost in (node.name for node in bench.engine.nodes())) is expected

    bench.harness.wait(lambda: listed(False))
    late = bench.harness.job("late", ENDLESS)
    _refuses(EngineError, partial(bench.engine.start, late, bench.other))
    assert late not in bench.engine.report()
    bench.engine.stop(late, TIMEOUT_S)
    _refuses(EngineError, partial(bench.engine.resize, key, bench.other))
    bench.reaches(key, RunState.RUNNING, bench.one)
    bench.progresses(key)
    bench.harness.rejoin(lost)
    bench.harness.wait(lambda: listed(True))
    bench.engine.start(late, bench.other, TIMEOUT_S)
    bench.progresses(key, late)


ENGINE_CHECKS: tuple[EngineCheck, ...] = (has_nodes, *_checks)
"""What every engine has to pass: each takes a harness of a fresh engine."""
