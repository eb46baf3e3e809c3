"""Who may build on whom: no circle between siblings of any package, and the two levels apart."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.support.checkout import ROOT

LIBRARY = ROOT / "beamer"
PARTS = {
    "beamer": {"studies", "network", "gpu", "sim"},
    "controller": {"http", "identity", "journal", "liveness", "network", "openflow"},
    "hostagent": {"agent", "expiry", "marks", "queues"},
    "topologies": {"cabling", "leaf_spine"},
    "eval": {"gpu", "joint", "recheck", "workers"},
}
"""Some siblings that import others or are imported, by folder."""
APART = [
    ("network", "gpu"),
    ("gpu", "network"),
    ("studies", "network"),
    ("studies", "gpu"),
    ("decision", "network"),
    ("decision", "gpu"),
]
"""(package, another one that it never imports)."""


def modules(root: Path) -> dict[str, Path]:
    """Return every module below `root` by its dotted name; a package's own module ends in `__init__`."""
    return {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in sorted(root.rglob("*.py"))}


def imported(code: str, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules of `known` that code imports, wherever in the code: those inside functions, too."""
    names = set(known)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name in names or f"{name}.__init__" in names else node.module for name in below]
        else:
            continue
        yield from (name if name in names else f"{name}.__init__" for name in found if {name, f"{name}.__init__"} & names)


@cache
def imports(root: Path) -> list[tuple[str, str]]:
    """Return every import between modules below `root`."""
    known = modules(root)
    return [(name, other) for name, path in known.items() for other in imported(path.read_text("utf-8"), known)]


def circles(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return what imports itself by way of siblings: in each package, its subpackages and modules count as one each."""
    graphs: dict[str, nx.DiGraph[str]] = {}
    for importer, other in pairs:
        a, b = importer.split("."), other.split(".")
        shared = next(i for i, (x, y) in enumerate(zip([*a, ""], [*b, ""], strict=False)) if x != y)
        if shared < len(a) and shared < len(b):
            graphs.setdefault(".".join(a[:shared]), nx.DiGraph()).add_edge(a[shared], b[shared])
    return [
        [package, *sorted(together)]
        for package, graph in graphs.items()
        for together in nx.strongly_connected_components(graph)
        if len(together) > 1
    ]


def crossings(pairs: Iterable[tuple[str, str]], importer: str, other: str) -> list[tuple[str, str]]:
    """Return the imports of one package of the library in another."""
    return [pair for pair in pairs if pair[0].startswith(f"beamer.{importer}.") and pair[1].startswith(f"beamer.{other}.")]


def written(root: Path, files: Mapping[str, str]) -> Path:
    for name, code in files.items():
        path = root / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return root / "lib"


@pytest.mark.parametrize("folder", PARTS)
def test_no_two_packages_import_each_other_in_a_circle(folder: str) -> None:
    pairs = imports(ROOT / folder)
    assert circles(pairs) == []
    assert PARTS[folder] <= {name.split(".")[1] for pair in pairs for name in pair}, "nothing was read"


@pytest.mark.parametrize(("importer", "other"), APART)
def test_stays_apart(importer: str, other: str) -> None:
    pairs = imports(LIBRARY)
    assert crossings(pairs, importer, other) == []
    assert crossings(pairs, importer, importer), f"nothing was read of {importer}"
    assert crossings([(f"beamer.{importer}.a", f"beamer.{other}.b")], importer, other), "the rule would see nothing"


def test_both_levels_stand_on_the_ground() -> None:
    for level in ("network", "gpu"):
        assert crossings(imports(LIBRARY), level, "studies")
        assert crossings(imports(LIBRARY), level, "decision")


def test_circles_are_found_wherever_they_are(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "a/__init__.py": "",
        "a/one.py": "from lib.b import two\n",
        "b/__init__.py": "",
        "b/two.py": "def late():\n    from lib.a.one import x\n",
        "c/__init__.py": "from lib.c.three import y\n",
        "c/three.py": "if True:\n    import lib.c\n",
        "d.py": "import lib.a.one, lib.b.two\n",
    }
    found = circles(imports(written(tmp_path, files)))
    assert sorted(found) == [["lib", "a", "b"], ["lib.c", "__init__", "three"]]
