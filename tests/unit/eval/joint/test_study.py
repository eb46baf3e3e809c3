"""The study of both levels: its config, a run of a pair of policies, and which pairs its table compares."""

from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from eval.joint.command import JOINT
from eval.joint.report import JointStudy
from eval.joint.runs import JointConfig, JointVariant, run_pair, scenario

SMALL = {"searches": 4, "trials": (2, 4), "arrivals_s": 5.0, "iterations": 4}


@pytest.fixture(scope="module")
def config() -> JointConfig:
    return JOINT.read_config()


def test_every_search_of_every_cell_can_be_drawn(config: JointConfig) -> None:
    for name in [*config.cells, *config.cells_of_parts]:
        cell = config.cell(name)
        drawn = scenario(cell, config.first_seed)
        assert len(drawn.searches) == cell.searches
        assert drawn == scenario(cell, config.first_seed)
        assert drawn != scenario(cell, config.first_seed + 1)


def test_pairs_meet_the_same_searches_and_none_ends_before_the_bound(config: JointConfig) -> None:
    cell = config.base.model_copy(update=SMALL)
    runs = [run_pair(cell, gpu, network, 5) for gpu in ("fifo", "convergence") for network in ("fair", "beamer")]
    assert len({run["bound_s"] for run in runs}) == 1
    assert len({run["search_s"] for run in runs}) > 1
    assert min(run["search_s"] for run in runs) >= runs[0]["bound_s"] > 0


def test_a_variant_changes_the_run_that_it_is_of(config: JointConfig) -> None:
    cell = config.cell("oversubscribed").model_copy(update=SMALL)  # with two paths between leaves, one of which may fail
    plain = run_pair(cell, "fifo", "beamer", 5)
    assert run_pair(cell, "fifo", "beamer", 5, JointVariant()) == plain
    for variant in (
        JointVariant(bytes_off=3.0),
        JointVariant(queues=2),
        JointVariant(cable=(0.0, "l1", "s1")),
        JointVariant(unregistered=0.1),
    ):
        assert run_pair(cell, "fifo", "beamer", 5, variant) != plain


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"cells": ["fixd sizes"]}, r"parts.cells: got 'fixd sizes'.*did you mean 'fixed sizes'"),
        ({"pairs": ["fifo + bemer"]}, "did you mean 'beamer'"),
        ({"pairs": ["fifi + beamer"]}, "did you mean 'fifo'"),
        ({"variants": {"one": {"parts": ["placemen"]}}}, r"parts.variants.one.parts.*did you mean 'placement'"),
    ],
)
def test_what_a_table_names_has_to_be_there(config: JointConfig, change: dict[str, Any], named: str) -> None:
    content = config.model_dump()
    with pytest.raises(ValidationError, match=named):
        JointConfig.model_validate(content | {"parts": content["parts"] | change})


def test_both_levels_are_compared_with_the_better_single_one(config: JointConfig, capsys: pytest.CaptureFixture[str]) -> None:
    search_s = {"fifo + fair": 100.0, "fifo + beamer": 80.0, "optimus + fair": 50.0, "optimus + beamer": 40.0}
    names = {"gpu_policies": ("fifo", "optimus"), "network_policies": ("fair", "beamer")}
    small = config.model_copy(update={**names, "cells": {"one": {}}})
    runs = {who: [{"search_s": seconds, "bound_s": 20.0, "idle": 0.1}] * 2 for who, seconds in search_s.items()}
    Console(width=200).print(*JointStudy(small, {"one": runs}).tables()["levels"])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "one" in line and "fifo" in line]
    for part in ("fifo + beamer", "0.80", "optimus + fair", "0.50", "optimus + beamer", "0.40", "0.80", "2.00"):
        assert part in row


def test_pairs_that_know_what_sizes_cost_are_beside_the_better_single_one(
    config: JointConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    search_s = {"fifo + fair": 100.0, "fifo + beamer": 90.0, "elastic + fair": 60.0, "elastic + beamer": 50.0}
    search_s |= {"elastic + beamer, resizing": 30.0, "convergence + beamer, resizing": 45.0}
    names = {"gpu_policies": ("fifo", "elastic"), "network_policies": ("fair", "beamer")}
    (cell, *_) = config.resizing.cells
    runs = {
        who: [{"search_s": seconds, "bound_s": 20.0, "idle": 0.1, "network_gb": 1.0}] * 2 for who, seconds in search_s.items()
    }
    runs["convergence + beamer"] = runs["elastic + beamer"]
    tables = JointStudy(config.model_copy(update={**names, "cells": {cell: {}}}), {cell: runs}).tables()
    Console(width=260).print(*tables["levels"], *tables["resizing"])
    printed = capsys.readouterr().out.splitlines()
    (row,) = [line for line in printed if cell in line and "fifo" in line]
    best, to_neither, to_single = row.split("│")[-4:-1]
    assert (best.strip(), to_neither.split()[0], to_single.split()[0]) == ("elastic + beamer", "0.30", "0.50")
    (row,) = [line for line in printed if "resizing" in line and "0.60" in line]
    assert "0.90" in row, "of each pair without"


def test_the_committed_figures_are_of_the_config(config: JointConfig) -> None:
    assert JOINT.committed.read().config == config, "run `python -m eval joint --docs`"
