"""What keeps a YAML file from being read is named, whichever file it is."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.yaml_files import dump_yaml, parse_scalar, parse_yaml, read_json, read_mapping, read_yaml
from tests.support.checkout import ROOT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: caf\xe9", "text in UTF-8 .* at byte 9"),
        (b"name: [", "valid YAML"),
        (b"[" * 100_000, "not nested as deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"--file: got '{path}', expected .*{said}"):
        read_yaml(path, "--file")


def test_nothing_else_reads_or_writes_yaml() -> None:
    folders = ("beamer", "controller", "hostagent", "topologies", "eval")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    imports = re.compile(r"^\s*(import|from) yaml\b", re.MULTILINE)
    users = {path.relative_to(ROOT).as_posix() for path in paths if imports.search(path.read_text())}
    assert users == {"beamer/yaml_files.py"}


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a readable file \\(No such file"):
        read_yaml(tmp_path / "f.yaml", "--file")


def test_json_is_yaml_too(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"a": [1, null]}')
    assert read_mapping(path, "--file", "of anything") == {"a": [1, None]}


def test_what_is_no_mapping_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("- a")
    with pytest.raises(InputError, match="expected a mapping of names"):
        read_mapping(path, "--file", "of names")


PLAIN: list[tuple[str, Any]] = [
    ("1e8", 1e8), ("1.0e+8", 1e8), ("1E-3", 0.001), (".5", 0.5), ("5.", 5.0), ("-1.5", -1.5), ("+7", 7), ("-0", 0),
    ("010", 10), ("0o10", 8), ("0x10", 16), ("-0x10", "-0x10"), ("0b11", "0b11"), ("1_000", "1_000"), ("1:30", "1:30"),
    ("1:30.5", "1:30.5"), ("yes", "yes"), ("No", "No"), ("on", "on"), ("OFF", "OFF"), ("y", "y"), ("true", True),
    ("False", False), ("TRUE", True), ("tRUE", "tRUE"), ("~", None), ("null", None), ("Null", None), ("", None),
    ("nULL", "nULL"), ("2024-01-31", "2024-01-31"), ("2024-13-45", "2024-13-45"),
    ("2024-01-31 10:00:00", "2024-01-31 10:00:00"),
    (".inf", math.inf), ("-.INF", -math.inf), ("inf", "inf"), ("Infinity", "Infinity"), ("NaN", "NaN"), ("=", "="),
    ("0e-400", 0.0), ("'1e8'", "1e8"), ("!!str 010", "010"), ("!!int '7'", 7), ("1.2.3", "1.2.3"), ("1e", "1e"),
]  # fmt: skip
"""Scalars and what YAML 1.2's core schema makes of them; PyYAML makes something else of about half of them."""


@pytest.mark.parametrize(("text", "value"), PLAIN)
def test_scalars_are_what_yaml_1_2_says(text: str, value: Any) -> None:
    for content, found in ((f"a: {text}", {"a": value}), (f"[{text}, 0]", [value, 0])):
        if text or content.startswith("a"):
            assert repr(parse_yaml(content, "f")) == repr(found)


def test_not_a_number_is_one_value_of_floats() -> None:
    assert math.isnan(parse_yaml(".nan", "f"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "'a' on line 1 and 'a' on line 3 are one key; remove or rename one"),
        ("x:\n- b: {c: 1,\n     'c': 2}", "'c' on line 2 and 'c' on line 3 are one key"),
        ("{1: a, 0x1: b}", "'1' on line 1 and '0x1' on line 1 are one key"),
        ("{1: a, true: b}", "'1' on line 1 and 'true' on line 1 are one key"),
        ("{x: &x {a: 1}, y: {<<: *x, <<: *x}}", "'<<' on line 1 and '<<' on line 1 are one key"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', "'a' on line 1 and 'a' on line 3 are one key"),
        ("a: 1e3000", "1e3000 is beyond the numbers that a float of 64 bits holds .*line 1, column 4"),
        ("a: -1e-400", "-1e-400 is beyond the numbers"),
        ("a: " + "9" * 5000, r"9\.\.\. \(5000 characters\) is a number with more digits than Python reads"),
        ("a: !!int 1_000", "'1_000' is no int of YAML 1.2"),
        ("a: !!bool yes", "'yes' is no bool of YAML 1.2"),
        ("a: !!binary aGk=", "tag:yaml.org,2002:binary"),
        ("a: !!set {b}", "tag:yaml.org,2002:set"),
        ("a: !!timestamp 2024-01-31", "tag:yaml.org,2002:timestamp"),
        ("a: !!omap [b: 1]", "tag:yaml.org,2002:omap"),
        ("a: !!python/name:os.system", "python/name"),
        ('a: "\\ud83d"', "half of a pair of surrogates"),
        ("- 1\n---\n- 2", "single document"),
    ],
)
def test_what_yaml_1_2_does_not_have_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s)^f: got .*expected valid YAML .*{said}"):
        parse_yaml(text, "f")


def test_what_is_merged_may_be_said_otherwise() -> None:
    found = parse_yaml("{x: &x {a: 1, b: 2}, y: &y {<<: *x, a: 3}, z: {<<: *y, b: 4}}", "f")
    assert found == {"x": {"a": 1, "b": 2}, "y": {"a": 3, "b": 2}, "z": {"a": 3, "b": 4}}


def test_characters_that_json_writes_as_two_are_one() -> None:
    assert parse_yaml(json.dumps({"\U0001f600": "\U0001f600", "é": "é"}), "f") == {"\U0001f600": "\U0001f600", "é": "é"}


def test_what_goes_to_a_program_stays_as_it_is_written() -> None:
    text = (
        "grid: {lr: [1e-4, 010, 1.0, true, ~, x, &n 3], <<: {b: 0x1}}\njob: {env: {1: 2.50}, s: 1e3, k: *n}\nrest: [*n, 1e-4]"
    )
    found = parse_yaml(text, "f", as_written=[("grid",), ("job", "env"), ("job", "absent"), ("rest", "no", "mapping")])
    assert found == {
        "grid": {"lr": ["1e-4", "010", "1.0", "true", None, "x", "3"], "b": "0x1"},
        "job": {"env": {"1": "2.50"}, "s": 1000.0, "k": 3},
        "rest": [3, 0.0001],
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 0.0001), ("010", 10), ("True", True), (".inf", ".inf"), ("1e999", "1e999"), ("no", "no"), ("", "")],
)
def test_a_text_is_read_as_a_plain_scalar(text: str, value: Any) -> None:
    assert repr(parse_scalar(text)) == repr(value)


@pytest.mark.parametrize(
    "value", [one for _, one in PLAIN] + [text for text, _ in PLAIN] + [1e-5, 1e22, 10**20, "é", "<<", "a: b"]
)
def test_what_is_written_is_read_as_it_was(value: Any) -> None:
    data = {"a": [value], "b": {"c": value}}
    assert repr(parse_yaml(dump_yaml(data), "f")) == repr(data)
    assert repr(parse_yaml(dump_yaml(data, flow=None, width=128), "f")) == repr(data)


def test_json_of_programs_has_infinities_and_each_key_once(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"a": [math.inf, -math.inf], "b": {"a": 1}}))
    assert read_json(path, "--file") == {"a": [math.inf, -math.inf], "b": {"a": 1}}
    path.write_text('{"a": 1,\n "b": {"c": 1,\n "d": 2, "c": 3}}')
    with pytest.raises(InputError, match=f"--file: got '{path}', expected .*'c' on line 2 and 'c' on line 3 are one key"):
        read_json(path, "--file")
    path.write_text('{\n\t"c": 1,\n\t"c": 3}')
    with pytest.raises(InputError, match=r"--file: got .*, expected valid"):
        read_json(path, "--file")
    for content, said in (
        ('{"a": ', "valid JSON .*line 1"),
        ("[" * 100_000, "not nested as deeply"),
        ("[" + "9" * 5000 + "]", "digits"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=f"--file: got .*expected .*{said}"):
            read_json(path, "--file")
    with pytest.raises(InputError, match="a readable file"):
        read_json(tmp_path / "absent.json", "--file")
