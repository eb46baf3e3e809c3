"""How a mutant is tried: in a copy of the checkout, by the tests that lie nearest to it first, until one fails."""

import ast
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.mutation.mutants import PACKAGES, Mutant, mutated
from tests.support.checkout import ROOT

TIERS = {
    "unit": ("tests/unit", "tests/conformance"),
    "short": ("tests/compat", "tests/processes", "tests/ray", "tests/netns", "tests/emulation"),
    "long": ("tests/packaging",),
}
LEVELS = ("near", *TIERS)  # each with all before it
FEW = 3  # imports: a test's helper, a command line, the module of the command
TEST_S = 120  # of a unit test on a mutant
LONG_TEST_S = 300  # as in `pyproject.toml`
SPARE_S = 60  # beyond a test's time, to collect or to end
MEMORY_BYTES = 12 << 30
SHAPES = tuple(f"topologies.{path.stem}" for path in (ROOT / "topologies").glob("*.py"))  # Entry points name these modules.
_MODULE = re.compile(rf"\b(?:beamer|{'|'.join(PACKAGES)}|eval)(?:\.\w+)*")


@dataclass(frozen=True)
class Step:
    """Test files that are run together."""

    name: str
    files: tuple[str, ...]


@dataclass
class Outcome:
    """What one run of tests showed. running: the test that began last, which a time-out or a crash met."""

    failed: list[str] = field(default_factory=list)
    running: str = ""
    timed_out: bool = False
    status: int = 0


@dataclass(frozen=True)
class Verdict:
    """The test that killed a mutant and the step it was in, or an empty test where every step passed."""

    mutant: Mutant
    step: str
    test: str
    timed_out: bool = False


def steps(path: str, tier: str) -> list[Step]:
    """Return the tests for a module, those that import it first in each step.

    First the folder of unit tests that mirrors the package; then what else of `tests/unit` and `tests/conformance` imports the
    module; with the tier `unit` then all of the two; with `short` then what else leads to it by few imports; with `long` then
    everything else, and of every step also what is only in the long run. Tests from which no import leads to the module are
    left out of each: they cannot run it.
    """
    folder = _mirror(path)
    units, others = _files(TIERS["unit"]), _files(TIERS["short"])
    near = sorted((ROOT / folder).glob("test_*.py"))
    kinds = [
        ("near", folder, near),
        ("near", "other unit tests that import the module", [file for file in units if _imports(file, path)]),
        ("unit", "tests/unit, tests/conformance", units),
        ("short", "other tests", [file for file in others if _distances(path).get(_name(file), FEW + 1) <= FEW]),
        ("long", "all other tests that lead to the module", [*others, *_files(TIERS["long"])]),
    ]
    listed: list[Step] = []
    taken: set[Path] = set()
    for least, name, files in kinds:
        if LEVELS.index(least) <= LEVELS.index(tier):
            left = [file for file in files if file not in taken]
            taken |= set(left)
            listed.append(Step(name, _ordered(path, left)))
    return [step for step in listed if step.files]


def _mirror(path: str) -> str:
    """Return the folder of unit tests of a module's package, or of the nearest package above that has one."""
    folder = Path(path).parent
    below = folder if folder.parts[0] in PACKAGES else folder.relative_to("beamer")
    while not any((ROOT / "tests/unit" / below).glob("test_*.py")):
        below = below.parent
    return ("tests/unit" / below).as_posix()


def _files(folders: Iterable[str]) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _imports(file: Path, path: str) -> bool:
    return _name(file) in _importers().get(path, ())


def _ordered(path: str, files: list[Path]) -> tuple[str, ...]:
    """Return files by how many imports lie between them and the module, without those that lead to it by none."""
    distance = _distances(path)
    reaching = (name for file in files if (name := _name(file)) in distance)
    return tuple(sorted(reaching, key=lambda name: (distance[name], name)))


@cache
def _distances(path: str) -> dict[str, int]:
    """Return the files that import a module, themselves or through others, with the number of imports in between."""
    importers = _importers()
    found = {path: 0}
    queue = deque([path])
    while queue:
        name = queue.popleft()
        for importer in importers.get(name, ()):
            if importer not in found:
                found[importer] = found[name] + 1
                queue.append(importer)
    return found


@cache
def _importers() -> dict[str, set[str]]:
    """Return the files that import each module of the checkout, or name it in a string: to import it later, or run it."""
    importers: dict[str, set[str]] = {}
    for folder in ("beamer", *PACKAGES, "eval", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            for name in _imported(ast.parse(file.read_text("utf-8"))):
                parts = name.split(".")
                for end in range(1, len(parts) + 1):  # importing a module imports the packages that it is in
                    module = "/".join(parts[:end])
                    for found in (f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py"):
                        importers.setdefault(found, set()).add(_name(file))
    return importers


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
                if any(alias.name == "entry_points" for alias in names):
                    yield from SHAPES
            case ast.Constant(value=str(text)):
                yield from _MODULE.findall(text)


class Copy:
    """A copy of the checkout's files, those that Git ignores left out, in which tests are run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tree = folder / "tree"
        self._noted = folder / "outcomes.jsonl"
        self._known = folder / "unmutated.json"
        self._unmutated: dict[str, bool] = json.loads(self._known.read_text("utf-8")) if self._known.exists() else {}
        shutil.rmtree(self._tree, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self._tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self._tree / name)
        sources = [path for name in ("beamer", *PACKAGES, "tests/support") for path in sorted((ROOT / name).rglob("*.py"))]
        self._sources = b"".join(path.read_bytes() for path in sources)

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Change the one line while the block runs."""
        path = self._tree / mutant.path
        path.write_text(mutated(mutant, path.read_text("utf-8")), "utf-8")
        try:
            yield
        finally:
            shutil.copy2(ROOT / mutant.path, path)  # with its time, by which Numba knows what it has compiled

    def run(self, tests: Iterable[str], *options: str, test_s: float, compiled: str = "numba") -> Outcome:
        """Run tests. What neither starts nor ends a test for `test_s` and a minute is killed. compiled: Numba's cache."""
        self._noted.write_text("", "utf-8")
        environment = {
            "BEAMER_INPUTS": str(ROOT.parent / "shared"),
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self._tree),
            "NUMBA_CACHE_DIR": str(self._folder / compiled),
            "BEAMER_MUTATION_OUTCOMES": str(self._noted),
        }
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "tests.mutation.outcomes", "-p", "no:cacheprovider"]
        with (self._folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [*command, f"--timeout={test_s:.0f}", *options, *tests],
                cwd=self._tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES)),
            )
            try:
                timed_out = self._is_stuck(process, test_s)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return _outcome(self._noted.read_text("utf-8"), timed_out, process.returncode)

    def _is_stuck(self, process: subprocess.Popen[bytes], test_s: float) -> bool:
        """Wait for the end of the tests, or until no test has started or ended for too long."""
        while True:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                if time.time() - self._noted.stat().st_mtime > test_s + SPARE_S:
                    return True
            else:
                return False

    def passes(self, test: str) -> bool:
        """Tell whether a test passes by itself, unmutated. The answer is stored for the sources as they are."""
        file = test.split("::")[0]
        key = f"{test} {hashlib.sha256(self._sources + (ROOT / file).read_bytes()).hexdigest()[:12]}"
        if key not in self._unmutated:
            self._unmutated[key] = self.run([test], test_s=LONG_TEST_S).status == 0
            self._known.write_text(json.dumps(self._unmutated, indent=1), "utf-8")
        return self._unmutated[key]


def _outcome(noted: str, timed_out: bool, status: int) -> Outcome:
    found = Outcome(timed_out=timed_out, status=status)
    for kind, test in map(json.loads, noted.splitlines()):
        if kind == "started":
            found.running = test
        elif kind == "failed" and test not in found.failed:
            found.failed.append(test)
    return found


def attempt(mutant: Mutant, tier: str, copy: Copy, folder: Path) -> Verdict:
    """Run the steps on a mutant until a test fails that fails again by itself and passes unmutated.

    What is only in the long run is tried with the tier `long`.
    """
    chosen = () if tier == "long" else ("-m", "not long")
    compiled = "numba"
    if _is_compiled(mutant.path):
        compiled = "numba-mutant"
        shutil.rmtree(folder / compiled, ignore_errors=True)
    for step in steps(mutant.path, tier):
        test_s = TEST_S if compiled == "numba" and step.files[0].startswith(TIERS["unit"]) else LONG_TEST_S
        dismissed: list[str] = []
        while True:
            deselected = [option for test in dismissed for option in ("--deselect", test)]
            with copy.changed(mutant):
                outcome = copy.run(step.files, "-x", *chosen, *deselected, test_s=test_s, compiled=compiled)
                if outcome.status in (0, 5):  # all passed, or none was left
                    break
                suspect = outcome.failed[0] if outcome.failed else outcome.running
                if not suspect or suspect in dismissed:
                    return Verdict(mutant, step.name, f"(the tests end with status {outcome.status} and name none)")
                again = copy.run([suspect], test_s=test_s, compiled=compiled)
            if again.status != 0 and copy.passes(suspect):
                return Verdict(mutant, step.name, suspect, outcome.timed_out)
            dismissed.append(suspect)
    return Verdict(mutant, "", "")


def _is_compiled(path: str) -> bool:
    """Tell whether Numba compiles a module, or freezes constants of it into what it compiles."""
    kernels = ROOT / "beamer/network/kernels"
    return (ROOT / path).is_relative_to(kernels) or any(_imports(kernel, path) for kernel in kernels.glob("*.py"))
