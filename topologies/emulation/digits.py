"""A program for `beamer schedule` that trains: a small convolutional network on scikit-learn's digits, by DDP on gloo.

    python -m topologies.emulation.digits --iterations 40 --compute-s 0.6 --learning-rate 0.1 --channels 8 --hidden 463

It is launched as `torchrun` would (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), one process per GPU, and knows two signals and
a checkpoint path. The gradient is averaged over the ranks once an iteration; what signals asked of any rank is averaged with
it, so that all ranks stop, or write a checkpoint, after the same one.

Losses follow from the configuration and the samples seen: it seeds the weights and the order of the samples, and a batch has
the same samples on any number of ranks, so that a change of their number changes results by rounding alone. How long an
iteration takes does not follow from this machine's processors, which many ranks share: of a GPU that computes for `compute_s`,
what is left when the gradient is there is waited for before it is sent.

gloo's sockets cannot be prepared here: congestion control and largest window are those of the host's route.
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from beamer.testing.trainer import SignalRequests, leave
from topologies.emulation.digits_options import DigitsOptions
from topologies.emulation.program_options import add_options


def process_start_s() -> float:
    """Return when this process was started, on the monotonic clock: before PyTorch was imported."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # `starttime` of proc(5)
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as one rank, as the environment and the command line say."""
    asked = SignalRequests()
    parser = argparse.ArgumentParser(prog="python -m topologies.emulation.digits", description=__doc__)
    add_options(parser)
    parser.add_argument("--timeout-s", type=float, default=600.0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=64)
    options = DigitsOptions(**vars(parser.parse_args(arguments)))
    # This imports PyTorch; signals that come meanwhile are already noted.
    from topologies.emulation.digits_training import train

    train(options, os.environ, asked, process_start_s())


if __name__ == "__main__":
    main()
    leave()
