"""The seam of peers: another project's simulator, given by path, with its policies and workloads; one folder per peer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).parents[2]  # The peer's interpreter imports our policies from this root of our checkout.


class Peer(ABC):
    """Another project's simulator.

    name: on the command line. title: of its tables. runner: the module that the peer's interpreter runs, beside which lie
    `requirements.txt`, its packages, and, where building these needs others, `build-requirements.txt`. python: the versions of
    Python that have them. work: what its generator of workloads is told, by name, if it has one.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    runner: ClassVar[str]
    python: ClassVar[tuple[tuple[int, int], ...]]
    work: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def find(self, given: Path) -> Path:
        """Return the simulator's folder in a checkout. Raises `InputError` if it is not there."""

    @abstractmethod
    def sources(self, folder: Path) -> Sequence[Path]:
        """Return the files that a run's result depends on."""

    @abstractmethod
    def check_workload(self, folder: Path, name: str) -> None:
        """Check that it has a workload of that name. Raises `InputError`."""

    @property
    def folder(self) -> Path:
        """Our folder for it."""
        return ROOT / Path(*self.runner.split(".")[:-1])

    def content(self, folder: Path) -> str:
        """Return the hash of all that a run's result depends on: what a commit is to a checkout without its history."""
        return hash_of(self.sources(folder), folder)


def hash_of(files: Sequence[Path], root: Path) -> str:
    """Return the hash of files with their places below `root`."""
    digest = sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def sources_of(peer: Peer, own: bool) -> str:
    """Return the hash of what of ours a run depends on: the runner, and for a policy of ours all that it is made of.

    own: whether the policy is the peer's.
    """
    common = [ROOT / "eval" / "peers" / name for name in ("contender.py", "simulation.py")]
    if own:
        return hash_of([*common, *(path for path in peer.folder.glob("*.py") if path.name != "adapter.py")], ROOT)
    places = (ROOT / "beamer" / "gpu", ROOT / "beamer" / "decision", peer.folder)
    files = [path for place in places for path in place.rglob("*.py")]
    return hash_of([*common, *files, ROOT / "eval" / "peers" / "job_record.py"], ROOT)
