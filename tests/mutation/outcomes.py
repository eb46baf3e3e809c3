"""A pytest plugin that notes every test's start, outcome and seconds in the file that BEAMER_MUTATION_OUTCOMES names."""

import json
import os

import pytest


def _note(kind: str, test: str, seconds: float = 0.0) -> None:
    with open(os.environ["BEAMER_MUTATION_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps([kind, test, seconds]) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note the test that runs, so that a time-out can name it."""
    _note("started", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a phase of a test."""
    _note(report.outcome, report.nodeid, report.duration)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be imported."""
    if report.failed:
        _note("failed", report.nodeid)
