"""Packages that docs/extending.md shows, as if they were installed."""

import re
import tomllib
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "docs" / "extending.md"


def install(section: str, directory: Path) -> dict[str, str]:
    """Write the package that a section of the guide shows into a directory; return its entry points, of one group, by name.

    A process that has the directory in its path finds the module and its entry points.
    """
    (text,) = re.findall(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    blocks = dict(re.findall(r"```(python|toml)\n(.*?)```", text, re.DOTALL))
    project = tomllib.loads(blocks["toml"])["project"]
    ((group, entries),) = project["entry-points"].items()
    (target,) = entries.values()
    module = target.partition(":")[0]
    (directory / f"{module}.py").write_text(blocks["python"])
    metadata = directory / f"{module}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {target}" for name, target in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    return dict(entries)
