"""What is in the distributions, and what they ask for."""

import re
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

from beamer.lazy_commands import DISTRIBUTION
from tests.packaging.builds import ROOT

PACKAGES = ("beamer", "controller", "hostagent", "topologies")
SOURCES = (".md", ".py", ".toml", ".yaml")
FOR_OTHERS = {"engine_harness", "engines", "fabrics", "gpu_policies", "network_policies", "profile", "situations", "trainer"}
"""Modules of `beamer.testing`: suites for policies and engines of others, what they need, and the shipped search's program."""


def test_the_wheel_holds_every_file_of_the_packages(distributions: tuple[Path, Path]) -> None:
    here = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(distributions[1]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == here
    assert {Path(name).suffix for name in held} >= {".py", ".yaml"}
    assert held >= {f"{package}/py.typed" for package in PACKAGES}
    assert any("/migrations/versions/" in name for name in held)


def test_the_wheel_holds_no_helper_of_our_own_tests(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        modules = {Path(name) for name in wheel.namelist() if name.endswith(".py")}
    assert {path.stem for path in modules if path.parent == Path("beamer/testing")} == {"__init__", *FOR_OTHERS}
    assert {path for path in modules if {"testing", "tests"} & {*path.parts[:-1], path.stem}} == {
        path for path in modules if path.parts[:2] == ("beamer", "testing")
    }


def test_the_source_distribution_holds_what_builds_and_tests_it(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert held >= {
        "pyproject.toml",
        "constraints.txt",
        "Makefile",
        "README.md",
        "LICENSE",
        "beamer/cli.py",
        "eval/__main__.py",
    }
    assert held >= {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    assert held >= {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*") if path.suffix in SOURCES}


def test_the_base_asks_for_an_http_client_alone(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(wheel.read(name))
    assert metadata["Name"] == DISTRIBUTION
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert [re.split(r"[^\w-]", text)[0] for text in required] == ["httpcore"]
