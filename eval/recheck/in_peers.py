"""Cells of the table of other projects' simulators: policies of ours on the first workload, and the keys of all of its runs."""

import tempfile
from collections.abc import Collection
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from eval.peers.base import Peer
from eval.peers.command import PEERS, read
from eval.peers.contender import PeerRun
from eval.peers.environment import interpreter
from eval.peers.results_file import read_results
from eval.peers.runs import PeerRuns, run_key
from eval.recheck.base import CommittedCell, MissingInput, RecheckInputs

MADE_HERE = Path("results/peers")  # Interpreters that `python -m eval peers` has made lie here.


def peers(inputs: RecheckInputs) -> Collection[CommittedCell]:
    """Return every policy of ours on the first workload of each peer whose checkout is given."""
    if not inputs.peers:
        raise MissingInput("--pollux or --gavel, a checkout: the runs are made by the simulator that is in it")
    config = read()
    found = []
    for name, (given, python) in inputs.peers.items():
        peer, chosen, results = PEERS[name], config[name], read_results()[name]
        folder = peer.find(given)
        interpreted = interpreter(peer, MADE_HERE.absolute(), python and python.absolute())
        for who, several in results.runs.items():
            if who.own:
                continue  # The peers' own policies are what ours are compared with; their Pollux takes hours.
            (workload, seed), one = next(iter(several.items()))
            run = chosen.run(name, who, workload, seed, bool(results.settings["original"]))
            again = partial(_again, peer, folder, interpreted, run)
            found.append(CommittedCell(f"{name}, workload {workload}, {who.title}", asdict(one.figures), again))
    return found


def _again(peer: Peer, folder: Path, python: Path, run: PeerRun) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        (one,) = PeerRuns(peer, folder, python, Path(cache)).all([run], 1, Console(quiet=True)).values()
    return asdict(one.figures)


def stale_runs() -> dict[str, int]:
    """Return how many of the committed runs would have another key now, by the policy's title: their sources have changed."""
    config, found = read(), {}
    for name, results in read_results().items():
        for who, several in results.runs.items():
            (workload, seed), first = next(iter(several.items()))
            run = config[name].run(name, who, workload, seed, bool(results.settings["original"]))
            if run_key(PEERS[name], results.content, run) != first.key:
                found[f"{name}: {who.title}"] = len(several)
    return found
