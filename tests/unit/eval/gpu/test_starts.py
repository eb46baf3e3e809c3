"""What is read of searches whose programs take seconds to start, and what is said of them."""

from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.gpu.events import Allocated, TrialReported
from beamer.gpu.model import Report
from beamer.studies.events import Event
from beamer.studies.journal.store import Journal
from eval.documents import markdown
from eval.gpu.starts import TARGET_LOSS, SearchRun, table, times


def report(trial: str, at_s: float, iteration: int, service_s: float, loss: float = 1.0) -> TrialReported:
    return TrialReported(at_s, trial, Report(at_s, iteration, loss, service_s))


def journal(folder: Path, *events: Event) -> str:
    """Return the URL of a journal with these events after a grant at 10 s."""
    url = f"sqlite:///{folder / 'journal.db'}"
    kept = Journal(url)
    try:
        for event in (Allocated(10.0, "fifo", 1, None, {}, {}), *events):
            kept.append(event)
    finally:
        kept.close()
    return url


def test_time_counts_from_the_first_grant_to_the_target_and_idle_is_what_no_trial_computed(tmp_path: Path) -> None:
    good = report("s/b", 20.0, 9, 4.0, TARGET_LOSS)
    late = report("s/b", 30.0, 99, 14.0, TARGET_LOSS)
    url = journal(tmp_path, report("s/a", 12.0, 0, 0.0), report("s/a", 14.0, 5, 2.0), report("s/b", 16.0, 0, 0.0), good, late)
    assert times(url) == pytest.approx((10.0, 0.25))


def test_a_search_that_does_not_reach_its_target_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reaches its target"):
        times(journal(tmp_path, report("s/a", 12.0, 0, 0.0)))


def test_means_and_their_ratio_are_shown_by_policy() -> None:
    runs = [
        SearchRun("one good", "fifo", ahead, seed, 10.0 * seed if ahead else 20.0 * seed, 0.5)
        for seed in (1, 2)
        for ahead in (True, False)
    ]
    assert "| one good | fifo | 30.0 | 15.0 | 0.50 | 50% | 50% |" in markdown(table(runs, 5.0))
