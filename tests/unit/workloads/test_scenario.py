"""Scenario files: what is read, and that every mistake is named with its field, its value and what was expected."""

import copy
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.workloads.scenario import TransportSettings, load, parse, shipped

SMALL: dict[str, Any] = {
    "name": "small",
    "topology": {"shape": "single", "hosts": 4, "rate": "20mbit"},
    "seed": 3,
    "studies": [
        {
            "study": "a",
            "trials": [
                {"trial": "x", "workers": ["h1", "h2"], "bytes": "400kB"},
                {"trial": "y", "workers": ["h3"], "servers": ["h4"], "collective": "parameter-server", "bytes": 1000},
            ],
            "rungs": [{"iterations": 2, "keep": 1}, {"iterations": 5}],
        }
    ],
}


def test_reads_studies_with_survivors_resolved() -> None:
    (study,) = parse(SMALL).studies
    first, second = study.stages
    assert [job.name for job in first.jobs] == ["x", "y"]
    assert [job.iterations for job in first.jobs] == [2, 2]
    assert len(second.jobs) == 1
    assert second.jobs[0].iterations == 5
    assert [(r.name, r.trials, r.step) for r in study.rungs] == [("rung0", 2, 2), ("rung1", 1, 7)]


def test_the_seed_alone_decides_who_survives() -> None:
    survivors = {parse({**SMALL, "seed": seed}).studies[0].stages[1].jobs[0].name for seed in range(20)}
    assert survivors == {"x", "y"}
    assert parse(SMALL) == parse(copy.deepcopy(SMALL))


def test_the_shipped_scenario_is_what_the_readme_says() -> None:
    scenario = load(shipped())
    assert len(scenario.fabric.hosts) >= 8
    assert len(scenario.studies) >= 4
    assert all(len(study.stages) >= 2 for study in scenario.studies)
    assert scenario.start_up_s >= 0.5


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        (("topology", "shape"), "leafspine", "topology.shape", "leaf-spine"),
        (("topology", "rate"), 0, "topology.rate", "above 0"),
        (("topology", "rate"), "fast", "topology.rate", "above 0"),
        (("topology", "host"), 3, "topology.host", "hosts"),
        (("topology", "shape"), ["single"], "topology.shape", "leaf-spine"),
        (("topology", "mtu"), "big", "topology.mtu", "576 to 9216"),
        (("topology", "mtu"), 100, "topology.mtu", "576 to 9216"),
        (("studys",), [], "studys", "'studies'"),
        (("queues",), 9, "queues", "1 to 8"),
        (("congestion_control",), "Reno!", "congestion_control", "[a-z0-9_]"),
        (("queue_packets",), 0, "queue_packets", "greater than or equal to 1"),
        (("window",), "1kB", "window", "greater than or equal to 65535"),
        (("window",), "wide", "window", "'600kB'"),
        (("rto_min",), 0, "rto_min", "greater than or equal to 0.001"),
        (("rto_min",), 3, "rto_min", "less than or equal to 2"),
        (("studies", 0, "weight"), 0, "studies[0].weight", "greater than"),
        (("studies", 0, "weight"), 1e9, "studies[0].weight", "less than or equal to 1000000"),
        (("studies", 0, "arrival_s"), 1e18, "studies[0].arrival_s", "less than or equal to 31622400"),
        (("studies", 0, "arrival_s"), float("nan"), "studies[0].arrival_s", "finite"),
        (("start_up_s",), 1e18, "start_up_s", "less than or equal to 31622400"),
        (("studies", 0, "trials", 0, "compute_s"), 1e18, "studies[0].trials[0].compute_s", "less than or equal to 31622400"),
        (("studies", 0, "trials", 0, "bytes"), 10**16, "studies[0].trials[0].bytes", "less than or equal to 10000000000000"),
        (("studies", 0, "trials", 0, "workers"), [], "studies[0].trials[0].workers", "a list with at least 1 entry"),
        (("studies", 0, "rungs", 0, "iterations"), 2**41, "studies[0].rungs[0].iterations", "less than or equal to 10995116"),
        (("studies", 0, "rungs", 1, "iterations"), 2**40, "studies[0].rungs[1].step", "1 to 10995116"),
        (("studies",), [], "studies", "a list with at least 1 entry"),
        (("studies", 0, "trials", 0, "workers"), ["h1", "h9"], "studies[0].trials[0].workers[1]", "one of h1"),
        (("studies", 0, "trials", 0, "bytes"), -5, "studies[0].trials[0].bytes", "at least 0"),
        (("studies", 0, "trials", 0, "collective"), "rings", "studies[0].trials[0].collective", "'ring'"),
        (("studies", 0, "trials", 0, "wrkers"), [], "studies[0].trials[0].wrkers", "'workers'"),
        (("studies", 0, "trials", 1, "servers"), [], "studies[0].trials[1].workers", "at least one server"),
        (("studies", 0, "trials", 0, "servers"), ["h3"], "studies[0].trials[0].workers", "workers only for ring"),
        (("studies", 0, "trials", 1, "trial"), "x", "studies[0].trials[1]", "not taken"),
        (("studies", 0, "trials", 1, "trial"), "a/b", "studies[0].trials[1].trial", "letters"),
        (("studies", 0, "rungs", 0, "keep"), 3, "studies[0].rungs[0].keep", "1 to 2"),
        (("studies", 0, "rungs", 0, "keep"), None, "studies[0].rungs[0].keep", "1 to 2"),
        (("studies", 0, "rungs", 1, "keep"), 1, "studies[0].rungs[1].keep", "last rung"),
    ],
)
def test_names_the_field_the_value_and_what_was_expected(path: tuple[Any, ...], value: Any, field: str, expected: str) -> None:
    data = copy.deepcopy(SMALL)
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InputError) as caught:
        parse(data)
    assert caught.value.field == field
    assert expected in caught.value.expected
    assert repr(caught.value.value) in str(caught.value)


def test_tcp_and_queues_are_as_the_file_says_or_the_defaults() -> None:
    assert parse(SMALL).transport == TransportSettings()
    keys = {"congestion_control": "cubic", "queue_packets": 20, "window": "128KiB", "rto_min": 1.5}
    assert parse(SMALL | keys).transport == TransportSettings("cubic", 20, 131072, 1.5)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"name: caf\xe9", "text in UTF-8 .* at byte 9"),
        (b"name: [", "valid YAML"),
        (b"name: a\nseed: 1\nname: b", "valid YAML .'name' on line 1 and 'name' on line 3 are one key"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"scenario: got '.*odd\.yaml', expected {expected}"):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml"):
        load(tmp_path / "absent.yaml")


def with_trial(tmp_path: Path, keys: str) -> Path:
    """Write a scenario file with one trial, some of whose keys are these."""
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "name: s\ntopology: {shape: single, hosts: 2, rate: 1e9}\nstudies:\n- study: a\n  trials:\n"
        f"  - {{trial: t, workers: [h1, h2], {keys}}}\n  rungs: [{{iterations: 1e2}}]\n"
    )
    return path


@pytest.mark.parametrize(
    ("keys", "sync_bytes", "compute_s"),
    [
        ("bytes: 1e8, compute_s: 1e-3", 10**8, 0.001),
        ("bytes: 1.0e+8, compute_s: .5", 10**8, 0.5),
        ("bytes: 010, compute_s: 0x10", 10, 16.0),
        ("bytes: 1_000, compute_s: 0o10", 1000, 8.0),
        ("bytes: 1.5kB, compute_s: 010", 1500, 10.0),
    ],
)
def test_numbers_in_a_file_are_those_of_yaml_1_2(tmp_path: Path, keys: str, sync_bytes: int, compute_s: float) -> None:
    scenario = load(with_trial(tmp_path, keys))
    (job,) = scenario.studies[0].stages[0].jobs
    assert (job.sync_bytes, job.compute_s, job.iterations) == (sync_bytes, compute_s, 100)
    assert {link.rate_bps for link in scenario.fabric.links} == {10**9}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("bytes: 1:30", r"trials\[0\]\.bytes: got '1:30', expected a size"),
        ("bytes: 1.5", r"trials\[0\]\.bytes: got 1\.5, expected a size .* whole number of bytes"),
        ("bytes: .nan", r"trials\[0\]\.bytes: got nan, expected a size"),
        ("bytes: .inf", r"trials\[0\]\.bytes: got inf, expected a size"),
        ("bytes: true", r"trials\[0\]\.bytes: got True, expected a number, not true or false"),
        ("bytes: 1, compute_s: true", r"trials\[0\]\.compute_s: got True, expected a number, not true or false"),
        ("bytes: ~", r"trials\[0\]\.bytes: got None, expected a size"),
        ("bytes: 2024-01-31", r"trials\[0\]\.bytes: got '2024-01-31', expected a size"),
        ("bytes: 1e3000", r"scenario: got .*1e3000 is beyond .*line 6"),
        ("bytes: 1, compute_s: 1:30", r"trials\[0\]\.compute_s: got '1:30', expected a number"),
        ("bytes: 1, compute_s: yes", r"trials\[0\]\.compute_s: got 'yes', expected a number"),
        ("bytes: 1, compute_s: .inf", r"trials\[0\]\.compute_s: got inf, expected a finite number"),
        ("bytes: 1, bytes: 2", r"scenario: got .*'bytes' on line 6 and 'bytes' on line 6 are one key"),
    ],
)
def test_what_is_no_number_in_yaml_1_2_is_named(tmp_path: Path, keys: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(with_trial(tmp_path, keys))
