"""The sections of the docs are those of the committed figures of the studies that they are of."""

import json
import re
from typing import Any

import pytest
from rich.table import Table

from beamer.errors import InputError
from beamer.gpu.policies import GPU_POLICIES
from eval.committed import FOLDER, Committed
from eval.documents import SECTION, rewritten
from eval.engines.report import COMMITTED as ENGINES
from eval.faults.catalogue import FAULTS as KNOWN_FAULTS
from eval.faults.report import COMMITTED as FAULTS
from eval.rates.command import RATES as RATES_EXPERIMENT
from eval.studies import STUDIES
from eval.trials.command import TRIALS

RATES = RATES_EXPERIMENT.committed

each_study = pytest.mark.parametrize("committed", STUDIES, ids=lambda one: one.command)


@each_study
def test_the_docs_are_what_the_results_file_says(committed: Committed[Any]) -> None:
    text = committed.path.read_text()
    assert committed.current(text, committed.read()) == text, f"run `python -m eval {committed.command} --docs`"


@each_study
def test_every_table_of_a_study_is_in_its_document_and_in_no_other(committed: Committed[Any]) -> None:
    for path in FOLDER.rglob("*.md"):
        sections = [match for match in SECTION.finditer(path.read_text()) if match["command"] == committed.command]
        names = sorted(match["name"] for match in sections)
        here = path == committed.path
        assert names == (sorted(f"{committed.command} {name}" for name in committed.read().tables()) if here else [])


def test_no_table_of_what_was_tried_is_written_by_hand() -> None:
    text = SECTION.sub("", TRIALS.committed.path.read_text())
    tried = [part for part in re.split(r"^##+ ", text, flags=re.MULTILINE) if "tried" in part.partition("\n")[0]]
    assert tried, "nothing was read"
    assert not [line for part in tried for line in part.splitlines() if line.startswith("|")]


def test_nothing_was_lost_by_any_fault() -> None:
    outcomes = FAULTS.read().outcomes
    assert outcomes.keys() <= KNOWN_FAULTS.keys(), "one that there is no more"
    assert len(outcomes) > 10
    assert {name: one for name, one in outcomes.items() if not one.is_good} == {}


def test_every_disturbed_search_ended_as_if_it_had_not_been() -> None:
    study = ENGINES.read()
    assert {"fifo", "convergence"} <= {one.policy for one in study.outcomes} <= set(GPU_POLICIES)
    assert {one.policy: one.failures for one in study.outcomes if one.failures} == {}
    assert min(one.launches for one in study.outcomes) >= 200
    assert {one.killed for one in study.outcomes} == {study.sizes.kills} == {50}
    assert min(one.taken for one in study.outcomes) > 0
    assert len({one.winner for one in study.outcomes}) == 1


def test_the_sections_of_other_commands_stay_and_unknown_ones_are_refused() -> None:
    text = "<!-- begin: eval rates mean -->\nold\n<!-- end -->\n<!-- begin: eval trials index -->\nold\n<!-- end -->\n"
    assert rewritten(text, {"rates mean": "new"}) == text.replace("old", "\nnew", 1)
    with pytest.raises(InputError, match="rates mean"):
        rewritten(text, {"rates men": "new"})


def test_docs_of_less_than_the_committed_config_are_refused() -> None:
    with pytest.raises(InputError, match="--docs"):
        RATES.output(docs=True, whole=False, path=FOLDER / "figures.json")
    assert RATES.output(docs=True, whole=True, path=FOLDER / "figures.json") == RATES.results
    assert RATES.output(docs=False, whole=False, path=FOLDER / "figures.json") == FOLDER / "figures.json"


def test_a_study_without_figures_or_of_another_config_is_not_known(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.committed.RESULTS", tmp_path)
    assert RATES.known() is None
    document = {"config": {"sedes": 3}, "runs": {}}
    RATES.results.write_text(json.dumps(document))
    assert RATES.known() is None
    monkeypatch.undo()
    assert RATES.known() == RATES.read()


def test_a_study_is_read_as_it_was_written(tmp_path: Any) -> None:
    study = RATES.read()
    RATES.write(study, tmp_path / "new" / "rates.json")
    again = RATES.read(tmp_path / "new" / "rates.json")
    assert again == study
    assert all(isinstance(table, Table) for tables in again.tables().values() for table in tables)
