"""A search in an Optuna storage: written once, completed after a break, and refused where another search's study is."""

from pathlib import Path

import pytest

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from optuna.trial import TrialState  # noqa: E402

from beamer.errors import InputError  # noqa: E402
from beamer.integrations.optuna_copy import StudyCopy  # noqa: E402
from beamer.studies.parameters import Choice, FloatRange, IntegerRange, TrialResult  # noqa: E402

PARAMETERS = {"lr": FloatRange(1e-5, 1.0, log=True), "n": IntegerRange(1, 9), "kind": Choice(("a", "b"))}
DRAWN = [{"lr": f"0.{i + 1}", "n": str(i + 1), "kind": "ab"[i % 2]} for i in range(5)]
RESULTS = {0: TrialResult(0.5), 1: TrialResult(None), 3: TrialResult(float("nan"))}


def stored(url: str) -> list[tuple[float, int, str, str, float | None]]:
    trials = optuna.load_study(study_name="s", storage=url).trials
    return [(*(trial.params[name] for name in PARAMETERS), trial.state.name, trial.value) for trial in trials]


@pytest.mark.parametrize("cut", [0, 1, 3, 5])
def test_a_copy_that_broke_off_is_completed(tmp_path: Path, cut: int) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    StudyCopy(url, "s", PARAMETERS).update(DRAWN[:cut], {number: one for number, one in RESULTS.items() if number < cut - 1})
    again = StudyCopy(url, "s", PARAMETERS)
    again.update(DRAWN[: max(cut, 4)], {})
    again.update(DRAWN, RESULTS)
    again.update(DRAWN, RESULTS)
    inf = float("inf")
    states = [("COMPLETE", 0.5), ("FAIL", None), ("RUNNING", None), ("COMPLETE", inf), ("RUNNING", None)]
    assert stored(url) == [(float(d["lr"]), int(d["n"]), d["kind"], *state) for d, state in zip(DRAWN, states, strict=True)]
    assert {trial.state for trial in optuna.load_study(study_name="s", storage=url).trials} <= set(TrialState)


@pytest.mark.parametrize("other", [DRAWN[::-1], [], DRAWN[:2]])
def test_the_study_of_another_search_is_left_as_it_is(tmp_path: Path, other: list[dict[str, str]]) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    StudyCopy(url, "s", PARAMETERS).update(DRAWN, RESULTS)
    before = stored(url)
    with pytest.raises(InputError, match="a storage without a study s of another search"):
        StudyCopy(url, "s", PARAMETERS).update(other, {})
    assert stored(url) == before


def test_what_is_no_storage_is_refused() -> None:
    with pytest.raises(InputError, match=r"sampler\.storage: got 'nowhere://x', expected the URL of an Optuna storage"):
        StudyCopy("nowhere://x", "s", PARAMETERS)
