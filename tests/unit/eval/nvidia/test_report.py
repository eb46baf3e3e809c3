"""What is kept of measurements on a GPU, what the docs show of them, and what is no figure of a GPU."""

import json
from typing import Any

from eval.documents import SECTION
from eval.machine import Machine
from eval.nvidia.report import COMMITTED, MARGIN, NOT_RUN, Kept, NvidiaStudy
from eval.nvidia.site import Card

CARD = Card("NVIDIA H200", 140.4, "580.159", "13.0", "2.11.0")
MACHINE = Machine("a processor", 16, 128.0, "Linux", "3.12", {}, 0.1)
HELD = {
    "held_gib": 6.0,
    "left_gib": 0.0,
    "stop_s": 0.00003,
    "go_on_s": 0.02,
    "lock_s": 0.5,
    "checkpoint_s": 3.0,
    "restore_s": 1.0,
    "unlock_s": 0.5,
    "first_s": 0.04,
    "failures": [],
}
AHEAD = {"starts_s": [2.0, 2.0], "wall_s": 20.0, "failures": []}
TURNS = {
    "trials": 6,
    "gib": 6.0,
    "limit": "16GiB",
    "out": 2,
    "back": 1,
    "starts_s": [9.0],
    "idle_s": 19.0,
    "wall_s": 90.0,
    "failures": [],
}
ALLOWED_S = MARGIN * (2 * 3.5 + 1.5) + 5 * 2.0


def study(is_stand_in: bool = False, **parts: dict[str, Any]) -> NvidiaStudy:
    made = NvidiaStudy(CARD, is_stand_in, MACHINE, {})
    for part, figures in parts.items():
        made = made.having(part, "one" if part != "starts" else "ahead", Kept("key", figures))
    return made


def test_figures_survive_the_file() -> None:
    made = study(checkpoint=HELD, turns=TURNS)
    assert NvidiaStudy.from_json(json.loads(json.dumps(made.as_json()))) == made


def test_the_docs_say_what_the_results_file_says_or_that_there_is_none() -> None:
    text = COMMITTED.path.read_text()
    expected = COMMITTED.sections(COMMITTED.read() if COMMITTED.results.exists() else None)
    sections = {match["name"]: match[0] for match in SECTION.finditer(text) if match["command"] == "nvidia"}
    assert sections.keys() == expected.keys()
    for name, section in sections.items():
        assert expected[name] in section, "run `python -m eval nvidia --docs` on a machine with a GPU"
    assert not COMMITTED.results.exists() or NOT_RUN not in text


def test_only_what_was_run_on_a_gpu_is_committed() -> None:
    assert not COMMITTED.results.exists() or not COMMITTED.read().is_stand_in


def test_a_gpu_has_a_table_of_each_part_that_was_run_and_a_stand_in_has_none() -> None:
    search = {"reached_s": 21.26, "wall_s": 25.0, "failures": []}
    bits = {"iterations": 400, "moves": 3, "last": "3f", "failures": ["another"]}
    parts = {"checkpoint": HELD, "search": search, "bits": bits, "turns": TURNS, "starts": AHEAD}
    assert study(True, **parts).tables() == {}
    text = COMMITTED.sections(study(**parts))["nvidia parts"]
    for row in (
        "| NVIDIA H200 | 140 | 580.159 | 13.0 | 2.11.0 |",
        "| 6.0 | 0.03 | 500 | 3.0 | 2.0 | 1.0 | 6.0 | 40 |",
        "| one | 21.3 | 25.0 |",
        "| 400 | 3 | no |",
        "| ahead | 2.0 | 2.0, 2.0 |",
        f"| 6 | 6 | 16GiB | 2 | 1 | 19.0 | {ALLOWED_S:.1f} | yes |",
    ):
        assert row in text
    assert text.count("\n|---") == 6
    assert COMMITTED.sections(study(checkpoint=HELD))["nvidia parts"].count("\n|---") == 2, "of what was not run there is none"


def test_the_gpu_may_be_idle_for_moves_at_the_rates_of_single_programs_and_for_starts() -> None:
    made = study(checkpoint=HELD, starts=AHEAD, turns=TURNS)
    assert made.allowed_idle_s(TURNS) == ALLOWED_S
    assert made.failures() == []
    late = {**TURNS, "idle_s": ALLOWED_S + 0.1}
    (failure,) = study(checkpoint=HELD, starts=AHEAD, turns=late).failures()
    assert failure == f"turns, one: the GPU was idle for {ALLOWED_S + 0.1:.1f} s, expected at most {ALLOWED_S:.1f} s"
    assert study(True, checkpoint=HELD, starts=AHEAD, turns=late).failures() == [], "a stand-in has no rates"
    assert study(turns=late).failures() == [], "nothing says what moves take"


def test_what_a_measurement_found_is_named_with_it() -> None:
    assert study(bits={"iterations": 4, "failures": ["it differs"]}).failures() == ["bits, one: it differs"]


def test_a_measurement_is_known_by_what_it_was_made_of() -> None:
    made = study(checkpoint=HELD)
    assert made.known("checkpoint", "one", "key")
    assert not made.known("checkpoint", "one", "other")
    assert not made.known("checkpoint", "two", "key")
