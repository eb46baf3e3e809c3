"""Gavel's simulator as a peer: where it lies in a checkout, and what its results depend on."""

from collections.abc import Sequence
from pathlib import Path

from beamer.errors import InputError
from eval.peers.base import Peer

NEEDED = ("scheduler.py", "utils.py", "job_table.py", "simulation_throughputs.json", "policies")


class GavelPeer(Peer):
    """The simulator of stanford-futuredata/gavel.

    Its workloads are drawn from a seed, which is their name, by its own generator: jobs of 26 measured models on 1 to 8 GPUs,
    durations of the distribution that its publication takes from Philly, exponential times between arrivals.
    """

    name = "gavel"
    title = "Gavel's simulator"
    runner = "eval.peers.gavel.runner"
    python = ((3, 11), (3, 12), (3, 13))
    work = ("jobs", "between_arrivals_s")

    def find(self, given: Path) -> Path:
        """Return the simulator's folder: the one given, or its `scheduler`."""
        for folder in (given, given / "scheduler"):
            if all((folder / name).exists() for name in NEEDED):
                return folder.resolve()
        raise InputError(
            "--gavel", str(given), f"a checkout of stanford-futuredata/gavel, whose scheduler has {', '.join(NEEDED)}"
        )

    def sources(self, folder: Path) -> Sequence[Path]:
        """Return its modules, policies and measured throughputs."""
        return [*folder.glob("*.py"), *(folder / "policies").glob("*.py"), folder / "simulation_throughputs.json"]

    def check_workload(self, folder: Path, name: str) -> None:
        """Check that a workload is a seed. Raises `InputError`."""
        if not name.isdecimal():
            raise InputError("--workloads", name, "seeds of the workload, numbers from 0")
