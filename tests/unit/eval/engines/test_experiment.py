"""The experiment that disturbs searches: what it expects of them, and that it finds what is not so."""

import json
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.schedule.file import parse
from beamer.studies.halving import Halving
from eval.engines.command import chosen
from eval.engines.experiment import EngineOutcome
from eval.engines.program import FLAWS, TEMPTING
from eval.engines.report import EngineStudy
from eval.engines.search import FULL, SMALL, DisturbedSearch, Sizes

SEARCH = DisturbedSearch(SMALL)


@pytest.mark.parametrize("sizes", [SMALL, FULL], ids=["small", "full"])
def test_the_search_is_one_and_its_flawed_configurations_stand_between_the_others(sizes: Sizes, tmp_path: Path) -> None:
    search = parse(DisturbedSearch(sizes).content(tmp_path), tmp_path)
    names = [trial.name for trial in search.trials]
    assert len(names) == sizes.sound + len(FLAWS)
    assert not {names[0], names[-1]} & set(FLAWS)
    assert len(set(DisturbedSearch(sizes).rates.values())) == sizes.sound, "no two alike"
    assert search.limits.retries == sizes.retries


def test_what_is_expected_is_what_successive_halving_does() -> None:
    search = parse(SEARCH.content(Path("/x")), Path("/x"))
    halving = Halving(search.rungs)
    for name in SEARCH.rates:
        halving.join(name)
    reached = dict.fromkeys(SEARCH.rates, 0)
    halving.close()
    running = list(SEARCH.rates)
    for rung in search.rungs:
        for name in running:
            reached[name] = rung.step
            halving.arrive(name, SEARCH.undisturbed(name, rung.step)[-1][0])
        survivors = halving.survivors(search.rung[rung.name])
        running = survivors or running
    assert SEARCH.targets == reached
    least = min(loss for name in SEARCH.rates for loss, _ in SEARCH.undisturbed(name, SEARCH.targets[name]))
    last = {name: SEARCH.undisturbed(name, search.rungs[-1].step)[-1][0] for name in running}
    assert min(last, key=last.__getitem__) == SEARCH.winner
    assert least > TEMPTING, "a configuration that lies would win if it were believed"


def traced(path: Path, steps: list[tuple[int, str]]) -> Path:
    path.write_text("".join(json.dumps({"iteration": i, "world": 2, "digest": digest}) + "\n" for i, digest in steps))
    return path


def test_steps_that_are_taken_again_are_no_difference_and_all_others_are(tmp_path: Path) -> None:
    name = SEARCH.winner
    sound = [(i, digest) for i, (_, digest) in enumerate(SEARCH.undisturbed(name, SEARCH.targets[name]), 1)]
    trace = tmp_path / "trace"
    assert SEARCH.differences(name, traced(trace, sound)) == []
    assert SEARCH.differences(name, traced(trace, [*sound[:9], *sound[5:]])) == [], "from a checkpoint"
    assert SEARCH.differences(name, traced(trace, [*sound[:3], (4, "another"), *sound[4:]])) == [f"{name}: step 4 is another"]
    assert SEARCH.differences(name, traced(trace, sound[:-2])) == [f"{name}: took no step {len(sound) - 1} and 1 more"]
    beyond = len(sound) + 1
    assert SEARCH.differences(name, traced(trace, [*sound, (beyond, "x")])) == [f"{name}: step {beyond} is another"]
    assert SEARCH.differences(name, tmp_path / "none") == [f"{name}: took no step"]


def test_policies_are_named_or_all() -> None:
    assert chosen("fifo,hermes") == ["fifo", "hermes"]
    assert len(chosen("")) > 10
    with pytest.raises(InputError, match="did you mean 'hermes'"):
        chosen("fifo,hermez")


def test_figures_survive_the_file() -> None:
    study = EngineStudy(SMALL, 3, (EngineOutcome("fifo", 20, 5, 4, 2, 1, 14.5, "c01", ("it differs",)),))
    assert EngineStudy.from_json(json.loads(json.dumps(study.as_json()))) == study
