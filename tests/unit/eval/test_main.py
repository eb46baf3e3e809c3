"""What experiments that calculate leave out: instructions by which figures differ from machine to machine."""

import os
from pathlib import Path

import pytest

from eval import __main__ as command

VARIABLES = ("NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE")


@pytest.mark.parametrize(
    ("flags", "given", "kernel"),
    [
        ("fma avx2 avx512f avx512vl", {}, "Haswell"),
        ("fma avx2", {}, None),
        ("fma avx2 avx512f avx512vl", {"OPENBLAS_CORETYPE": "SkylakeX"}, "SkylakeX"),
        (None, {}, None),
    ],
)
def test_avx_512_is_left_out_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str | None, given: dict[str, str], kernel: str | None
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(command, "PROCESSOR", tmp_path / "cpuinfo")
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags} pku\n")
    command._calculate_as_everywhere()
    assert "AVX512F" in os.environ["NPY_DISABLE_CPU_FEATURES"]
    assert os.environ.get("OPENBLAS_CORETYPE") == kernel
