"""Who imports what: the library stands alone, and each third-party system is met in one place."""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.checkout import ROOT

FOLDERS = ("beamer", "controller", "hostagent", "topologies", "eval")
OTHERS = FOLDERS[1:]  # the library imports none of them
JOURNAL = ("beamer/studies/journal/",)
HOMES: dict[str, tuple[str, ...]] = {
    "os_ken": ("controller/openflow/",),
    "fastapi": ("controller/http/", "controller/peer_session.py", "controller/agents/", "controller/gpu/engines.py"),
    "uvicorn": ("controller/http/",),
    "pyroute2": ("hostagent/",),
    "regex": ("beamer/engines/local/pattern.py",),
    "mininet": ("topologies/emulation/",),
    "numba": ("beamer/network/kernels/",),
    "sqlalchemy": JOURNAL,
    "alembic": JOURNAL,
    "ray": (
        "beamer/engines/ray_tune/",
        "beamer/integrations/ray_tune/",
        "eval/gpu/ray_search.py",
        "eval/gpu/ray_trial.py",
        "eval/ray_cluster.py",
        "eval/ray_workers.py",
    ),
    "pynvml": ("beamer/nvidia/",),
    "cuda": ("beamer/nvidia/",),
    "optuna": ("beamer/integrations/optuna",),
    "markdown_it": ("eval/report/",),
    "torch": (
        "beamer/integrations/torch.py",
        "eval/bench/torch_steps.py",
        "eval/gpu/ddp_trainer.py",
        "eval/nvidia/training.py",
        "topologies/emulation/digits_training.py",
    ),
    "sklearn": ("topologies/emulation/digits_data.py",),
    "scapy": (),  # GPL-2: in tests alone
    "tests": ("eval/faults/", "eval/fuzz/", "eval/nvidia/stand_in.py", "eval/nvidia/stand_in_program.py"),  # in no wheel
    **{folder: tuple(f"{other}/" for other in OTHERS) for folder in OTHERS},
}


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Return each module's path with the package of everything it imports, wherever in the module."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return frozenset((path.relative_to(ROOT).as_posix(), name) for path in paths for name in packages(path.read_text("utf-8")))


def packages(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_imports_are_found_wherever_they_are() -> None:
    code = "import a.b, c\nif TYPE_CHECKING:\n    from d.e import f\ndef g():\n    import h\nfrom .i import j\n"
    assert set(packages(code)) == {"a", "c", "d", "h"}


@pytest.mark.parametrize("package", HOMES)
def test_imported_at_home_and_nowhere_else(package: str) -> None:
    users = {path for path, name in imports() if name == package}
    assert {path for path in users if not path.startswith(HOMES[package])} == set()
    assert bool(users) == bool(HOMES[package])
