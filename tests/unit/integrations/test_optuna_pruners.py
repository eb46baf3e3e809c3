"""Milestones are the steps at which Optuna's own pruners judge: asked of the real ones, for every kind and spacing of steps."""

import math
from collections.abc import Iterable
from typing import Any

import pytest

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from beamer.integrations.optuna_pruners import ATTRIBUTES, RUNG_KEY, Judged, counts_reports, next_milestone  # noqa: E402
from tests.support.optuna_pruners import PRUNERS  # noqa: E402

END = 82
LINES: dict[str, range] = {
    "from 0": range(END),
    "from 1": range(1, END),
    "by 5": range(5, END, 5),
    "by 4, from 3": range(3, END, 4),
}


def begun(number: int = 0, **attributes: float) -> Any:
    """Return a trial as Optuna stores it when it starts. attributes: of the system."""
    trial = optuna.create_trial(state=optuna.trial.TrialState.RUNNING, system_attrs=attributes)
    trial.number = number
    return trial


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def steadily(step: int) -> float:
    return -float(step)


def told(study: Any, values: Iterable[tuple[int, float]]) -> tuple[Any, int | None]:
    """Run a trial through `ask` and `tell`; return it, and the step at which it was pruned."""
    trial = study.ask()
    for step, value in values:
        trial.report(value, step)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return trial, step
    study.tell(trial, 0.0)
    return trial, None


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("name", [name for name in PRUNERS if name not in ("patient", "short hyperband")])  # END is beyond that
def test_a_trial_that_breaks_is_pruned_at_its_milestone(name: str, line: str) -> None:
    """Each trial is as good as all others up to a step, and broken from then on: the first judgement after that ends it."""
    steps = LINES[line]
    study = optuna.create_study(study_name="s", pruner=PRUNERS[name]())
    for _ in range(3):
        assert told(study, ((step, steadily(step)) for step in steps))[1] is None
    milestones = set()
    for good in (None, *steps[:-1]):
        trial, pruned = told(study, ((step, math.nan if good is None or step > good else steadily(step)) for step in steps))
        milestone = next_milestone(study.pruner, Judged(study, begun(number=trial.number), good))
        due = next((step for step in steps if milestone is not None and step >= milestone), None)
        assert pruned == due, f"after {good}: milestone {milestone}"
        milestones.add(milestone)
    assert len(milestones) > 2


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_patient_pruner_judges_where_the_one_that_it_wraps_does() -> None:
    study, wrapped = optuna.create_study(), PRUNERS["late halving"]()
    pruner = optuna.pruners.PatientPruner(wrapped, patience=2)
    due = [next_milestone(pruner, Judged(study, begun(), step)) for step in (None, 1, 4, 9)]
    assert due == [next_milestone(wrapped, Judged(study, begun(), step)) for step in (None, 1, 4, 9)] == [4, 4, 8, 16]


def test_brackets_differ_before_the_pruner_has_made_them() -> None:
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=81, reduction_factor=3)
    study = optuna.create_study(study_name="s", pruner=pruner)
    trials = [begun(number) for number in range(60)]
    before = [next_milestone(pruner, Judged(study, trial, None)) for trial in trials]
    assert pruner._pruners == [], "the user's pruner is left as it is"
    told(study, [(1, 1.0)])
    assert pruner._pruners
    assert before == [next_milestone(pruner, Judged(study, trial, None)) for trial in trials]
    assert set(before) == {1, 3, 9, 27, 81}


def test_no_milestone_before_a_resource_is_estimated_nor_beyond_the_largest() -> None:
    for name in ("estimated halving", "estimated hyperband"):
        pruner = PRUNERS[name]()
        study = optuna.create_study(pruner=pruner)
        assert next_milestone(pruner, Judged(study, begun(), None)) is None
        told(study, ((step, 0.0) for step in range(1, 400)))
        told(study, [(1, 0.0)])
        assert next_milestone(pruner, Judged(study, begun(), None)) is not None
        assert name == "estimated halving" or next_milestone(pruner, Judged(study, begun(), 390)) is None


def test_a_retried_trial_is_not_judged_at_rungs_that_it_has_passed() -> None:
    pruner = PRUNERS["halving"]()
    study = optuna.create_study(pruner=pruner)
    kept = {RUNG_KEY.format(rung): 0.0 for rung in range(2)}
    study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.WAITING, system_attrs=kept))
    again = begun(**kept)
    assert next_milestone(pruner, Judged(study, again, None)) == 9
    assert told(study, [(3, math.nan), (8, math.nan), (10, math.nan)])[1] == 10


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_where_each_step_is_judged_or_none_there_is_no_milestone() -> None:
    study = optuna.create_study()
    for pruner in (
        optuna.pruners.MedianPruner(),
        optuna.pruners.NopPruner(),
        optuna.pruners.WilcoxonPruner(),
        optuna.pruners.PatientPruner(None, patience=3),
        object(),
    ):
        assert [next_milestone(pruner, Judged(study, begun(), step)) for step in (None, 0, 7)] == [None] * 3
        assert counts_reports(pruner) == isinstance(pruner, optuna.pruners.WilcoxonPruner)
    assert next_milestone(optuna.pruners.MedianPruner(n_warmup_steps=9), Judged(study, begun(), 8)) == 9


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_new_optuna_has_kept_what_milestones_rest_on() -> None:
    made: dict[Any, Any] = {type(make()): make() for make in PRUNERS.values()}
    made[optuna.pruners.PercentilePruner] = made.pop(optuna.pruners.MedianPruner)  # which inherits everything
    assert made.keys() == ATTRIBUTES.keys()
    broken = [
        f"{kind.__name__}.{name}" for kind, names in ATTRIBUTES.items() for name in names if not hasattr(made[kind], name)
    ]
    assert broken == [], f"Optuna {optuna.__version__} has lost these: beamer/integrations/optuna_pruners.py has to do without"
    study = optuna.create_study(pruner=PRUNERS["halving"]())
    trial, _ = told(study, [(1, 0.0)])
    assert RUNG_KEY.format(0) in study.trials[trial.number].system_attrs, f"Optuna {optuna.__version__} notes rungs otherwise"


@pytest.mark.parametrize("name", PRUNERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_what_is_missing_is_named(name: str) -> None:
    pruner = PRUNERS[name]()
    (attribute, *_) = next(names for kind, names in ATTRIBUTES.items() if isinstance(pruner, kind))
    delattr(pruner, attribute)
    with pytest.raises(AttributeError, match=attribute):
        next_milestone(pruner, Judged(optuna.create_study(), begun(), None))
