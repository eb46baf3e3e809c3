"""Each extra, installed alone: its commands run, and others name the extra that they lack."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

import beamer.cli
import controller.cli
import hostagent.cli
from beamer.lazy_commands import DISTRIBUTION, Command
from tests.packaging.builds import PATIENCE_S, ROOT, Environment, checked
from tests.support.tiers import long
from topologies.single import build

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)

BASE_BYTES = 60_000_000
EXTRAS: Mapping[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PARTS = ("core", "dev", "all")  # of other extras, of a checkout, and what has nothing of its own
MODULES: Mapping[str | None, list[str]] = {  # the modules and packages, with all they hold, that an extra suffices to import
    None: ["beamer.client", "beamer.lazy_commands"],
    "agent": ["hostagent"],
    "controller": ["controller", "beamer.network", "beamer.studies"],
    "digits": ["topologies.emulation.digits_training"],
    "emulation": ["topologies", "controller", "hostagent"],
    "gpu": ["beamer.schedule", "beamer.gpu", "beamer.engines.local", "beamer.engines.simulated", "beamer.studies"],
    "inspect": ["beamer.inspect", "beamer.client"],
    "identity": ["controller.commands.certificates", "controller.commands.token"],
    "nvidia": ["beamer.nvidia"],
    "optuna": ["beamer.integrations.optuna", "beamer.integrations.optuna_copy"],
    "parquet": ["beamer.report"],
    "postgresql": ["controller", "beamer.studies"],
    "ray": ["beamer.engines.ray_tune", "beamer.integrations.ray_tune.callback"],
    "sim": ["beamer.sim", "beamer.network", "beamer.workloads", "beamer.report", "beamer.bounds"],
    "testing": ["beamer.testing"],
    "torch": ["beamer.integrations.torch"],
}
ALWAYS = {None, "gpu"}  # nothing else, and the smallest with both levels
LARGE = {"ray": "ray"}  # the module that an extra brings, by extra
OF_OTHERS = ("optuna_", "ray_tune_", "torch_")  # how the names of examples begin that need another extra than `gpu`
# PyTorch once more takes minutes: tests/emulation/test_digits.py and tests/processes/test_torch.py use what is installed here.
ELSEWHERE = {"digits", "torch"}
IMPORT = """
import pkgutil, sys
from importlib import import_module
for name in sys.argv[1:]:
    module = import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        if ".migrations." not in found.name and not found.name.endswith(".digits_training"):  # Alembic's, another extra's
            import_module(found.name)
"""
HELP = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
shown = []
for program, *name in json.loads(sys.argv[1]):
    (entry,) = entry_points(group="console_scripts", name=program)
    sys.argv, out, err = [program, *name, "--help"], io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            entry.load()()
            code = 0
        except SystemExit as ended:
            code = ended.code
    shown.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(shown))
"""  # of every command, in one process: that each program starts as one is seen beside it
TYPED = """
from beamer.client import Client
from beamer.gpu.model import Request
from topologies import single

single.build(hosts="two")  # type: ignore[arg-type]  # of what is not typed, each of these comments would be an error
Request(iterations="many")  # type: ignore[arg-type]
with Client() as client:
    client.study("s").trial("t").progress("far")  # type: ignore[arg-type]
"""
COMMANDS: Mapping[tuple[str, ...], Command] = {
    **{("beamer", *name.split()): command for name, command in beamer.cli.COMMANDS.items()},
    ("beamer-controller",): controller.cli.SERVE,
    ("beamer-hostagent",): hostagent.cli.SERVE,
}


def included(extra: str | None) -> set[str]:
    """Return an extra with all others that it asks for."""
    if extra is None:
        return set()
    own = re.compile(rf"{DISTRIBUTION}\[(.*)\]")
    parts = {part for text in EXTRAS[extra] if (match := own.fullmatch(text)) for part in match[1].split(",")}
    return {extra}.union(*map(included, parts))


@pytest.fixture(
    scope="module",
    params=[extra if extra in ALWAYS else long(extra)[0] for extra in MODULES if extra not in ELSEWHERE],
    ids=lambda extra: extra or "base",
)
def environment(
    request: pytest.FixtureRequest,
    distributions: tuple[Path, Path],
    index: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Environment]:
    if request.param in LARGE and importlib.util.find_spec(LARGE[request.param]) is None:
        pytest.skip(f"{LARGE[request.param]}, a large download, is not installed here either")
    path = tmp_path_factory.getbasetemp() / "environment"  # in one place, one after the other: bytecode is compiled once
    made = Environment.make(path, request.param, distributions[1], index)
    yield made
    made.remove()


def test_every_extra_is_tested() -> None:
    assert {*MODULES, *PARTS} == {None, *EXTRAS}
    assert {command.extra for command in COMMANDS.values()} <= set(EXTRAS)


def test_its_commands_run_and_others_name_theirs(environment: Environment, tmp_path: Path) -> None:
    asked = [(program, *name) for program, *name in COMMANDS]
    shown = json.loads(environment.checked("python", "-c", HELP, json.dumps(asked), cwd=tmp_path))
    for ((program, *name), command), (code, out, err) in zip(COMMANDS.items(), shown, strict=True):
        if command.extra in included(environment.extra):
            assert (code, err) == (0, ""), out
        elif code or environment.extra is None:  # The packages of another extra may suffice for the help.
            line = rf"{program}: {' '.join(name) or program} needs packages that are not installed \(\w+\); install them: "
            assert code == 2
            assert re.fullmatch(line + re.escape(f"pip install '{DISTRIBUTION}[{command.extra}]'") + "\n", err)
            assert out == ""


def test_every_command_line_lists_its_commands_and_has_a_version(environment: Environment, tmp_path: Path) -> None:
    shown = environment.checked("beamer", "--help", cwd=tmp_path)
    assert all(f"  {name} " in shown for name in beamer.cli.COMMANDS)
    for program in ("beamer", "beamer-controller", "beamer-hostagent"):
        assert re.fullmatch(rf"{program} \d+\.\d+\.\d+(\.dev\d+)?\n", environment.checked(program, "--version", cwd=tmp_path))


def test_it_suffices_for_its_modules(environment: Environment, tmp_path: Path) -> None:
    environment.checked("python", "-c", IMPORT, *MODULES[environment.extra], cwd=tmp_path)


def test_it_does_what_it_is_for(environment: Environment, tmp_path: Path) -> None:
    if environment.extra in USES:
        USES[environment.extra](environment, tmp_path)


@pytest.mark.long
def test_code_of_others_is_checked_against_its_types(environment: Environment, tmp_path: Path) -> None:
    if environment.extra == "gpu":  # the smallest one with both levels
        (tmp_path / "misuse.py").write_text(TYPED)
        for path in (ROOT / "examples").glob("*.py"):
            if not path.name.startswith(OF_OTHERS):
                shutil.copy(path, tmp_path)
        python = environment.path / "bin" / "python"
        options = ["--strict", "--config-file=", "--cache-dir", os.devnull, "--python-executable", str(python)]
        checked([sys.executable, "-m", "mypy", *options, "."], tmp_path)


@pytest.mark.long  # it compiles the kernels once more
def test_an_installed_simulator_runs_to_the_end(environment: Environment, tmp_path: Path) -> None:
    if environment.extra == "sim":
        use_simulator_to_the_end(environment, tmp_path)


@pytest.mark.long  # it compiles the kernels once more
def test_an_installed_controller_serves_under_its_default_policy(environment: Environment, tmp_path: Path) -> None:
    if environment.extra == "controller":
        start_controller(environment, tmp_path)


def use_client(environment: Environment, tmp_path: Path) -> None:
    assert environment.installed_bytes <= BASE_BYTES
    environment.checked("python", "-c", "from beamer.client import Client; Client().close()", cwd=tmp_path)


def use_simulator(environment: Environment, tmp_path: Path) -> None:
    drawn = ["--studies", "1", "--search", "random", "--trials", "2", "--set", "batch=2", "--iterations", "2", "--hosts", "8"]
    environment.checked("beamer", "workload", "--out", "w.yaml", *drawn, cwd=tmp_path)
    refused = environment.run("beamer", "simulate", "w.yaml", "--policies", "nope", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def use_simulator_to_the_end(environment: Environment, tmp_path: Path) -> None:
    use_simulator(environment, tmp_path)
    outputs = ["--json", "f.json", "--plot", "p.png"]
    environment.checked("beamer", "simulate", "w.yaml", "--policies", "fair", *outputs, cwd=tmp_path)
    assert [run["policy"] for run in json.loads((tmp_path / "f.json").read_text())["runs"]] == ["fair"]
    assert (tmp_path / "p.png").stat().st_size > 1000


def use_parquet(environment: Environment, tmp_path: Path) -> None:
    imports = "from pathlib import Path; from beamer.report.row_files import write_rows"
    code = f"{imports}; write_rows([{{'cct_s': 1.5}}], Path('t.parquet'))"
    environment.checked("python", "-c", code, cwd=tmp_path)  # not by a command: that would compile the simulator once more
    assert (tmp_path / "t.parquet").read_bytes()[:4] == b"PAR1"


def use_postgresql(environment: Environment, tmp_path: Path) -> None:
    code = "from beamer.studies.journal.store import Journal; Journal('postgresql+psycopg:///j?host=/nowhere')"
    done = environment.run("python", "-c", code, cwd=tmp_path)
    assert "SilentError: the journal postgresql+psycopg:///j?host=/nowhere cannot be read and written" in done.stderr


def use_gpu_scheduling(environment: Environment, tmp_path: Path) -> None:
    command = ["{python}", "-m", "beamer.testing.trainer", "--iterations", "5", "--learning-rate", "{lr}"]
    search = {
        "name": "s",
        "nodes": [{"name": "here", "gpus": 1}],
        "job": {"command": command, "request": {"batch_size": 64, "iterations": 5}},
        "grid": {"lr": [0.01, 0.1]},
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(search))
    environment.checked("beamer", "schedule", "search.yaml", "--dir", "run", "--json", "f.json", cwd=tmp_path)
    assert (tmp_path / "f.json").exists()


def use_controller(environment: Environment, tmp_path: Path) -> None:
    start_controller(environment, tmp_path, "--policy=fifo")  # This policy needs no compiled kernels.


def start_controller(environment: Environment, tmp_path: Path, *more: str) -> None:
    (tmp_path / "fabric.json").write_text(json.dumps(build(hosts=2).to_dict()))
    options = ["--fabric=fabric.json", "--journal=sqlite:///journal.db", "--http=127.0.0.1:0", "--openflow=127.0.0.1:0"]
    command = [environment.path / "bin" / "beamer-controller", *options, *more]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "serving" in line:
                    break
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0, "".join(lines)
        finally:
            process.kill()


def use_agent(environment: Environment, tmp_path: Path) -> None:
    done = environment.run("beamer-hostagent", "--name", "h1", "--remove", "--state-dir", "state", cwd=tmp_path)
    if os.geteuid() == 0:  # there is nothing to remove
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "not running as root" in done.stderr


USES: Mapping[str | None, Callable[[Environment, Path], None]] = {
    None: use_client,
    "agent": use_agent,
    "controller": use_controller,
    "gpu": use_gpu_scheduling,
    "parquet": use_parquet,
    "postgresql": use_postgresql,
    "sim": use_simulator,
}
