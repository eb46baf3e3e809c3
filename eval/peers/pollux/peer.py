"""Pollux' simulator as a peer: where it lies in a checkout, and what its results depend on."""

from collections.abc import Sequence
from pathlib import Path

from beamer.errors import InputError, nearest
from eval.peers.base import Peer

NEEDED = ("simulator.py", "applications.py", "pollux.py", "tiresias.py", "optimus.py", "traces", "workloads")


class PolluxPeer(Peer):
    """The simulator of petuum/adaptdl, branch osdi21-artifact."""

    name = "pollux"
    title = "Pollux' simulator"
    runner = "eval.peers.pollux.runner"
    python = ((3, 11),)  # the only one that both our policies and its packages run on

    def find(self, given: Path) -> Path:
        """Return the simulator's folder: the one given, or its `simulator`."""
        for folder in (given, given / "simulator"):
            if all((folder / name).exists() for name in NEEDED):
                return folder.resolve()
        raise InputError(
            "--pollux",
            str(given),
            f"a checkout of petuum/adaptdl, branch osdi21-artifact, whose simulator has {', '.join(NEEDED)}",
        )

    def sources(self, folder: Path) -> Sequence[Path]:
        """Return its modules, traces and workloads."""
        return [*folder.glob("*.py"), *(folder / "traces").rglob("*.csv"), *(folder / "workloads").glob("*.csv")]

    def check_workload(self, folder: Path, name: str) -> None:
        """Check that a workload is one of its numbers. Raises `InputError`."""
        known = [path.stem.removeprefix("workload-") for path in (folder / "workloads").glob("workload-*.csv")]
        if name not in known:
            raise InputError("--workloads", name, nearest(name, known))
