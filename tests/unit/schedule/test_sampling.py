"""Configurations that are drawn: which ranges are refused, when a draw is due, that a killed search draws the same again."""

import re
import sys
from collections.abc import Mapping
from io import StringIO
from random import Random
from typing import Any

import pytest
from rich.console import Console

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import InputError, PlatformError
from beamer.gpu.decider import by_policy
from beamer.gpu.events import RunFinished, TrialReported, TrialSampled
from beamer.gpu.model import Costs, Node, Report
from beamer.gpu.policy_settings import gpu_policy_of
from beamer.schedule.file import Search, parse
from beamer.schedule.live import frame
from beamer.schedule.report import TrialRow, rows, values_line
from beamer.schedule.sampling import KINDS, DrawnTrials, Sampling
from beamer.schedule.session import SearchSession
from beamer.schedule.template import Trial
from beamer.studies.events import Event, StudyEnded, TrialEnded
from beamer.studies.model import TrialStatus
from beamer.studies.parameters import ConfigurationSampler, FloatRange, TrialResult
from beamer.testing.gpu_policies import Exponential
from tests.support.schedule_inputs import BASE, changed
from tests.support.tiers import few, long
from tests.unit.schedule.test_session import Commands

TRIALS = 16
PARAMETERS: dict[str, Any] = {
    "lr": {"log_uniform": [1e-5, 0.1]},
    "momentum": {"uniform": [0.0, 0.9], "step": 0.3},
    "layers": {"integer": [2, 9], "step": 2},
    "width": {"integer": [16, 512], "log": True},
    "kind": {"categorical": ["1e-4", "true", "c"]},
}
NUMBERS = {name: entry for name, entry in PARAMETERS.items() if name != "kind"}


def content(parameters: Mapping[str, Any] = PARAMETERS, rungs: Any = (), **sampler: Any) -> dict[str, Any]:
    entry = {"kind": "tpe", "trials": TRIALS, "seed": 3, "parameters": dict(parameters), **sampler}
    data = changed(lambda d: d.pop("configurations"))
    data["job"] = {"command": ["true", *(f"{{{name}}}" for name in parameters)], "request": {"epoch": 2, "iterations": 12}}
    if rungs:
        data["job"]["request"].pop("iterations")
        data["rungs"] = list(rungs)
    return {**data, "sampler": entry}


def sampled(**keys: Any) -> Search:
    return parse(content(**keys), BASE)


def set_parameter(entry: Any) -> Any:
    return lambda d: d["sampler"]["parameters"].update(lr=entry)


def add_parameter(name: str) -> Any:
    return lambda d: d["sampler"]["parameters"].update({name: {"uniform": [0, 1]}})


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        (lambda d: d["sampler"].update(kind="tpee"), r"sampler\.kind", "did you mean 'tpe'"),
        (lambda d: d["sampler"].update(trials=0), r"sampler\.trials", "greater than or equal to 1"),
        (lambda d: d["sampler"].update(seed=-1), r"sampler\.seed", "greater than or equal to 0"),
        (lambda d: d["sampler"].update(lag=0), r"sampler\.lag", "greater than or equal to 1"),
        (lambda d: d["sampler"].update(parameters={}), r"sampler\.parameters", "at least 1"),
        (lambda d: d["sampler"].update(tirals=3), r"sampler\.tirals", "did you mean 'trials'"),
        (lambda d: d.update(grid={"lr": [1]}), "configurations", "one of them"),
        (set_parameter({}), r"sampler\.parameters\.lr", "one of log_uniform, uniform, integer, categorical"),
        (set_parameter({"uniform": [0, 1], "integer": [0, 1]}), r"sampler\.parameters\.lr", "one of log_uniform"),
        (set_parameter({"lguniform": [0, 1]}), r"sampler\.parameters\.lr\.lguniform", "did you mean 'log_uniform'"),
        (set_parameter({"log_uniform": [0, 1]}), r"parameters\.lr\.log_uniform", "above 0, as the logarithm is drawn"),
        (set_parameter({"uniform": [1, 1]}), r"parameters\.lr\.uniform", "below 1.0, the end of the range"),
        (set_parameter({"uniform": [0, float("inf")]}), r"parameters\.lr\.uniform", "a number from"),
        (set_parameter({"uniform": [0, 1, 2]}), r"parameters\.lr\.uniform", "at most 2"),
        (set_parameter({"uniform": [0, 1], "step": 2}), r"parameters\.lr\.step", "at most 1.0, the width"),
        (set_parameter({"uniform": [0, 1], "log": True}), r"parameters\.lr\.log", "log_uniform draws the logarithm"),
        (set_parameter({"log_uniform": [1, 2], "step": 0.5}), r"parameters\.lr\.step", "no step of log_uniform"),
        (set_parameter({"integer": [3, 1]}), r"parameters\.lr\.integer", "below 1"),
        (set_parameter({"integer": [0, 8], "log": True}), r"parameters\.lr\.integer", "at least 1"),
        (set_parameter({"integer": [1, 8], "step": 0.5}), r"parameters\.lr\.step", "a whole number"),
        (set_parameter({"integer": [1, 8], "step": 2, "log": True}), r"parameters\.lr\.step", "no step where"),
        (set_parameter({"integer": [1, 8], "step": 9}), r"parameters\.lr\.step", "1 to 7"),
        (set_parameter({"integer": [0.5, 8]}), r"parameters\.lr\.integer\[0\]", "whole number"),
        (set_parameter({"categorical": ["a", "a"]}), r"parameters\.lr\.categorical", "values that differ"),
        (set_parameter({"categorical": []}), r"parameters\.lr\.categorical", "at least 1"),
        (add_parameter("iterations"), r"sampler\.parameters", "none of iterations"),
        (add_parameter("name"), r"sampler\.parameters", "none of iterations"),
        (add_parameter("unused"), r"sampler\.parameters\.unused", r"\{unused\}"),
        (lambda d: d["job"]["command"].append("{lrr}"), r"job\.command\[6\]", "did you mean 'lr'"),
        (lambda d: d["job"].update(checkpoint="ck"), r"job\.checkpoint", r"\{name\}"),
        (lambda d: d["job"].update(checkpoint="{name}/../ck"), r"job\.checkpoint", r"\{name\}"),
        (lambda d: d["job"]["request"].update(gpus="{layers}"), r"job\.request", "2 GPUs in all"),
        (lambda d: d["job"]["request"].update(batch_size="{kind}"), r"job\.request\.batch_size", "whole number"),
        (lambda d: d["sampler"].update(kind="cma-es"), r"sampler\.parameters\.kind", "a range of numbers"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": TRIALS + 1}, {"iterations": 9}]), r"rungs\[0\]\.keep", "1 to 16"),
        (
            lambda d: d.update(rungs=[{"iterations": 5}], asynchronous_halving={"iterations": 5}),
            "asynchronous_halving",
            "beside rungs",
        ),
        (
            lambda d: d.update(asynchronous_halving={"iterations": 5, "first": 6}),
            r"asynchronous_halving\.first",
            "1 to 5 iterations",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_sampler_is_named(change: Any, field: str, expected: str) -> None:
    data = content()
    parse(data, BASE)
    change(data)
    with pytest.raises(InputError, match=expected) as caught:
        parse(data, BASE)
    assert re.search(rf"{field}$", caught.value.field), caught.value.field


def test_one_number_is_too_few_for_cma_es() -> None:
    with pytest.raises(InputError, match="at least two ranges"):
        sampled(parameters={"lr": PARAMETERS["lr"]}, kind="cma-es")


def test_a_request_may_have_parameters() -> None:
    data = content()
    data["job"]["request"]["batch_size"] = "{width}"
    search = parse(data, BASE)
    assert search.trials == ()
    assert search.trial_count == TRIALS
    assert {job.request.batch_size for job in search.extremes} == {16, 512}
    drawn = search.with_drawn(_trial("trial-0", width="100"))
    assert drawn.jobs["trial-0"].request.batch_size == 100
    assert search.jobs == {}, "the search before is as it was"


def _trial(name: str, **values: str) -> Trial:
    return Trial(name, {"lr": "0.1", "momentum": "0.3", "layers": "2", "kind": "c", **values})


def test_by_default_twice_as_many_have_no_result_as_run_at_once() -> None:
    assert sampled().sampling.lag == 4, "2 GPUs, one for each"  # type: ignore[union-attr]
    data = content()
    data["job"]["request"]["gpus"] = 2
    assert parse(data, BASE).sampling.lag == 2  # type: ignore[union-attr]


class Noted(ConfigurationSampler):
    """A sampler that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def draw(self) -> dict[str, str]:
        self.calls.append("draw")
        return {"x": str(len(self.calls))}

    def take(self, values: Mapping[str, str]) -> None:
        self.calls.append(("take", values["x"]))

    def tell(self, number: int, result: TrialResult) -> None:
        self.calls.append((number, result.loss))


class NotedSampling(Sampling):
    """A sampling that draws by `Noted`."""

    def open(self) -> ConfigurationSampler:
        opened.append(Noted())
        return opened[-1]


opened: list[Noted] = []


def drawn_trials(wait: bool, lag: int = 2, trials: int = 6) -> DrawnTrials:
    return DrawnTrials("s", NotedSampling("random", trials, {"x": FloatRange(0.0, 1.0)}, 0, lag, wait, ""))


def draw_all(trials: DrawnTrials, past: list[Event]) -> None:
    while trials.is_due:
        past.append(trials.draw(0.0))
        trials.apply(past[-1])


def finish(trials: DrawnTrials, past: list[Event], number: int, loss: float) -> None:
    for event in (TrialReported(0.0, f"s/trial-{number}", Report(0.0, 5, loss, 1.0)), RunFinished(0.0, f"s/trial-{number}", 5)):
        trials.apply(event)
        past.append(event)


def test_a_draw_waits_for_the_results_that_it_may_know_and_knows_no_others() -> None:
    trials, past = drawn_trials(wait=True), list[Event]()
    draw_all(trials, past)
    assert len(trials.drawn) == 2
    finish(trials, past, 1, 0.25)
    assert not trials.is_due, "trial 0 has no result"
    finish(trials, past, 0, 0.5)
    draw_all(trials, past)
    assert [event.results_below for event in trials.drawn] == [0, 0, 1, 2]
    assert opened[-1].calls == ["draw", "draw", (0, 0.5), "draw", (1, 0.25), "draw"]
    again = drawn_trials(wait=True)
    for event in past:
        again.apply(event)
    again.prepared()
    assert opened[-1].calls == [("take", "1"), ("take", "2"), (0, 0.5), ("take", "4"), (1, 0.25), ("take", "6")]


def test_the_order_in_which_trials_end_does_not_matter() -> None:
    found = []
    for order in ((0, 1, 2, 3, 4, 5), (1, 0, 3, 2, 5, 4)):
        trials, past = drawn_trials(wait=True), list[Event]()
        draw_all(trials, past)
        for number in order:
            finish(trials, past, number, number / 8)
            draw_all(trials, past)
        found.append(opened[-1].calls)
    assert found[0] == found[1]
    assert len([call for call in found[0] if call == "draw"]) == 6


def test_without_waiting_a_draw_knows_what_there_is() -> None:
    trials, past = drawn_trials(wait=False), list[Event]()
    draw_all(trials, past)
    finish(trials, past, 1, 0.25)
    draw_all(trials, past)
    assert [event.results_below for event in trials.drawn] == [None] * 3
    assert opened[-1].calls == ["draw", "draw", (1, 0.25), "draw"]
    finish(trials, past, 2, 0.75)
    again = drawn_trials(wait=False)
    for event in past:
        again.apply(event)
    draw_all(again, past)
    assert opened[-1].calls == [("take", "1"), ("take", "2"), (1, 0.25), ("take", "4"), (2, 0.75), "draw"]


def test_a_failed_trial_has_a_result_and_the_first_one_counts() -> None:
    trials, past = drawn_trials(wait=True), list[Event]()
    draw_all(trials, past)
    trials.apply(TrialEnded(0.0, "s/trial-0", TrialStatus.FAILED))
    assert trials.results == {0: TrialResult(None)}
    finish(trials, past, 1, 0.25)
    finish(trials, past, 1, 0.125)
    trials.apply(TrialEnded(0.0, "s/trial-1", TrialStatus.KILLED))
    assert trials.results[1] == TrialResult(0.25)


def test_more_gpus_later_leave_nothing_out_that_was_known() -> None:
    trials, past = drawn_trials(wait=True, lag=1), list[Event]()
    for number in range(3):
        draw_all(trials, past)
        finish(trials, past, number, 0.5)
    wider = drawn_trials(wait=True, lag=3)
    for event in past:
        wider.apply(event)
    draw_all(wider, past)
    assert [event.results_below for event in wider.drawn] == [0, 1, 2, 2, 2, 3]


# With Optuna.


def values_of(sampling: Sampling, cut: int, count: int, lag: int = 3) -> list[dict[str, str]]:
    """Return draws of which the first `cut` were taken from another sampler; losses follow from the values."""
    first = sampling.open()
    known: list[dict[str, str]] = []
    for number in range(count):
        if number >= lag:
            first.tell(number - lag, loss_of(known[number - lag], number - lag))
        known.append(first.draw())
    second = sampling.open()
    found: list[dict[str, str]] = []
    for number in range(count):
        if number >= lag:
            second.tell(number - lag, loss_of(known[number - lag], number - lag))
        if number < cut:
            second.take(known[number])
        found.append(known[number] if number < cut else second.draw())
    assert found == known
    return known


def loss_of(values: Mapping[str, str], number: int) -> TrialResult:
    return TrialResult(None if number == 2 else float("nan") if number == 4 else abs(float(values["lr"]) - 0.01))


@pytest.mark.parametrize("cut", [1, 13, *long(5, 29)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_that_takes_what_was_drawn_goes_on_as_the_one_before(kind: str, cut: int) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("cmaes")
    parameters = NUMBERS if kind == "cma-es" else PARAMETERS
    sampling = sampled(parameters=parameters, kind=kind).sampling
    assert sampling is not None
    found = values_of(sampling, cut, 30)
    for values in found:
        assert values.keys() == parameters.keys()
        assert 1e-5 <= float(values["lr"]) <= 0.1
        assert round(float(values["momentum"]) / 0.3, 9) in (0, 1, 2, 3)
        assert int(values["layers"]) in (2, 4, 6, 8)
        assert 16 <= int(values["width"]) <= 512
        assert values.get("kind", "c") in ("1e-4", "true", "c")
    assert len({values["lr"] for values in found}) == 30
    other = sampled(parameters=parameters, kind=kind, seed=4).sampling
    assert other is not None
    assert values_of(other, 1, 5) != found[:5], "another seed, other draws"


def test_tpe_learns_from_results() -> None:
    pytest.importorskip("optuna")
    sampling = sampled().sampling
    assert sampling is not None
    told, untold = sampling.open(), sampling.open()
    for number in range(20):
        told.tell(number, loss_of(told.draw(), 0))
        untold.draw()
    assert told.draw() != untold.draw()


def test_cma_es_says_where_it_draws_otherwise_than_before() -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("cmaes")
    sampling = sampled(parameters=NUMBERS, kind="cma-es").sampling
    assert sampling is not None
    with pytest.raises(InputError, match="the versions of optuna and cmaes with which the search was begun"):
        sampling.open().take(dict.fromkeys(NUMBERS, "1"))


def test_a_package_that_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("beamer.integrations.optuna")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    sampling = sampled().sampling
    assert sampling is not None
    with pytest.raises(
        PlatformError, match=r"the sampler tpe needs the package optuna; pip install 'beamer-scheduler\[optuna\]'"
    ):
        sampling.open()


class SampledCommands(Commands):
    """A command of a search whose trials take different times, on a simulated cluster; killed before or after any event."""

    def __init__(self, search: Search, policy: str, seed: int = 0) -> None:
        self.search, self.policy = search, policy
        request = search.extremes[0].request
        rng = Random(0)
        losses = [rng.uniform(0.1, 0.9) for _ in range(TRIALS)]
        self.engine = SimulatedCluster(
            [Node("n", 2)],
            {
                f"s/trial-{number}": SimulatedJob(request, Exponential(loss, 0.3), Costs(0.1, 0.1, 0.5 + 3.0 * (number % 3)))
                for number, loss in enumerate(losses)
            },
            lambda key: self.session.target(key),
        )
        self.journal: list[Event] = []
        self.lines: list[str] = []
        self.rng = Random(seed)
        self.kill_in = 10**9
        self.kills = 0


RUNGS = [{"iterations": 4, "keep": 6}, {"iterations": 8, "keep": 2}, {"iterations": 12}]


@pytest.mark.parametrize("policy", few(["fifo", "hermes", "round-robin", "convergence"], ["hermes", "round-robin"]))
@pytest.mark.parametrize("rungs", [(), RUNGS], ids=["without-rungs", "rungs"])
def test_a_search_killed_at_any_event_draws_and_finds_what_an_undisturbed_one_does(policy: str, rungs: Any) -> None:
    pytest.importorskip("optuna")
    plain = SampledCommands(sampled(rungs=rungs), policy)
    plain.run(killed=False)
    found = drawn_in(plain.journal)
    assert [event.number for event in found] == list(range(TRIALS))
    for seed in range(2):
        commands = SampledCommands(sampled(rungs=rungs), policy, seed)
        session = commands.run(killed=True)
        assert commands.kills > 10
        assert session.wait_until_forgotten()
        assert [event.values for event in drawn_in(commands.journal)] == [event.values for event in found]
        assert len([event for event in commands.journal if isinstance(event, StudyEnded)]) == 1
        assert _ranking(commands)[:2] == _ranking(plain)[:2]
        assert f"trial-3 is drawn: {values_line(found[3].values)}" in commands.lines


@pytest.mark.parametrize("policy", ["hermes", *long("round-robin")])
def test_rungs_without_barriers_draw_the_same_after_kills(policy: str) -> None:
    pytest.importorskip("optuna")
    data = content()
    data["job"]["request"].pop("iterations")
    search = parse({**data, "asynchronous_halving": {"iterations": 12, "reduction_factor": 2, "first": 3}}, BASE)
    assert [rung.step for rung in search.rungs] == [3, 6, 12]
    plain, killed = SampledCommands(search, policy), SampledCommands(search, policy, 1)
    session = plain.run(killed=False)
    killed.run(killed=True)
    assert killed.kills > 10
    assert [event.values for event in drawn_in(killed.journal)] == [event.values for event in drawn_in(plain.journal)]
    ends = [trial.status for trial in session.tracker.study("s").trials.values()]
    assert 0 < ends.count(TrialStatus.KILLED) < len(ends) == TRIALS
    assert not session.tracker.study("s").barriers


def drawn_in(journal: list[Event]) -> list[TrialSampled]:
    return [event for event in journal if isinstance(event, TrialSampled)]


def _ranking(commands: Commands) -> list[str]:
    session = commands.session
    return [row.name for row in rows(session.search, session.ledger, session.statistics, commands.engine.now)]


def test_policies_do_not_change_what_is_drawn() -> None:
    pytest.importorskip("optuna")
    draws = []
    for policy in ("fifo", "round-robin"):
        commands = SampledCommands(sampled(), policy)
        commands.run(killed=False)
        draws.append([event.values for event in drawn_in(commands.journal)])
    assert draws[0] == draws[1]


@pytest.mark.parametrize("killed", [False, True])
def test_a_search_that_has_reached_its_target_draws_no_more(killed: bool) -> None:
    pytest.importorskip("optuna")
    data = content()
    commands = SampledCommands(parse({**data, "target_loss": 0.5, "stop_at_target": True}, BASE), "fifo")
    session = commands.run(killed)
    assert session.done
    assert 0 < len(drawn_in(commands.journal)) < TRIALS
    assert session.wait_until_forgotten()
    again = commands.life()
    assert again.done, "nor does the same command, which finds it over"
    assert len(drawn_in(commands.journal)) < TRIALS


def test_a_search_that_was_ended_elsewhere_draws_no_more() -> None:
    pytest.importorskip("optuna")
    commands = SampledCommands(sampled(), "fifo")
    session = commands.session = SearchSession(
        commands.search, by_policy(gpu_policy_of("fifo", [])), commands.engine, (), commands.journal.append, clock=lambda: 0.0
    )
    session.start(0.0)
    session.step(0.0)
    assert not session.done
    session.kill(1.0)
    assert session.done
    assert [event.at_s for event in drawn_in(commands.journal)] == [0.0] * 4


def test_a_frame_shows_what_runs_first_and_what_is_best() -> None:
    found = [
        TrialRow("a", {"lr": "0.0123456789"}, "finished", "", 9.0, 0.125, 0.125, 1.0, 1.0, 0, 0),
        TrialRow("b", {}, "waiting", "", 0.0, None, None, 1.0, 1.0, 0, 0),
        TrialRow("c", {}, "running", "", 3.0, 0.5, 0.5, 1.0, 1.0, 0, 0),
        TrialRow("d", {}, "failed", "", 3.0, None, None, 1.0, 1.0, 0, 0),
        *(TrialRow(f"w{i}", {}, "waiting", "", 0.0, None, None, 1.0, 1.0, 0, 0) for i in range(5)),
    ]
    console = Console(file=StringIO(), width=100, height=12, color_system=None)
    console.print(frame(found, {"s/c": (("n", 1),)}, 12, False, 12))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert lines[2].split() == ["c", "running", "3", "0.5", "n:1"], "what runs comes first"
    assert "and 2 more" in lines
    assert any("2 of 12 configurations have ended (1 failed, 1 finished)" in line for line in lines)
    assert lines[-1] == "best so far: a, loss 0.125 (lr 0.01235)"
    console = Console(file=StringIO(), width=100, color_system=None)
    console.print(frame(found[1:2], {}, 12, True, 3))
    assert "best" not in console.file.getvalue()  # type: ignore[attr-defined]
