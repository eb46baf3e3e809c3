"""Packages that the documentation shows, and others, as if they were installed."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.pages import blocks

DOCUMENTS = ROOT / "docs"


def install(section: str, directory: Path, document: str = "extending.md") -> dict[str, str]:
    """Write the package that a section of a document shows into a directory; return its entry points, of one group, by name.

    The section's first blocks of Python and TOML are the package. A process that has the directory in its path finds the module
    and its entry points.
    """
    package = dict(reversed([block for block in blocks_of(section, document) if block[0] in ("python", "toml")]))
    project = tomllib.loads(package["toml"])["project"]
    ((group, entries),) = project["entry-points"].items()
    (target,) = entries.values()
    (directory / f"{target.partition(':')[0]}.py").write_text(package["python"])
    register(project["name"], group, entries, directory)
    return dict(entries)


def blocks_of(section: str, document: str = "extending.md") -> list[tuple[str, str]]:
    """Return the fenced blocks of a section of a document, each with its language."""
    guide = (DOCUMENTS / document).read_text("utf-8")
    (text,) = re.findall(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", guide, re.DOTALL | re.MULTILINE)
    return [(block.language, block.code) for block in blocks(text)]


def register(name: str, group: str, entries: Mapping[str, str], directory: Path) -> None:
    """Write the metadata of an installed package with entry points of one group into a directory."""
    metadata = directory / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [f"{name} = {target}" for name, target in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
