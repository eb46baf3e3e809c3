"""The command line: bad input ends in one clear line and exit code 2."""

import gc
import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import beamer.cli
import controller.cli
import eval.__main__
from beamer.errors import BeamerError, EmulationError, EngineError, InputError, PlatformError
from beamer.lazy_commands import DISTRIBUTION, Command, errors_as_exit_codes
from beamer.output_files import check_outputs
from beamer.workloads.joint import shipped as shipped_joint
from beamer.workloads.scenario import shipped
from hostagent.command import serve
from tests.support.checkout import ROOT
from tests.support.commands import run_here
from topologies.emulation.platform import require, require_congestion_control


def _can_emulate() -> bool:
    try:
        require()
    except PlatformError:
        return False
    return True


each_command = pytest.mark.parametrize("command", ["simulate", "emulate"])
each_command_that_runs = pytest.mark.parametrize(
    "command",
    [
        "simulate",
        pytest.param("emulate", marks=pytest.mark.skipif(not _can_emulate(), reason="what is missing for it is named first")),
    ],
)


def _run(*command: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, env=env)


def _beamer(*arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return run_here(beamer.cli.main, *arguments, env=env)


def _refused(done: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_that_cannot_be_written_is_said_without_a_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "beamer.cli", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            cwd=ROOT,
        )
    assert done.returncode == 1
    assert done.stderr == "beamer: what it has to say or to keep cannot be written: No space left on device\n"


@pytest.mark.parametrize(("program", "option", "value", "expected"), [
    ("beamer", "--seed", "1e3", "a whole number"), ("controller", "--grace", "abc", "a number"),
])  # fmt: skip
def test_an_option_says_what_it_expects(program: str, option: str, value: str, expected: str) -> None:
    done = _beamer("schedule", option, value) if program == "beamer" else run_here(controller.cli.main, option, value)
    assert done.returncode == 2
    assert f"Invalid value for '{option}': got '{value}', expected {expected}" in done.stderr


@pytest.mark.parametrize(("policy", "fit"), [("aalo", "greedy and madd do"), ("fifo-lm", "classes with unlimited queues does")])
@each_command
def test_a_policy_that_needs_what_no_live_system_knows_is_refused(command: str, policy: str, fit: str) -> None:
    _refused(_beamer(command, "--policies", f"fair,{policy}"), "policy", f"'{policy}'", "what coflows in flight have sent", fit)


@each_command
def test_an_unknown_policy_is_named_and_leaves_nothing_behind(command: str, tmp_path: Path) -> None:
    outputs = ("--json", str(tmp_path / "new" / "f.json"), "--plot", str(tmp_path / "p.png"))
    _refused(_beamer(command, "--policies", "fair,beemer", *outputs), "policy", "'beemer'", "did you mean 'beamer'")
    assert not list(tmp_path.iterdir())


@each_command
def test_an_unknown_mode_is_named(command: str) -> None:
    _refused(_beamer(command, "--mode", "hybird"), "--mode", "'hybird'", "did you mean 'hybrid'")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--mode", "rates", "--allocator", "greedy"), ("--mode", "'rates'", "greedy")),
        (("--mode", "hybrid", "--queues", "unlimited"), ("queues", "hybrid")),
    ],
)
def test_a_mode_that_an_allocator_cannot_carry_out_is_refused(options: tuple[str, ...], parts: tuple[str, ...]) -> None:
    _refused(_beamer("simulate", *options), *parts)


@each_command
def test_an_unknown_key_is_named(command: str, tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(shipped().read_text().replace("start_up_s: 0.5", "start_ups: 0.5"))
    _refused(_beamer(command, str(scenario)), "start_ups", "0.5", "did you mean 'start_up_s'")


@each_command_that_runs
def test_an_output_that_cannot_be_written_is_refused_before_the_run(command: str, tmp_path: Path) -> None:
    outputs = ("--json", str(tmp_path / "new" / "deep" / "f.json"), "--plot", "/proc/timeline.png")
    _refused(_beamer(command, *outputs), "--plot", "/proc/timeline.png", "can be written")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plot", ["absent/" + "x" * 300 + "/p.png", "old.json/p.png", "p.pgn"])
def test_a_refused_output_leaves_files_as_they_were(plot: str, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("figures")
    with pytest.raises(InputError, match="--plot"):
        check_outputs({"--json": old, "--plot": tmp_path / plot})
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_text() == "figures"


def test_figures_that_cannot_be_written_are_refused_before_the_timeline_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--json: got '/proc/figures\.json', expected a file that can be written"):
        check_outputs({"--json": Path("/proc/figures.json"), "--plot": tmp_path / "new" / "p.png"})
    assert not list(tmp_path.iterdir())


def test_outputs_are_checked_without_making_them(tmp_path: Path) -> None:
    (tmp_path / "latest.json").symlink_to(tmp_path / "f.json")
    check_outputs({"--json": tmp_path / "latest.json", "--plot": tmp_path / "new" / "p.png"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.json", "new"]
    assert not list((tmp_path / "new").iterdir())


def test_emulation_without_root_says_what_to_do_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    done = _beamer("emulate", "--json", str(tmp_path / "new" / "f.json"))
    _refused(done, "root", "beamer simulate")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="without root that is the first thing missing")
def test_missing_programs_are_named() -> None:
    done = _beamer("emulate", env={**os.environ, "PATH": "/nonexistent"})
    _refused(done, "ovs-vswitchd", "apt-get install")


def test_a_refusal_of_a_process_imports_nothing_that_only_runs_need() -> None:
    code = "import sys, atexit, beamer.cli\natexit.register(lambda: print(*sys.modules))\nbeamer.cli.main()"
    done = _run("-c", code, "simulate", "--policies", "nope")
    assert done.returncode == 2
    assert done.stderr.startswith("beamer: policy: got 'nope', expected one of ")
    loaded = set(done.stdout.split())
    assert "beamer.simulate.command" in loaded
    assert not {"beamer.simulate.runs", "beamer.bounds.scenario", "matplotlib", "scipy.optimize", "scipy.special"} & loaded


def test_simulate_writes_what_it_prints(tmp_path: Path) -> None:
    outputs = ("--json", str(tmp_path / "f.json"), "--plot", str(tmp_path / "p.png"))
    done = _beamer("simulate", "--policies", "fair,beamer", *outputs)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "f.json").read_text())["runs"]
    assert [run["policy"] for run in runs] == ["fair", "beamer"]
    assert f"{runs[1]['mean_sct_s']:.2f}" in done.stdout
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_simulate_runs_each_gpu_policy_with_each_network_policy(tmp_path: Path) -> None:
    policies = ("--gpu-policy", "fifo,elastic", "--policies", "fair,beamer")
    done = _beamer("simulate", *policies, "--json", str(tmp_path / "f.json"))
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "f.json").read_text())["runs"]
    names = [(run["gpu_policy"], run["network_policy"]) for run in runs]
    assert names == [("fifo", "fair"), ("fifo", "beamer"), ("elastic", "fair"), ("elastic", "beamer")]
    for run in runs:
        assert f"{run['mean_search_s']:.1f}" in done.stdout
        assert len(run["trials"]) == 18
        assert run["mean_search_s"] == pytest.approx(sum(run["searches_s"].values()) / 3)
        assert {trial["status"] for trial in run["trials"]} == {"finished", "killed"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--gpu-policy", "fif"), "'fifo'"),
        (("--gpu-policy", "fifo,fifo"), "each policy once"),
        (("--gpu-policy", "fifo", "--rows", "jobs"), "--table"),
        (("--gpu-policy", "fifo", "--policies", "fifo-lm"), "fifo-lm"),
        ((str(shipped()), "--gpu-policy", "fifo"), "searches"),
        (("--gpu-policy", "fifo", "--joint", "placemnt"), "'placement'"),
        ((str(shipped()), "--joint", "placement"), "searches"),
    ],
)
def test_what_does_not_go_with_gpu_policies_is_refused(options: tuple[str, ...], named: str) -> None:
    _refused(_beamer("simulate", *options), named)


@pytest.fixture
def _without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulation that is not refused for what it is asked ends for this, before it makes anything."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)


@pytest.mark.usefixtures("_without_root")
@each_command
def test_an_option_of_the_gpu_level_is_refused_where_searches_ask_for_no_gpus(command: str) -> None:
    parts = ("--joint", "'placement'", "a scenario whose searches ask for GPUs", "overlapping-searches")
    _refused(_beamer(command, str(shipped()), "--joint", "placement"), *parts)


@pytest.mark.usefixtures("_without_root")
def test_a_part_that_no_controller_has_is_refused_on_real_packets() -> None:
    _refused(_beamer("emulate", str(shipped_joint()), "--joint", "phases"), "--joint", "'phases'", "placement, resizing")


@pytest.mark.parametrize("options", [(str(shipped_joint()),), ("--joint", "placement")])
def test_searches_that_ask_for_gpus_run_under_the_default_policies_of_their_level(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    figures = tmp_path / "f.json"
    _beamer("simulate", *options, "--policies", "fair", "--json", str(figures)).check_returncode()
    assert [run["gpu_policy"] for run in json.loads(figures.read_text())["runs"]] == ["fifo", "convergence"]


def test_what_each_level_is_told_of_the_other_is_chosen_and_shown(tmp_path: Path) -> None:
    options = ("simulate", "--gpu-policy", "fifo", "--policies", "beamer", "--json")
    plain = _beamer(*options, str(tmp_path / "plain.json"))
    told = _beamer(*options, str(tmp_path / "told.json"), "--joint", "placement,phases")
    assert told.returncode == 0, told.stderr
    assert "told of each other" not in plain.stdout
    assert "told of each other: placement, phases" in " ".join(told.stdout.split())
    plain_run, told_run = (json.loads((tmp_path / f"{name}.json").read_text())["runs"][0] for name in ("plain", "told"))
    assert told_run["network_bytes"] != plain_run["network_bytes"]


def test_searches_are_drawn_on_a_time_axis(tmp_path: Path) -> None:
    picture = tmp_path / "timeline.png"
    _beamer("simulate", "--gpu-policy", "fifo", "--policies", "fair", "--plot", str(picture)).check_returncode()
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("f", 1, "2"), 2),
        (PlatformError("no root", "be root"), 2),
        (EmulationError("it broke off"), 1),
        (EngineError("it does not answer"), 1),
    ],
)
def test_every_error_ends_in_one_line_and_the_exit_code_of_its_kind(
    error: BeamerError, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, errors_as_exit_codes("beamer"):
        raise error
    assert ended.value.code == code
    assert capfd.readouterr() == ("", f"beamer: {error}\n")


def test_output_that_nobody_reads_is_no_success() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = "from beamer.lazy_commands import errors_as_exit_codes as ending\nwith ending('x'):\n    print('y', flush=True)"
    try:
        done = subprocess.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("module", [beamer.cli, eval.__main__])
def test_the_help_lists_every_command_with_the_line_of_its_function(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "--help"])
    module.main()
    shown = capfd.readouterr().out
    for name, command in module.COMMANDS.items():
        package, _, function = command.target.partition(":")
        documented = getattr(import_module(package), function).__doc__
        assert documented.splitlines()[0] == command.help
        assert re.search(rf"^  {name} +\[{command.extra}\] +{re.escape(command.help)}$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulte"], "beamer: command: got 'simulte', expected one of certs, clean, doctor, emulate, "),
        (["--verbose"], "beamer: option: got '--verbose', expected --help, --version or a command"),
    ],
)
def test_what_is_no_command_is_named(arguments: list[str], line: str) -> None:
    _refused(_beamer(*arguments), line)


def test_a_group_of_commands_has_its_own_help_and_refusals() -> None:
    shown = _beamer("study", "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: beamer study COMMAND [OPTIONS]\n")
    assert re.findall(r"^  (\w+) +\[inspect\]", shown.stdout, re.MULTILINE) == ["ls", "show", "watch", "end"]
    none = _beamer("study")
    assert (none.returncode, none.stdout, none.stderr) == (2, "", shown.stdout)
    _refused(_beamer("study", "shw"), "beamer: command: got 'shw', expected one of end, ls, show, watch (did you mean 'show'?)")
    _refused(_beamer("study", "-x"), "beamer: option: got '-x'")
    _refused(_beamer("stdy", "ls"), "beamer: command: got 'stdy'", "(did you mean 'study'?)")
    assert _beamer("study", "--version").stdout == _beamer("--version").stdout


def test_a_command_of_a_group_names_itself_and_the_extra_that_it_lacks() -> None:
    with pytest.raises(PlatformError, match=r"^study ls needs packages .*\[inspect\]"):
        Command("tests_of_commands_absent.module:function", "inspect").run("beamer study ls", [])


def test_no_command_at_all_shows_the_help_and_fails() -> None:
    done = _beamer()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == _beamer("--help").stdout


@pytest.mark.parametrize("module", ["beamer.cli", "controller.cli", "hostagent.cli", "eval"])
def test_every_command_line_starts_as_a_process_and_has_its_help_and_version(module: str) -> None:
    shown = _run("-m", module, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--version" in shown.stdout
    printed = _run("-m", module, "--version")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert re.fullmatch(
        rf"(beamer|beamer-controller|beamer-hostagent|eval) {re.escape(version(DISTRIBUTION))}\n", printed.stdout
    )


def test_a_missing_package_names_the_extra_and_a_missing_module_of_ours_does_not() -> None:
    with pytest.raises(PlatformError) as caught:
        Command("tests_of_commands_absent.module:function", "sim").run("beamer simulate", [])
    assert str(caught.value) == (
        "simulate needs packages that are not installed (tests_of_commands_absent); "
        f"install them: pip install '{DISTRIBUTION}[sim]'"
    )
    with pytest.raises(ModuleNotFoundError):
        Command("beamer.absent:function", "sim").run("beamer simulate", [])


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_it_was_after_a_command_was_imported_or_could_not_be(enabled: bool) -> None:
    before, frozen = gc.isenabled(), gc.get_freeze_count()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(PlatformError):
            Command("tests_of_commands_absent.module:function", "sim").run("beamer simulate", [])
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() <= frozen, "nothing was imported; what was exempt before may have been freed since"
    finally:
        (gc.enable if before else gc.disable)()


def late_import() -> None:
    """Import what is not installed while it runs."""
    import_module("tests_of_commands_absent")


def test_a_module_that_is_missing_in_the_middle_of_a_command_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="tests_of_commands_absent"):
        Command(f"{__name__}:late_import", "sim").run("beamer simulate", [])


def test_the_agent_names_its_extra_for_what_it_imports_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in {"websockets", *(name for name in sys.modules if name.startswith("websockets."))}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "hostagent.agent", raising=False)
    with pytest.raises(PlatformError, match=r"beamer-hostagent needs packages.*\(websockets\).*beamer-scheduler\[agent\]"):
        serve("h1", "ws://127.0.0.1:1", state_dir=tmp_path / "state")


def test_a_picture_without_matplotlib_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("beamer.output_files.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--cdf: got .*, expected no picture, as matplotlib is not installed \(pip install"):
        check_outputs({"--cdf": tmp_path / "new" / "p.png"})
    assert not list(tmp_path.iterdir())


def test_the_version_of_what_is_not_installed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("beamer.lazy_commands.DISTRIBUTION", "beamer-absent")
    monkeypatch.setattr(sys, "argv", ["beamer", "--version"])
    with pytest.raises(SystemExit) as ended:
        beamer.cli.main()
    assert ended.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("beamer: beamer-absent is not installed")


def test_the_help_and_a_wrong_command_import_no_command() -> None:
    code = "import sys, beamer.cli\nsys.argv[1:] = ['--help']\nbeamer.cli.main()\nprint(*sys.modules)"
    loaded = set(_run("-c", code).stdout.splitlines()[-1].split())
    commands = {command.target.partition(":")[0] for command in beamer.cli.COMMANDS.values()}
    assert "beamer.lazy_commands" in loaded
    assert not {name for name in loaded if name in commands or name.partition(".")[0] in ("typer", "numpy", "pydantic")}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("seeds: 1\nfirst_seed: 1\nclaims: {}", ("seeds", "got 1", "greater than or equal to 2")),
        ("seeds: [", ("eval: --config: got", "c.yaml', expected valid YAML", "line 1")),
        ("seeds: 2\nseeds: 3", ("eval: --config: got", "'seeds' on line 1 and 'seeds' on line 2 are one key")),
    ],
)
def test_a_bad_config_of_an_experiment_ends_in_one_line(content: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(content)
    _refused(run_here(eval.__main__.main, "gpu", "--no-measure", "--config", str(tmp_path / "c.yaml")), *parts)


def test_a_congestion_control_that_the_kernel_lacks_is_refused_with_those_that_it_has() -> None:
    require_congestion_control("reno")
    with pytest.raises(InputError, match=r"congestion_control: got 'renoo', expected one that this kernel has: .*reno"):
        require_congestion_control("renoo")
