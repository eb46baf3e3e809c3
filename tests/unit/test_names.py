"""One meaning per name: no two public classes are called alike, but for a policy of each level."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.unit.test_imports import FOLDERS, ROOT

ALLOWED = {
    "Fifo": {"beamer/gpu/policies/fifo.py", "beamer/network/policies/fifo.py"},
    "BeamerCallback": {"beamer/integrations/optuna.py", "beamer/integrations/ray_tune/callback.py"},
}


def public_classes(root: Path, folders: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the files of every public class at the top of a module, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (path for folder in folders for path in (root / folder).rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(path.relative_to(root).as_posix())
    return found


def test_no_two_public_classes_are_called_alike() -> None:
    found = public_classes(ROOT, FOLDERS)
    assert len(found) > 300, "nothing was read"
    assert {name: files for name, files in found.items() if len(files) > 1} == ALLOWED


def test_two_that_are_called_alike_are_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / f"{name}.py").write_text("class Same:\n    pass\nclass _Own:\n    pass\n")
    assert public_classes(tmp_path, ("lib",)) == {"Same": {"lib/a.py", "lib/b.py"}}
