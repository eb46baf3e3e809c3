"""Checks on facts, of which some could not be observed; how findings are shown, and what the process ends with."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beamer.doctor.findings import Check, CheckVerdict, Finding, Unseen, examine, fault, not_checked, observe, ok, seen, warning
from beamer.doctor.report import document, exit_code, lines, report
from beamer.errors import InputError


def test_what_cannot_be_observed_says_why() -> None:
    def run(*command: str) -> Callable[[], object]:
        return lambda: subprocess.run(command, check=True, capture_output=True, text=True, timeout=5)

    def refuse() -> int:
        raise InputError("field", 1, "2")

    assert observe(lambda: 7) == 7
    assert observe(lambda: Path("/absent/file").read_text()) == Unseen("/absent/file: No such file or directory")
    assert observe(run("/absent/program")) == Unseen("/absent/program: No such file or directory")
    assert observe(run("sh", "-c", "echo no; echo such thing >&2; exit 3")) == Unseen("sh: such thing")
    assert observe(run("sh", "-c", "exit 3")) == Unseen("sh: exit code 3")
    assert observe(refuse) == Unseen("field: got 1, expected 2")


def test_a_check_whose_fact_was_not_observed_keeps_what_it_has_found_and_the_others_go_on() -> None:
    def partly(facts: tuple[int | Unseen, ...]) -> Iterator[Finding]:
        for fact in facts:
            yield ok(str(seen(fact)))

    checks: dict[str, Check[tuple[int | Unseen, ...]]] = {"first": partly, "second": lambda _: [ok("good")]}
    assert examine(checks, (1, Unseen("no right"))) == [
        ("first", ok("1")),
        ("first", not_checked("no right")),
        ("second", ok("good")),
    ]


FOUND = [("a", ok("good")), ("b", warning("hm\x1b[31m", "wait")), ("c", fault("bad", "fix it")), ("d", not_checked("why"))]


def test_each_finding_is_a_line_and_its_fix_beneath() -> None:
    assert list(lines(FOUND)) == [
        "ok           a: good",
        r"warning      b: hm\x1b[31m",
        "             fix: wait",
        "fault        c: bad",
        "             fix: fix it",
        "not checked  d: why",
    ]


def test_json_has_the_role_the_counts_and_each_check(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report("host", FOUND, as_json=True)
    assert ended.value.code == 1
    shown = json.loads(capfd.readouterr().out)
    assert shown == document("host", FOUND)
    assert (shown["role"], shown["counts"]) == ("host", {"ok": 1, "warning": 1, "fault": 1, "not_checked": 1})
    assert shown["checks"][2] == {"check": "c", "verdict": "fault", "found": "bad", "fix": "fix it"}
    assert shown["checks"][0]["fix"] is None


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((CheckVerdict.OK,), 0),
        ((CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.NOT_CHECKED), 0),
        ((CheckVerdict.OK, CheckVerdict.FAULT), 1),
        ((CheckVerdict.NOT_CHECKED,), 2),
        ((), 2),
    ],
)
def test_the_exit_code_says_whether_there_is_a_fault_and_whether_anything_was_examined(
    verdicts: tuple[CheckVerdict, ...], code: int
) -> None:
    assert exit_code([("check", Finding(verdict, "")) for verdict in verdicts]) == code


def test_what_a_machine_without_packages_needs_is_in_the_standard_library() -> None:
    names = ("findings", "report", "certificates", "agent_socket")
    code = f"import {', '.join(f'beamer.doctor.{name}' for name in names)}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {name.partition(".")[0] for name in done.stdout.split()} & {"rich", "numpy", "cryptography", "typer"}
