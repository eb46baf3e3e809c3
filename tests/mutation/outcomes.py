"""A pytest plugin that notes every test's start and outcome in the file that BEAMER_MUTATION_OUTCOMES names."""

import json
import os

import pytest


def _note(kind: str, test: str) -> None:
    with open(os.environ["BEAMER_MUTATION_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps([kind, test]) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note the test that runs, so that a time-out can name it."""
    _note("started", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a phase of a test."""
    _note(report.outcome, report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be imported."""
    if report.failed:
        _note("failed", report.nodeid)
