"""The engine of a search file: found by its name, with settings that it checks itself; another package may bring it."""

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar, Self

import pytest
from pydantic import model_validator

from beamer.engines.local import LocalEngine
from beamer.engines.simulated import SimulatedCluster
from beamer.errors import InputError
from beamer.gpu.engine import Engine
from beamer.gpu.model import Node
from beamer.schedule.directory import SearchDirectory
from beamer.schedule.engine_settings import ENGINES, POLL_INTERVAL_S, EngineSettings, Launch
from beamer.schedule.file import parse
from beamer.schedule.local_settings import REMOTE_POLL_INTERVAL_S
from tests.support.schedule_inputs import BASE, SEARCH, changed


class Rehearsal(EngineSettings):
    """Another package's engine. pace: a setting of its own, which may change."""

    may_change: ClassVar[tuple[str, ...]] = ("pace",)

    pace: float = 1.0
    strict: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.pace <= 0:
            raise InputError("pace", self.pace, "a number above 0")
        return self

    def open(self, directory: Path, launch: Launch, clock: Callable[[], float]) -> Engine:
        return SimulatedCluster(self.declared, {})


class Overlapping(Rehearsal):
    """Settings with a key of the search's own."""

    retries: int = 5


class Unopened(EngineSettings):
    """Settings without the engine that they are of."""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Register something of this module as the engine `rehearsal` of another package."""

    def register(name: str) -> None:
        entry = EntryPoint("rehearsal", f"{__name__}:{name}", ENGINES.group)
        monkeypatch.setattr(ENGINES, "_others", {**ENGINES._others, "rehearsal": entry})

    return register


def test_the_local_engine_is_registered_and_the_default(tmp_path: Path) -> None:
    plain = parse(SEARCH, BASE)
    assert plain.engine == parse(changed(lambda d: d.update(engine="local")), BASE).engine
    engine = plain.engine.open(tmp_path, lambda job: plain.launch(job, 20, tmp_path), lambda: 0.0)
    assert isinstance(engine, LocalEngine)
    engine.close()
    with SearchDirectory(tmp_path / "dir") as directory:
        directory.start(plain, journal_holds=False)
        assert "engine" not in json.loads((tmp_path / "dir" / "search").read_text())["content"], "0.1.0 knows no such key"
        assert directory.started_search() == plain


def test_nodes_that_are_other_machines_are_looked_at_less_often() -> None:
    assert parse(SEARCH, BASE).engine.poll_interval_s == POLL_INTERVAL_S
    far = {"name": "far", "gpus": 1, "launcher": {"kind": "ssh", "host": "far"}}
    assert parse(changed(lambda d: d["nodes"].append(far)), BASE).engine.poll_interval_s == REMOTE_POLL_INTERVAL_S


@pytest.mark.parametrize("name", ["rehearsl", 3, ["local"], None])
def test_an_unknown_engine_is_answered_with_those_that_are_installed(name: object, registered: Callable[[str], None]) -> None:
    registered("Rehearsal")
    hint = r" \(did you mean 'rehearsal'\?\)" if name == "rehearsl" else ""
    with pytest.raises(InputError, match=f"^engine: got .*, expected one of local, rehearsal{hint}"):
        parse(changed(lambda d: d.update(engine=name)), BASE)


def test_an_engine_has_no_key_of_the_searchs_own(registered: Callable[[str], None]) -> None:
    registered("Overlapping")
    with pytest.raises(
        InputError, match="engine: got 'rehearsal', expected an engine whose settings leave retries to the search"
    ):
        parse(changed(lambda d: d.update(engine="rehearsal")), BASE)


def test_another_packages_engine_has_its_own_settings(registered: Callable[[str], None], tmp_path: Path) -> None:
    registered("Rehearsal")
    search = parse(changed(lambda d: d.update(engine="rehearsal", pace="2")), BASE)
    assert isinstance(search.engine, Rehearsal)
    assert (search.engine.pace, search.content["pace"], search.content["strict"]) == (2.0, 2.0, False)
    assert search.engine.open(tmp_path, lambda job: search.launch(job, 20, tmp_path), lambda: 0.0).nodes() == (Node("n", 2),)
    assert (search.engine.left(tmp_path), search.engine.retire(tmp_path)) == ([], []), "its jobs end with it"
    assert parse(search.content, BASE) == search


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pace": 0}, "^pace: got 0.0, expected a number above 0"),
        ({"pace": "fast"}, "^pace: got 'fast', expected a number"),
        ({"strict": 3}, "^strict: got 3, expected true or false"),
        ({"pacee": 1}, r"^pacee: got 1, expected one of .*\(did you mean 'pace'\?\)"),
        ({"group": "auto"}, "^group: got 'auto', expected one of "),
        (
            {"nodes": [{"name": "n", "gpus": 1, "root": ""}]},
            r"^nodes\[0\]\.root: got '', expected one of cpus, gpus, name",
        ),
        ({"nodes": [{"name": "n", "gpus": 1}] * 2}, "^nodes: got .*, expected names that differ"),
        ({"nodes": [{"name": "n", "gpus": 0}]}, "^job.request: got .*, expected what the nodes have"),
    ],
)
def test_an_engines_settings_are_refused_by_their_names(
    keys: dict[str, object], message: str, registered: Callable[[str], None]
) -> None:
    registered("Rehearsal")
    with pytest.raises(InputError, match=message):
        parse(changed(lambda d: d.update(engine="rehearsal", **keys)), BASE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Absent", "expected a class that can be imported"),
        ("SimulatedCluster", "expected a subclass of beamer.schedule.engine_settings.EngineSettings"),
        ("Unopened", r"expected a class that is not abstract \(it does not define open\)"),
    ],
)
def test_a_package_that_brings_no_engine_is_named(name: str, message: str, registered: Callable[[str], None]) -> None:
    registered(name)
    with pytest.raises(InputError, match=message) as caught:
        parse(changed(lambda d: d.update(engine="rehearsal")), BASE)
    assert caught.value.field == "entry point beamer.engines:rehearsal"


def test_a_search_goes_on_with_its_engine_and_what_may_change_of_it(registered: Callable[[str], None], tmp_path: Path) -> None:
    registered("Rehearsal")

    def with_keys(**keys: object) -> dict[str, object]:
        return changed(lambda d: d.update(engine="rehearsal", **keys))

    with SearchDirectory(tmp_path) as directory:
        directory.start(parse(with_keys(), BASE), journal_holds=False)
        directory.start(directory.named(parse(with_keys(pace=3), BASE)), journal_holds=True)
        with pytest.raises(InputError, match=r"^strict: got True, expected false, with which the search in .* was started"):
            directory.start(parse(with_keys(strict=True), BASE), journal_holds=True)
        other = directory.named(parse(SEARCH, BASE))
        with pytest.raises(InputError, match=r"^engine: got 'local', expected .rehearsal., with which the search in .* was"):
            directory.start(other, journal_holds=True)


def test_modules_are_preloaded_by_engines_that_can(registered: Callable[[str], None]) -> None:
    registered("Rehearsal")
    asked = changed(lambda d: d["job"].update(preload=["torch"]))
    jobs = parse(asked, BASE).jobs.values()
    assert {launch.preload for job in jobs for launch in job.launches.values()} == {("torch",)}
    with pytest.raises(
        InputError, match=r"job\.preload: got \['torch'\], expected no modules, as the engine rehearsal preloads none"
    ):
        parse({**asked, "engine": "rehearsal"}, BASE)
