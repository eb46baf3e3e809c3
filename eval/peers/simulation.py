"""What runners have in common: one run per process, its progress on the standard output, its result in a file.

`python -m eval.peers.PEER.runner FOLDER RUN.json RESULT.json` prints how many jobs have ended, DONE TOTAL, as it changes. It is
started with the peer's interpreter, whose packages are the peer's: only numpy is imported besides the standard library.
"""

import contextlib
import io
import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eval.peers.contender import PeerRun

Simulate = Callable[[Path, PeerRun, Callable[[int, int], None]], Mapping[str, Any]]
"""Runs a simulation in a folder and calls back with how many jobs have ended, of how many.

What it returns: seconds until completion and restarts by job (`jct_s`, `restarts`), `makespan_s`, and `versions`, of packages.
"""


def main(simulate: Simulate) -> None:
    """Run what the arguments say, and leave the result in a file that is either whole or absent."""
    folder, run_file, result_file = map(Path, sys.argv[1:4])
    run = PeerRun.model_validate_json(run_file.read_text())
    shown, told = sys.stdout, [-1]

    def progress(done: int, total: int) -> None:
        if done != told[0]:
            told[0] = done
            print(done, total, file=shown, flush=True)

    random.seed(run.seed)
    np.random.seed(run.seed)
    started = time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the simulator's, of its own packages
        result = simulate(folder, run, progress)
    partial = result_file.with_suffix(".partial")
    partial.write_text(json.dumps({**result, "cpu_s": time.process_time() - started}))
    os.replace(partial, result_file)


def generators(*others: random.Random) -> str:
    """Return the states of all generators of random numbers: they change if one is drawn."""
    return repr((random.getstate(), repr(np.random.get_state(legacy=False)), [one.getstate() for one in others]))
