"""The files of searches and the parameters of policies: what they come to, and what is wrong in them."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from math import inf
from pathlib import Path
from typing import Any

import pytest

from beamer.engines.local import LocalNode, NetworkNamespace, Ssh
from beamer.errors import InputError
from beamer.gpu.limits import RunLimits
from beamer.gpu.model import Request
from beamer.gpu.policies import GPU_POLICIES
from beamer.gpu.policies.fifo import Fifo
from beamer.gpu.policies.hermes import Hermes
from beamer.gpu.policy_settings import gpu_policy_of
from beamer.schedule.file import load, parse, shipped
from beamer.schedule.local_settings import LocalSettings
from beamer.schedule.template import filled
from beamer.studies.model import Profile, Rung
from tests.support.schedule_inputs import BASE, SEARCH, changed, set_request


def test_a_template_is_filled_for_every_configuration() -> None:
    search = parse(SEARCH, BASE)
    assert [trial.name for trial in search.trials] == ["lr-0.1_batch-32", "slow"]
    task = search.jobs["slow"]
    launch = task.launches[20]
    assert search.rungs == ()
    assert launch.command == (sys.executable, "train.py", "--lr", "0.001", "--until", "20", "7")
    assert launch.cwd == "/base/code"
    assert dict(launch.env) == {
        "BEAMER_STUDY": "s",
        "BEAMER_TRIAL": "slow",
        "BEAMER_LAUNCHER": "schedule",
        "OUT": "slow.log",
        "THREADS": "1",
    }
    assert task.request == Request(iterations=20, epoch=2, batch_size=64)
    assert (launch.batch_size, launch.iterations, launch.every) == (64, 20, 2)


def test_a_program_may_say_that_it_accumulates_gradients() -> None:
    data = changed(set_request("max_local_batch_size", 16))
    data["job"]["request"]["accumulates"] = True
    request = next(iter(parse(data, BASE).jobs.values())).request
    assert (request.accumulates, request.sub_steps(1, 64), request.sub_steps(2, 64)) == (True, 4, 2)


def test_a_program_may_declare_its_synchronisations() -> None:
    data = changed(set_request("traffic", {"sync_bytes": "{batch}000", "compute_s": 0.25}))
    assert next(iter(parse(data, BASE).jobs.values())).request.traffic == Profile(32_000, "ring", 0.25)
    with pytest.raises(InputError, match=r"job.request.traffic.overlap"):
        parse(changed(set_request("traffic", {"overlap": 2})), BASE)
    with pytest.raises(InputError, match=r"job.request.traffic.collective.*'ring'"):
        parse(changed(set_request("traffic", {"collective": "rign"})), BASE)
    with pytest.raises(InputError, match=r"job.request.traffic.collective.*at least one server"):
        parse(changed(set_request("traffic", {"collective": "parameter-server"})), BASE)


def test_rungs_count_from_the_start_and_share_a_configurations_checkpoint(tmp_path: Path) -> None:
    data = changed(lambda d: d.update(rungs=[{"iterations": 5, "keep": 1}, {"iterations": 15}]))
    del data["job"]["request"]["iterations"]
    search = parse(data, BASE)
    assert search.rungs == (Rung("rung0", 2, 5), Rung("rung1", 1, 15))
    first, second = (search.launch("s/slow", step, tmp_path) for step in (5, 15))
    assert first.checkpoint == second.checkpoint == str(tmp_path / "checkpoints" / "slow")
    assert search.jobs["slow"].request.iterations == 15
    assert first.command[5] == "5"
    assert second.command[5] == "15"
    assert [dict(launch.env)["BEAMER_STAGE"] for launch in (first, second)] == ["rung0", "rung1"]
    assert search.launch("s/lr-0.1_batch-32", 5, tmp_path).checkpoint != first.checkpoint


def test_a_grid_is_all_combinations() -> None:
    data = changed(lambda d: d.update(grid={"lr": [1, 2], "batch": [8, 16, 32]}))
    del data["configurations"]
    search = parse(data, BASE)
    assert len(search.trials) == 6
    assert {(trial.values["lr"], trial.values["batch"]) for trial in search.trials} == {
        (a, b) for a in "12" for b in ("8", "16", "32")
    }


def test_nodes_are_reached_as_they_say() -> None:
    nodes = [
        {"name": "a", "gpus": 2, "launcher": {"kind": "ssh", "host": "a.lan", "options": ["-p", "22"]}, "devices": ["3", "5"]},
        {"name": "b", "gpus": 1, "launcher": {"kind": "namespace", "name": "net"}, "cpus": 4},
    ]
    search = parse(changed(lambda d: d.update(nodes=nodes)), BASE)
    assert search.engine.cluster.nodes == (
        LocalNode("a", 2, devices=("3", "5"), launcher=Ssh("a.lan", ("-p", "22"))),
        LocalNode("b", 1, cpus=4.0, launcher=NetworkNamespace("net")),
    )


def set_job(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda d: d["job"].update({key: value})


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        (lambda d: d.update(ndoes=1), "ndoes", "did you mean 'nodes'"),
        (lambda d: d["nodes"][0].update(gpu=1), r"nodes\[0\]\.gpu", "did you mean 'gpus'"),
        (lambda d: d["nodes"].append({"name": "n", "gpus": 1}), "nodes", "names that differ"),
        (lambda d: d["nodes"][0].update(launcher={"kind": "shs"}), r"nodes\[0\]\.launcher\.kind", "did you mean 'ssh'"),
        (lambda d: d["nodes"][0].update(launcher={"kind": "ssh", "hst": "a"}), r"nodes\[0\]\.launcher\.hst", "'host'"),
        (lambda d: d["nodes"][0].update(launcher={"kind": "ssh"}), r"nodes\[0\]\.launcher\.host", "required"),
        (set_job("comand", []), r"job\.comand", "did you mean 'command'"),
        (set_job("command", ["a", "{lrr}"]), r"job\.command\[1\]", "did you mean 'lr'"),
        (set_job("command", ["{"]), r"job\.command\[0\]", "other braces doubled"),
        (set_job("preload", ["torch", "os path"]), r"job\.preload", "names of modules, such as torch"),
        (set_job("preload", "torch"), r"job\.preload", "list"),
        (lambda d: d["job"].update(preload=["torch"], command=["bash", "t.sh"]), r"job\.command", "a Python program"),
        (set_job("env", {"A": "{iteration}"}), r"job\.env\.A", "did you mean 'iterations'"),
        (set_job("stop_signal", "SIGTREM"), r"job\.stop_signal", "the name of a signal"),
        (set_job("stop_signal", "SIGKILL"), r"job\.stop_signal", "can handle"),
        (set_job("progress", r"(?P<los>\d+)"), r"job\.progress group 'los'", "did you mean 'loss'"),
        (set_job("checkpoint", "ck"), r"job\.checkpoint", r"\{name\}"),
        (set_job("checkpoint", "{name}/../ck"), r"job\.checkpoint", r"\{name\}"),
        (set_request("gpsu", 1), r"job\.request\.gpsu", "did you mean 'gpus'"),
        (set_request("gpus", 0), r"job\.request\.gpus", "at least 1"),
        (set_request("gpus", 3), r"job\.request", "2 GPUs in all"),
        (set_request("batch_size", "{lr}"), r"job\.request\.batch_size", "whole number"),
        (set_request("target_loss", 1.0), r"job\.request\.target_loss", "the search's"),
        (set_request("servers", True), r"job\.request\.servers", "not launched"),
        (lambda d: d["job"]["request"].pop("iterations"), r"job\.request\.iterations", "required"),
        (lambda d: d.update(rungs=[{"iterations": 5}]), r"job\.request\.iterations", "that of the rungs"),
        (lambda d: d.update(grid={"lr": [1]}), "configurations", "a grid or a sampler in its place"),
        (lambda d: d.pop("configurations"), "configurations", "a grid or a sampler in its place"),
        (lambda d: d["configurations"].append({"name": "slow"}), r"configurations\[2\]", "no other has"),
        (lambda d: d["configurations"][0].update(iterations=3), r"configurations\[0\]", "none of iterations"),
        (lambda d: d["configurations"][0].update(lr=None), r"configurations\[0\]\.lr", "a text, a number"),
        (lambda d: d.update(configurations=None, grid={"lr": [1, [2]]}), r"grid\.lr\[1\]", "a text, a number"),
        (lambda d: d.update(stop_at_target=True), "stop_at_target", "no target_loss"),
        (lambda d: d.update(group="cgroup3"), "group", "cgroup2"),
        (lambda d: d.update(retries=-1), "retries", "greater than or equal to 0"),
        (lambda d: d.update(nodes=[]), "nodes", "a list with at least 1 entry"),
        (lambda d: d["nodes"][0].update(gpus=2**31), r"nodes\[0\]\.gpus", "less than or equal to 1024"),
        (lambda d: d.update(timeout_s=1e18), "timeout_s", "less than or equal to 31622400"),
        (lambda d: d.update(target_loss=1e300), "target_loss", "less than or equal to 1000000000000000"),
        (set_job("command", []), r"job\.command", "a list with at least 1 entry"),
        (set_job("grace_s", 1e18), r"job\.grace_s", "less than or equal to 31622400"),
        (set_request("batch_size", 10**30), r"job\.request\.batch_size", "at most 1099511627776"),
        (set_request("target_accuracy", float("nan")), r"job\.request\.target_accuracy", "no trial meets it"),
        (lambda d: d.update(configurations=None, grid={f"a{i}": [*range(100)] for i in range(9)}), "grid", "at most 1048576"),
        (lambda d: d.update(silent_s=0), "silent_s", "greater than 0"),
        (lambda d: d.update(timeout_s=float("inf")), "timeout_s", "finite"),
        (lambda d: d.update(collective_timeout_s=-1), "collective_timeout_s", "greater than or equal to 0"),
        (lambda d: d.update(silent=5), "silent", "did you mean 'silent_s'"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": 3}, {"iterations": 9}]), r"rungs\[0\]\.keep", "1 to 2"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": 1}, {"iterations": 5}]), r"rungs\[1\]\.iterations", "above 5"),
        (lambda d: d.update(rungs=[{"iterations": 5, "keep": 1}]), r"rungs\[0\]\.keep", "last rung"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named(change: Callable[[dict[str, Any]], Any], field: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: got .*{expected}"):
        parse(changed(change), BASE)


def test_limits_are_the_searchs_and_the_time_out_of_collectives_its_launches() -> None:
    plain = parse(SEARCH, BASE)
    assert plain.limits == RunLimits(retries=2)
    assert plain.jobs["slow"].launches[20].collective_timeout_s == 600.0
    keys = {"retries": 5, "timeout_s": 3600, "silent_s": 60.5, "collective_timeout_s": 1800}
    search = parse(changed(lambda d: d.update(keys)), BASE)
    assert search.limits == RunLimits(5, 3600.0, 60.5)
    assert search.jobs["slow"].launches[20].collective_timeout_s == 1800.0


def test_the_shipped_search_is_one() -> None:
    search = load(shipped())
    assert len(search.trials) > search.engine.cluster.nodes[0].gpus
    assert len(search.rungs) > 1


def test_braces_are_doubled() -> None:
    assert filled('{{"a": {lr}}}', {"lr": 3}, "f") == '{"a": 3}'


def test_policy_parameters_are_parsed_as_their_fields_types() -> None:
    assert gpu_policy_of("hermes", ["window=3", "norm=largest", "hysteresis=2e-1"]) == Hermes(3, "largest", 0.2)
    assert gpu_policy_of("ones", ["learn=false"]).learn is False  # type: ignore[attr-defined]  # a field of that policy
    for endless in ("inf", ".inf", "+.Inf"):
        assert gpu_policy_of("convergence", [f"patience_s={endless}"]).patience_s == inf  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("hermez", "window=3", "^policy: got 'hermez'.*did you mean 'hermes'"),
        ("hermes", "windw=3", r"^hermes\.windw: got '3'.*did you mean 'window'"),
        ("hermes", "window=x", r"^hermes\.window: got 'x'.*whole number"),
        ("hermes", "window=0", r"^hermes\.window: got 0, expected at least 1"),
        ("hermes", "window", "^--set: got 'window', expected NAME=VALUE"),
        ("round-robin", "quantum_s=0", r"^round-robin\.quantum_s: got 0\.0, expected a finite number above 0"),
        ("slaq", "epoch_s=nan", r"^slaq\.epoch_s: got nan, expected a finite number above 0"),
        ("optimus", "servers_per_gpu=inf", r"^optimus\.servers_per_gpu: got inf"),
        ("srtf", "hysteresis=-1", r"^srtf\.hysteresis: got -1\.0, expected at least 0"),
        ("hermes", "patience_s=0", r"^hermes\.patience_s: got 0\.0, expected a number above 0"),
        ("convergence", "patience_s=-1", r"^convergence\.patience_s: got -1\.0, expected a number above 0"),
        ("fifo", "window=3", r"^fifo\.window: got '3', expected no parameter"),
        ("hermes", "name=x", r"^hermes\.name: got 'x', expected one of .*window"),
        ("elastic", "resizes=true", r"^elastic\.resizes: got 'true', expected "),
        ("hermes", "State=3", r"^hermes\.State: got '3', expected one of .*window"),
    ],
)
def test_a_wrong_policy_parameter_is_named(name: str, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gpu_policy_of(name, [setting])


class Plain(Fifo):
    """Another package's policy, which is no dataclass."""

    name = "other"

    def __init__(self) -> None:
        pass


@dataclass(frozen=True)
class Unnameable(Fifo):
    """Another package's policy with a parameter whose type is known to type checkers alone."""

    name = "other"
    window: "Window | None" = None  # type: ignore[name-defined]  # noqa: F821


class Foreign:
    """A type that pydantic does not know."""


@dataclass(frozen=True)
class Foreigners(Fifo):
    """Another package's policy with a parameter of such a type."""

    name = "other"
    foreign: Foreign | None = None


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], None]:
    """Register a class of this module as another package's policy."""

    def register(policy: type) -> None:
        entry = EntryPoint("other", f"{__name__}:{policy.__name__}", GPU_POLICIES.group)
        monkeypatch.setattr(GPU_POLICIES, "_others", {"other": entry})

    return register


def test_another_packages_policy_need_not_be_a_dataclass(other: Callable[[type], None]) -> None:
    other(Plain)
    assert isinstance(gpu_policy_of("other", []), Plain)
    with pytest.raises(InputError, match=r"^other\.window: got '3', expected no parameter"):
        gpu_policy_of("other", ["window=3"])


@pytest.mark.parametrize(("policy", "parameter"), [(Unnameable, "window"), (Foreigners, "foreign")])
def test_a_parameter_that_cannot_be_given_as_text_is_named(policy: type, parameter: str, other: Callable[[type], None]) -> None:
    other(policy)
    assert type(gpu_policy_of("other", [])) is policy
    with pytest.raises(
        InputError, match=rf"^other\.{parameter}: got '3', expected a parameter whose type can be given as text"
    ):
        gpu_policy_of("other", [f"{parameter}=3"])


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("[" * 20_000)
    with pytest.raises(InputError, match=f"search: got '{file}', expected YAML that is not nested as deeply"):
        load(file)


WRITTEN = """\
name: s
nodes: [{name: n, gpus: 2}]
job:
  command: [train, "{lr}", "{flag}", 010, true, 1.0]
  env: {A: 1e-3, B: no, C: "{lr}"}
  request: {iterations: 1e1, batch_size: "{batch}", traffic: {sync_bytes: 1e8, compute_s: 1e-3}}
grid: {lr: [1e-4, 0.10], flag: [true, no], batch: [0x20]}
"""


def test_what_a_program_is_given_is_as_the_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "search.yaml"
    path.write_text(WRITTEN.replace("0x20", "32"))
    search = load(path)
    launch = search.jobs["lr-1e-4_flag-true_batch-32"].launches[10]
    assert launch.command == ("train", "1e-4", "true", "010", "true", "1.0")
    assert {"A": "1e-3", "B": "no", "C": "1e-4"}.items() <= dict(launch.env).items()
    assert [trial.values["lr"] for trial in search.trials] == ["1e-4", "1e-4", "0.10", "0.10"]
    request = search.jobs["lr-1e-4_flag-true_batch-32"].request
    assert (request.iterations, request.batch_size, request.traffic) == (10, 32, Profile(10**8, "ring", 0.001))


def test_a_search_that_is_kept_as_json_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "search.yaml"
    path.write_text(WRITTEN.replace("0x20", "32"))
    search = load(path)
    again = parse(json.loads(json.dumps(dict(search.content))), search.base)
    assert again.content == search.content
    assert again.trials == search.trials
    assert again.jobs == search.jobs


@pytest.mark.parametrize(
    ("written", "mode"),
    [({}, "auto"), ({"memory": "host"}, "host"), ({"keep_memory": True}, "gpu"), ({"keep_memory": False}, "none")],
)
def test_the_former_name_of_memory_is_read_and_written_no_more(tmp_path: Path, written: dict[str, Any], mode: str) -> None:
    search = parse({**SEARCH, **written}, tmp_path)
    assert {key: value for key, value in search.content.items() if "memory" in key} == {"memory": mode}
    assert parse(json.loads(json.dumps(dict(search.content))), search.base).content == search.content


def test_host_memory_of_a_node_has_a_unit(tmp_path: Path) -> None:
    nodes = [{"name": "n", "gpus": 2, "host_memory": "64GiB"}]
    search = parse({**SEARCH, "nodes": nodes}, tmp_path)
    assert isinstance(search.engine, LocalSettings)
    assert search.engine.cluster.node["n"].host_memory == 64 << 30


@pytest.mark.parametrize("mode", ["gpu", "host", "none"])
def test_memory_of_gpus_is_bounded_where_it_is_kept_to(mode: str, tmp_path: Path) -> None:
    nodes = [{"name": "n", "gpus": 2, "gpu_memory": "16GiB"}]
    search = parse({**SEARCH, "nodes": nodes}, tmp_path)
    assert isinstance(search.engine, LocalSettings)
    assert search.engine.cluster.node["n"].gpu_memory == 16 << 30
    with pytest.raises(InputError, match=rf"nodes\[0\]\.gpu_memory: got \d+, expected 0 beside memory: {mode}"):
        parse({**SEARCH, "nodes": nodes, "memory": mode}, tmp_path)


def test_a_search_in_json_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "search.json").write_text(json.dumps(SEARCH))
    found = load(tmp_path / "search.json")
    plain = parse(SEARCH, tmp_path)
    assert (found.content, found.trials, found.jobs) == (plain.content, plain.trials, plain.jobs)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WRITTEN + "grid: {lr: [0.3]}\n", "search: got .*'grid' on line 7 and 'grid' on line 8 are one key"),
        (WRITTEN.replace("0x20", "0x20, 0x20], lr: [3"), "'lr' on line 7 and 'lr' on line 7 are one key"),
        (WRITTEN + "timeout_s: .inf\n", "timeout_s: got inf, expected a finite number"),
        (WRITTEN + "timeout_s: true\n", "timeout_s: got True, expected a number, not true or false"),
        (WRITTEN + "keep_memory: 3\n", "keep_memory: got 3, expected true or false"),
        (WRITTEN + "memory: ram\n", "memory: got 'ram', expected .*'gpu', 'host', 'none' or 'auto'"),
        (WRITTEN + "memory: gpu\nkeep_memory: true\n", "keep_memory: got True, expected no such key beside memory"),
        (WRITTEN + "timeout_s: 1:30\n", "timeout_s: got '1:30', expected a number"),
        (WRITTEN + "timeout_s: 1e999\n", "1e999 is beyond the numbers .*line 8"),
        (WRITTEN.replace("[0x20]", "[~]"), r"grid\.batch\[0\]: got None, expected a text, a number, true or false"),
        (WRITTEN.replace("[0x20]", "[1_0:0]"), r"job\.request\.batch_size: got '1_0:0', expected a whole number"),
        (json.dumps(SEARCH)[:-1] + ',\n"name": "t"}', "'name' on line 1 and 'name' on line 2 are one key"),
        (json.dumps({**SEARCH, "silent_s": float("inf")}), "silent_s: got 'Infinity', expected a finite number"),
        (json.dumps({**SEARCH, "silent_s": float("nan")}), "silent_s: got 'NaN', expected .*number"),
    ],
)
def test_what_is_no_value_of_yaml_1_2_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "search.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        load(path)
