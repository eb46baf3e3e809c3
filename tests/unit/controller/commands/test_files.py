"""The files that a controller is given: a fabric, and limits."""

import json
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.network.fabric_file import read_fabric
from controller.limits import Limits, read_limits
from topologies import single


def write(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "file"
    path.write_text(content)
    return path


def test_limits_are_counts_however_they_are_written(tmp_path: Path) -> None:
    found = read_limits(write(tmp_path, "body_bytes: 1e6\nheader_bytes: 0x4000\nstudies: 010\n"))
    assert (found.body_bytes, found.header_bytes, found.studies) == (1_000_000, 16_384, 10)
    assert all(type(value) is int for value in vars(found).values())
    assert read_limits(write(tmp_path, '{"body_bytes": 1e6}')) == Limits(body_bytes=1_000_000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("studies: 1\njobs: 2\nstudies: 3", "--limits: got .*'studies' on line 1 and 'studies' on line 3 are one key"),
        ('{"studies": 1,\n"studies": 3}', "--limits: got .*'studies' on line 1 and 'studies' on line 2 are one key"),
        ("body_bytes: 1_000", r"limits\.body_bytes: got '1_000', expected an integer above 0"),
        ("body_bytes: 1.5", r"limits\.body_bytes: got 1\.5, expected an integer above 0"),
        ("body_bytes: .inf", r"limits\.body_bytes: got inf, expected an integer above 0"),
        ("body_bytes: true", r"limits\.body_bytes: got True, expected an integer above 0"),
        ("body_bytes: ~", r"limits\.body_bytes: got None, expected an integer above 0"),
        ('{"body_bytes": Infinity}', r"limits\.body_bytes: got 'Infinity', expected an integer above 0"),
        ("request_s: 1:30", r"limits\.request_s: got '1:30', expected an integer above 0"),
    ],
)
def test_what_is_no_limit_is_named(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_limits(write(tmp_path, content))


def test_a_fabric_is_the_same_in_either_form(tmp_path: Path) -> None:
    fabric = single.build(2, "1gbit")
    text = json.dumps(fabric.to_dict())
    assert read_fabric(write(tmp_path, text)) == fabric
    assert read_fabric(write(tmp_path, text.replace("1000000000", "1e9"))) == fabric


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("1000000000", "1_000_000_000", r"fabric\.links\[0\]\.rate_bps: got '1_000_000_000', expected a whole number"),
        ("1000000000", "1e999", "--fabric: got .*1e999 is beyond the numbers"),
        ("1000000000", "Infinity", r"fabric\.links\[0\]\.rate_bps: got 'Infinity', expected a whole number"),
        ("1000000000", ".inf", r"fabric\.links\[0\]\.rate_bps: got inf, expected a "),
        ("1000000000", "true", r"fabric\.links\[0\]\.rate_bps: got True, expected a whole number"),
        ('"hosts"', '"links": [],\n"hosts"', "--fabric: got .*'links' on line 1 and 'links' on line 2 are one key"),
    ],
)
def test_what_is_no_fabric_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    text = json.dumps(single.build(2, "1gbit").to_dict())
    with pytest.raises(InputError, match=said):
        read_fabric(write(tmp_path, text.replace(before, after)))
