"""Every file of examples/, run by the command that examples/README.md has for it, in a folder of its own."""

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

from beamer.client import RUN_VARIABLE
from beamer.decision.policy import Policy
from beamer.decision.registry import PolicyRegistry
from beamer.gpu.policy import GpuPolicy
from beamer.network.policy import NetworkPolicy
from beamer.studies.model import StageStatus, StudyStatus, TrialStatus
from beamer.testing.gpu_policies import GPU_POLICY_CHECKS
from beamer.testing.network_policies import NETWORK_POLICY_CHECKS
from beamer.workloads.scenario import load
from tests.processes.site import of_directory, until
from tests.support.checkout import ROOT
from tests.support.documented import blocks_of, register
from tests.support.example_packages import install
from tests.support.served_controller import served
from topologies import leaf_spine

EXAMPLES = ROOT / "examples"
ROW = re.compile(r"^\| \[([^]]+)\]\(\1\) \|.*\| `([^`]+)` \|$", re.MULTILINE)
COMMANDS: Mapping[str, str] = dict(ROW.findall((EXAMPLES / "README.md").read_text("utf-8")))
PROGRAMS = {"python": [sys.executable], "beamer": [sys.executable, "-m", "beamer.cli"]}
NOTHING: Mapping[str, str] = MappingProxyType({})
TIMEOUT_S = 240
# tests/ray/test_callback_example.py, where there is a cluster; tests/processes/test_torch.py, where there is a controller
ELSEWHERE = {"ray_tune_asha.py", "torch_ddp.py"}

P = TypeVar("P", bound=Policy[Any])
Test = TypeVar("Test", bound=Callable[..., None])

covered: set[str] = set()


def covers(name: str) -> Callable[[Test], Test]:
    """Note that a test runs an example."""
    covered.add(name)
    return lambda test: test


def head(name: str) -> str:
    """Return the docstring or the comment that an example begins with; of a package, its `pyproject.toml`."""
    path = EXAMPLES / name
    text = (path / "pyproject.toml" if path.is_dir() else path).read_text("utf-8")
    if name.endswith(".py"):
        return ast.get_docstring(ast.parse(text)) or ""
    return "".join(re.findall(r"\A(?:#.*\n)*", text))


class Folder:
    """A folder with a copy of the examples, in which their commands are run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.examples = path / "examples"
        (path / "runs").mkdir()
        shutil.copytree(EXAMPLES, self.examples, ignore=shutil.ignore_patterns("__pycache__"))

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Return what the README has for an example: a program with its arguments, and variables that it sets.

        A package's is what comes after its installation.
        """
        words = shlex.split(COMMANDS[name].partition("&& ")[2] or COMMANDS[name])
        variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        program, *arguments = words[len(variables) :]
        return [*PROGRAMS[program], *arguments], variables

    def run(self, name: str, *more: str, variables: Mapping[str, str] = NOTHING) -> str:
        """Run an example, which must succeed without a warning; return what it prints. variables: other values of its own."""
        command, own = self.command(name)
        assert variables.keys() == own.keys()
        kept = {key: value for key, value in os.environ.items() if key != RUN_VARIABLE}
        done = subprocess.run(
            [*command, *more], cwd=self.path, env={**kept, **variables}, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        # A program that is stopped while Python starts has no handler of signals yet: that is said, and loses no step.
        unexpected = [line for line in done.stderr.splitlines() if "ranks exited with [-15] when asked to stop" not in line]
        assert not unexpected, done.stderr
        return done.stdout

    def figures(self, name: str) -> Any:
        """Run an example and return what it writes with `--json`."""
        self.run(name, "--json", "figures.json")
        return json.loads((self.path / "figures.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    yield Folder(tmp_path)
    if of_directory(tmp_path):  # of a search that has failed here
        for directory in tmp_path.glob("runs/*"):
            subprocess.run([*PROGRAMS["beamer"], "schedule", "--dir", str(directory), "--kill"], timeout=TIMEOUT_S)
    until(lambda: not of_directory(tmp_path), "all processes to be gone")


def test_every_example_is_in_the_table_and_has_a_test() -> None:
    files = {path.name for path in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}
    assert files == COMMANDS.keys()
    assert files == covered | ELSEWHERE


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_begins_with_the_command_of_the_table(name: str) -> None:
    assert COMMANDS[name] in head(name)
    assert name in COMMANDS[name]


@covers("register_stages.py")
def test_the_script_of_a_tuner_registers_its_stages(folder: Folder) -> None:
    with served(leaf_spine.build(), folder.path / "journal.db") as beamer:
        said = folder.run("register_stages.py", variables={"BEAMER_URL": beamer.url})
        study = beamer.ask(lambda runtime: runtime.tracker.studies["halving"])
    assert [line.partition(":")[0] for line in said.splitlines()] == [f"rung{i} is done" for i in range(3)]
    assert study.status is StudyStatus.ENDED
    assert {name: (stage.status, [*stage.targets.values()]) for name, stage in study.stages.items()} == {
        "rung0": (StageStatus.DONE, [10, 10, 10, 10]),
        "rung1": (StageStatus.DONE, [20, 20]),
        "rung2": (StageStatus.DONE, [40]),
    }
    assert {name: (trial.status, trial.done) for name, trial in study.trials.items()} == {
        "rate-0.01": (TrialStatus.KILLED, 10),
        "rate-0.02": (TrialStatus.KILLED, 10),
        "rate-0.05": (TrialStatus.KILLED, 20),
        "rate-0.1": (TrialStatus.FINISHED, 40),
    }
    assert study.trials["rate-0.1"].loss == pytest.approx(0.9**40)


@covers("optuna_pruning.py")
def test_the_search_by_optuna_runs_without_beamer(folder: Folder) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    assert folder.run("optuna_pruning.py").startswith("20 trials, the best has ")


@covers("search.yaml")
def test_the_search_finds_the_best_rate(folder: Folder) -> None:
    found = folder.figures("search.yaml")
    assert {row["name"]: (row["status"], row["iterations"]) for row in found["configurations"]} == {
        "rate-0.01": ("killed", 10),
        "rate-0.02": ("killed", 10),
        "rate-0.05": ("killed", 20),
        "rate-0.1": ("finished", 40),
    }
    best = found["configurations"][0]
    assert found["best"] == best["name"] == "rate-0.1"
    assert best["loss"] == pytest.approx(0.8**80)
    (output,) = folder.path.glob("runs/descent/jobs/*rate-0.1-*/*/output")
    iterations = [json.loads(line)["iteration"] for line in output.read_text().splitlines()]
    assert iterations == list(range(1, 41)), "every rung goes on from the checkpoint of the one before"


@covers("search_tpe.yaml")
def test_the_search_that_draws_its_rates_finds_a_good_one(folder: Folder) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    found = folder.figures("search_tpe.yaml")
    rows = {row["name"]: row for row in found["configurations"]}
    assert rows.keys() == {f"trial-{number}" for number in range(12)}
    assert len([row for row in rows.values() if row["iterations"] == 40]) == 4
    best = rows[found["best"]]
    assert best["values"]["rate"] == max(row["values"]["rate"] for row in rows.values()), "a larger rate descends faster"
    assert best["loss"] == pytest.approx((1 - 2 * best["values"]["rate"]) ** 80)


@covers("descent.py")
def test_the_program_of_the_search_stops_with_a_checkpoint(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEAMER_CHECKPOINT", raising=False)
    lines = [json.loads(line) for line in folder.run("descent.py").splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["loss"] for line in lines] == pytest.approx([0.8 ** (2 * i) for i in range(1, 6)])

    checkpoint = folder.path / "checkpoint"
    monkeypatch.setenv("BEAMER_CHECKPOINT", str(checkpoint))
    command, _ = folder.command("descent.py")
    with subprocess.Popen([*command, "--iterations", "1000"], cwd=folder.path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        others = process.stdout.read()  # `communicate` would lose what was read beyond the first line.
    assert process.returncode == 0
    done = len((first + others).splitlines())
    assert json.loads(checkpoint.read_text())[1] == done < 1000
    again = folder.run("descent.py", "--iterations", str(done + 2))
    assert [json.loads(line)["iteration"] for line in again.splitlines()] == [done + 1, done + 2]


@covers("scenario.yaml")
def test_the_scenario_compares_two_policies(folder: Folder) -> None:
    fair, ordered = folder.figures("scenario.yaml")["runs"]
    assert (fair["policy"], ordered["policy"]) == ("fair", "beamer")
    assert [(stage["study"], stage["stage"]) for stage in ordered["stages"]] == [
        (study, rung) for study in ("large", "small") for rung in ("rung0", "rung1")
    ]
    assert ordered["makespans_s"]["small"] < 0.6 * fair["makespans_s"]["small"], "it need not wait for the large one"
    assert ordered["makespans_s"]["large"] <= fair["makespans_s"]["large"]


@pytest.fixture
def packages(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory whose packages the commands find."""
    directory = folder.path / "packages"
    monkeypatch.setenv("PYTHONPATH", f"{directory}:{ROOT}")
    return directory


@covers("engine")
def test_the_engine_is_installed_and_runs_a_search_to_its_end(folder: Folder, packages: Path) -> None:
    assert COMMANDS["engine"].startswith("pip install ./examples/engine && ")
    install("engine", packages)
    found = folder.figures("engine")
    assert {row["name"]: (row["status"], row["iterations"]) for row in found["configurations"]} == {
        "rate-0.01": ("killed", 10),
        "rate-0.02": ("killed", 10),
        "rate-0.05": ("killed", 20),
        "rate-0.1": ("finished", 40),
    }
    assert found["best"] == "rate-0.1"
    (output,) = folder.path.glob("runs/one-process/jobs/*rate-0.1.output")
    iterations = [json.loads(line)["iteration"] for line in output.read_text().splitlines()]
    assert iterations == list(range(1, 41)), "every rung goes on from the checkpoint of the one before"


@covers("search_kind")
def test_the_kind_of_search_is_installed_and_drawn_with(folder: Folder, packages: Path) -> None:
    assert COMMANDS["search_kind"].startswith("pip install ./examples/search_kind && ")
    install("search_kind", packages)
    folder.run("search_kind")
    drawn = load(folder.path / "runs" / "screened.yaml")
    assert {tuple((rung.trials, rung.step) for rung in study.rungs) for study in drawn.studies} == {((16, 4), (3, 36))}


@pytest.mark.parametrize(("section", "name"), [("Your own engine", "engine"), ("Your own kind of search", "search_kind")])
def test_the_documentation_quotes_a_package(section: str, name: str) -> None:
    files = [path.read_text("utf-8") for path in (EXAMPLES / name).iterdir() if path.is_file()]
    quoted = [text for language, text in blocks_of(section) if language != "sh"]
    assert len(quoted) > 1
    assert [text for text in quoted if not any(text in file for file in files)] == []


def brought(folder: Folder, name: str, seam: type[P], monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> P:
    """Return the policy that an example's entry point brings, where a package has it."""
    text = head(name)
    found = tomllib.loads(text[text.index("[project.entry-points") :])
    ((group, entries),) = found["project"]["entry-points"].items()
    register(name, group, entries, folder.examples)
    monkeypatch.syspath_prepend(str(folder.examples))
    (chosen,) = entries
    return PolicyRegistry(group, seam, ()).make(chosen, **parameters)


@covers("network_policy.py")
def test_the_network_policy_conforms_and_is_found(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    said = folder.run("network_policy.py").splitlines()
    assert said == [f"{check.__name__}: passed" for check in NETWORK_POLICY_CHECKS]
    policy = brought(folder, "network_policy.py", NetworkPolicy, monkeypatch)  # type: ignore[type-abstract]  # the seam itself
    assert f"--policies fair,{policy.name}`" in head("network_policy.py")


@covers("gpu_policy.py")
def test_the_gpu_policy_conforms_and_is_found(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    said = folder.run("gpu_policy.py").splitlines()
    assert said == [f"{check.__name__}: passed" for check in GPU_POLICY_CHECKS]
    policy = brought(folder, "gpu_policy.py", GpuPolicy, monkeypatch, tries=3)  # type: ignore[type-abstract]  # the seam itself
    assert policy.tries == 3  # type: ignore[attr-defined]
    assert f"--policy {policy.name} --set tries=3`" in head("gpu_policy.py")
