"""What keeps a YAML file from being read is named, whichever file it is."""

from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.yaml_files import read_mapping, read_yaml


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: caf\xe9", "text in UTF-8 .* at byte 9"),
        (b"name: [", "valid YAML"),
        (b"name: 2024-13-45", "valid YAML"),
        (b"[" * 100_000, "not nested as deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"--file: got '{path}', expected .*{said}"):
        read_yaml(path, "--file")


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
